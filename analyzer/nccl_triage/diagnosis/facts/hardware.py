"""What the hosts say of their hardware: Xids, paths between GPUs, ports of adapters."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.observations.event import Event
from nccl_triage.story.kernel_log import XID, job_sources

#: Facts that name the ranks where a failure began.
_SUSPECTS = (
    "progress.silent_ranks", "process.first_exit_ranks", "process.aborted_ranks", "process.crashed_ranks",
    "process.killed_ranks", "exception.ranks",
)  # fmt: skip


def xids_of(case: Case, *kinds: str) -> list[Event]:
    """Return the Xid lines whose numbers are of one of these kinds (``rules/codes/xid.yaml``)."""
    return [event for event in case.of(XID) if event.fields.get("code_kind") in kinds]


@fact("gpu.hardware_xid", "the number of the first Xid that speaks of broken hardware")
def _hardware(case: Case) -> Fact | None:
    found = xids_of(case, "hardware")
    return Fact(int(found[0].fields["xid"]), found[:3]) if found else None


def _suspects(case: Case) -> set[int]:
    return {rank for name in _SUSPECTS for rank in case.value(name) or []}


@fact(
    "gpu.undated_xid",
    "the Xids stand in a kernel's log without a clock, and none is of a GPU whose rank failed first: they may be old",
)
def _undated(case: Case) -> Fact | None:
    found = xids_of(case, "hardware", "engine", "link")
    sources = job_sources(case.events)
    if not found or not sources or any(e.context.time is not None or e.source in sources for e in found):
        return None
    suspects = _suspects(case)
    return Fact(all(case.devices.place(event).rank not in suspects for event in found), found[:2])


@fact(
    "gpu.bad_memory_ranks",
    "ranks that fell silent or died first and whose GPU counts uncorrected memory errors since the driver was loaded",
)
def _bad_memory(case: Case) -> Fact | None:
    counted = case.having("measurement", span="volatile")
    counted += [e for e in case.having("measurement", "bdf", "index", "value") if (e.number("value") or 0) > 0]
    suspects = _suspects(case)
    found = {place.rank: event for event in counted if (place := case.devices.place(event)).rank in suspects}
    return Fact(sorted(rank for rank in found if rank is not None), list(found.values())[:3]) if found else None
