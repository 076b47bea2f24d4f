"""The document of ``doctor``: for each host its facts, what they mean and what could not be seen; and what differs."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage._version import __version__
from nccl_triage.doctor import checks, compare
from nccl_triage.doctor.judge import judge

#: What a document calls itself, by which it is recognised.
KIND = "nccl-triage-doctor"
#: Verdict of a document by the worst of its states.
_VERDICTS = {"failed": "problems", "warning": "warnings"}


@dataclass(frozen=True, slots=True)
class Collected:
    """What a host told: the answer of ``collect``, or ``problem``, why there is none. ``ahead``: its clock minus ours."""

    host: str
    told: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    ahead: float | None = None


def build(collected: Sequence[Collected]) -> dict[str, Any]:
    """Return the document of some hosts."""
    known, differing = checks.shipped()
    hosts = [_host(one, known) for one in collected]
    facts = {one.host: one.told.get("facts") or {} for one in collected if one.problem is None}
    clocks = {one.host: one.ahead for one in collected if one.ahead is not None}
    differences = compare.differences(facts, differing, clocks)
    states = [check["state"] for host in hosts for check in host["checks"]]
    states += [difference["state"] for difference in differences]
    states += ["failed" for host in hosts if host["problem"]]
    return {
        "schema_version": 1,
        "kind": KIND,
        "tool": {"name": "nccl-triage", "version": __version__},
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "verdict": next((word for state, word in _VERDICTS.items() if state in states), "healthy"),
        "hosts": hosts,
        "differences": differences,
    }


def _host(one: Collected, known: Mapping[str, checks.Check]) -> dict[str, Any]:
    facts = one.told.get("facts") or {}
    return {
        "host": one.host,
        "problem": one.problem,
        "checks": [result.to_dict() for result in judge(facts, known)] if one.problem is None else [],
        "unseen": list(one.told.get("unseen") or ()),
        "facts": facts,
        "comparable": compare.comparable(facts),
        "seconds": one.told.get("seconds") or {},
    }
