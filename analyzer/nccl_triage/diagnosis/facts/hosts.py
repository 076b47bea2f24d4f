"""Hosts: the values in which they differ from each other, and the faults of hardware that they report.

The events of a difference are those of the hosts that stand alone with their value, or of all hosts if no value has a
majority.
"""

from __future__ import annotations

from collections.abc import Callable

from nccl_triage.diagnosis.case import Case, Fact, FactFunction, fact
from nccl_triage.observations.event import Event
from nccl_triage.story import differences
from nccl_triage.story.kernel_log import XID, job_sources

#: Fact -> the test for its aspects of differences, and its meaning.
_FACTS: dict[str, tuple[Callable[[str], bool], str]] = {
    "hosts.drivers_differ": (
        lambda name: name == "driver",
        "hosts of the job whose NVIDIA driver is another one than the others'",
    ),
    "hosts.nccl_differs": (
        lambda name: name == "nccl" or name.startswith(differences.SOURCE),
        "hosts of the job whose NCCL is another version than the others', by what it or its messages tell",
    ),
    "hosts.software_differs": (
        lambda name: name in ("torch", "vllm", "ray"),
        "hosts of the job whose torch, vLLM or Ray is another version than the others'",
    ),
    "hosts.interfaces_differ": (
        lambda name: name == "interface",
        "hosts of the job where NCCL would use an interface of another name",
    ),
    "hosts.networks_differ": (
        lambda name: name == "network",
        "hosts of the job whose chosen interface lies in another network",
    ),
    "hosts.mtu_differs": (lambda name: name == "mtu", "hosts of the job whose chosen interface has another MTU"),
    "hosts.ports_differ": (
        lambda name: name == "ports",
        "hosts of the job with other active InfiniBand or RoCE ports",
    ),
    "hosts.variables_differ": (
        lambda name: name.startswith(("variable:NCCL_", "variable:TORCH_NCCL_", "variable:GLOO_")),
        "NCCL variables that differ between hosts of the job",
    ),
}


def _what(one: differences.Difference) -> str:
    return f"messages from {one.value}" if one.aspect.startswith(differences.SOURCE) else one.aspect


def _differing(wanted: Callable[[str], bool]) -> FactFunction:
    def differ(case: Case) -> Fact | None:
        found = [one for one in case.differences if wanted(one.aspect)]
        if not found:
            return None
        return Fact(sorted({f"{_what(one)} ({one.host})" for one in found}), [one.event for one in found][:6])

    return differ


for _name, (_wanted, _meaning) in _FACTS.items():
    fact(_name, _meaning)(_differing(_wanted))


#: Facts that name ranks where the failure may have begun.
_SUSPECTS = (
    "progress.silent_ranks", "process.first_exit_ranks", "process.aborted_ranks", "process.crashed_ranks",
    "process.killed_ranks", "exception.ranks",
)  # fmt: skip


def xids_of(case: Case, *kinds: str) -> list[Event]:
    """Return the lines with Xids of the given kinds (``rules/codes/xid.yaml``)."""
    return [event for event in case.of(XID) if event.fields.get("code_kind") in kinds]


@fact("gpu.hardware_xid", "the number of the first Xid that indicates broken hardware")
def _hardware(case: Case) -> Fact | None:
    found = xids_of(case, "hardware")
    return Fact(int(found[0].fields["xid"]), found[:3]) if found else None


def _suspects(case: Case) -> set[int]:
    return {rank for name in _SUSPECTS for rank in case.value(name) or []}


@fact(
    "gpu.undated_xid",
    "the Xids come from a kernel log without timestamps, and none is of a GPU whose rank failed first: they may be old",
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
