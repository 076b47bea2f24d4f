"""Values that differ between the hosts of the job: as ``nccl-triage doctor`` saw them, and as the log tells.

The events are those of the hosts that stand alone with their value; without a majority all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from nccl_triage.diagnosis.case import Case, Fact, FactFunction, fact
from nccl_triage.story import differences

#: Fact -> (of which aspects, what it tells).
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
    "hosts.modules_differ": (
        lambda name: name == differences.MODULE,
        "hosts of the job where NCCL chose another network module (InfiniBand, sockets, a plug-in)",
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
