"""What the methods that find culprits share: their register, a culprit, and whom a rank or a line stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.weigh import Contribution, Weighed
from nccl_triage.engine.schema import WEIGHTS
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event
from nccl_triage.story.devices import is_kernel


@dataclass(slots=True)
class Culprit:
    """A suspect and why it is one."""

    rank: int | None
    host: str | None
    address: str | None
    pid: int | None
    gpu: int | None
    why: dict[str, str]


#: More of them than this are a property of the job, not culprits.
MAX_CULPRITS = 8

Method = Callable[[Case, Weighed], list[Culprit]]
METHODS: dict[str, Method] = {}


def method(name: str) -> Callable[[Method], Method]:
    """Register a culprit method."""

    def register(function: Method) -> Method:
        METHODS[name] = function
        return function

    return register


def of_rank(case: Case, rank: int, en: str, zh: str) -> Culprit:
    """Return a rank as a culprit, with what is known of its host and process; the texts say why it is one."""
    info = case.identity.ranks.get(rank)
    pid = next(iter(info.pids)) if info is not None and len(info.pids) == 1 else None
    return Culprit(
        rank=rank,
        host=case.stated_hosts.get(rank) or (info.host if info is not None else None),
        address=info.address if info is not None else None,
        pid=pid,
        gpu=info.gpu if info is not None else None,
        why={"en": en, "zh": zh},
    )


def dead_rank(case: Case, event: Event) -> int | None:
    """Return the rank of the process that the line is about (a pid in its text), not of the one that printed it."""
    pid = whole(event.fields.get("pid"))
    if is_kernel(event):
        return case.devices.rank_of_pid(pid, case.host(event))
    return case.identity.rank_of_pid(pid, case.host(event)) if pid is not None else None


def _sole_failing_rank(case: Case) -> int | None:
    """Return the only rank that fails, where one process at most fails without naming its rank: then they are one."""
    failed = case.failures
    ranks = set(case.ranks(failed))
    pids = {event.context.pid for event in failed if case.rank(event) is None}
    return ranks.pop() if len(ranks) == 1 and len(pids) == 1 and None not in pids else None


def of_event(case: Case, event: Event, en: str, zh: str) -> Culprit:
    """Return the process that printed a line, or that it is about, as a culprit."""
    rank = dead_rank(case, event)
    rank = rank if rank is not None else case.rank(event)
    if rank is None and event.context.pid is not None and event.role != "context":
        rank = _sole_failing_rank(case)
    if rank is not None:
        found = of_rank(case, rank, en, zh)
        found.host = found.host or case.host(event)
        return found
    context = event.context
    return Culprit(None, case.host(event), context.address, context.pid, context.gpu, {"en": en, "zh": zh})


def by_weight(weighed: Weighed) -> list[Contribution]:
    """Return a cause's evidence, that of the greatest weight first."""
    return sorted(weighed.rule_items, key=lambda item: -WEIGHTS[item.evidence.weight])


def strongest(weighed: Weighed) -> list[Event]:
    """Return the lines of a cause's evidence, those of the greatest weight first."""
    return [event for item in by_weight(weighed) for event in item.events]
