"""How a log ends: with a warning of NCCL that no signature knows, and nothing after it."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.diagnosis.facts.progress import progress_of
from nccl_triage.parsers.salient import SALIENT

#: So many lines may stand below the warning: what NCCL says of itself on its way out.
_BELOW = 3
_WARNING = "NCCL WARN "


@fact("progress.ends_warned", "a log ends with a warning of NCCL that no signature knows, and nothing goes on after it")
def _ends_warned(case: Case) -> Fact | None:
    last_step: dict[str, int] = {}
    for event in progress_of(case):
        last_step[event.source] = max(event.line, last_step.get(event.source, 0))
    found = []
    for event in case.of(SALIENT):
        info = case.observations.sources.get(event.source)
        if info is None or _WARNING not in event.text:
            continue
        if info.lines - event.line <= _BELOW and event.line > last_step.get(event.source, 0):
            found.append(event)
    return Fact(True, found[-2:]) if found else None


#: What NCCL says first, at its level INFO, and what it says once a communicator has come up.
_BEGINS = ("nccl.bootstrap_using", "nccl.net_socket_using", "nccl.net_ib_using", "nccl.init_start")
_CAME_UP = ("nccl.init_complete", "nccl.connected_*", "nccl.coll_call", "nccl.comm_destroyed")


@fact(
    "progress.ends_in_init", "a log ends while NCCL sets up its first communicator: none came up, and nothing advanced"
)
def _ends_in_init(case: Case) -> Fact | None:
    begun = case.of(*_BEGINS)
    if not begun or case.of(*_CAME_UP) or progress_of(case) or case.value("progress.finished"):
        return None
    return Fact(True, begun[-2:])
