"""Culprit methods that read where dumped processes stand."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_triage.diagnosis import dumped_stacks as dumped
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit_base import Culprit, method, of_event
from nccl_triage.diagnosis.dumped_stacks import Stack
from nccl_triage.diagnosis.weigh import Weighed


def _blamed(case: Case, stacks: Iterable[Stack], en: str, zh: str) -> list[Culprit]:
    """Return the processes; of a dump that does not tell whose it is nobody can be named."""
    found = [of_event(case, one.event, en.replace("{}", one.shown), zh.replace("{}", one.shown)) for one in stacks]
    return [one for one in found if (one.rank, one.host, one.address, one.pid) != (None, None, None, None)]


@method("stands")
def _stands(case: Case, weighed: Weighed) -> list[Culprit]:
    """The processes whose dumped stack stands in what needs no other rank, else those that wait apart from the majority."""
    away, _ = dumped.elsewhere(case)
    minority, _ = dumped.apart(case)
    return _blamed(case, away, "stands in {} while the others wait", "停在 {}，而其他进程在等待") or _blamed(
        case, minority, "waits in {}, apart from the majority", "在 {} 等待，与多数进程不同"
    )
