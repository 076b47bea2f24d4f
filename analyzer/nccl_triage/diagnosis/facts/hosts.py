"""Values that differ between the hosts of the job, as ``nccl-triage doctor`` saw them.

The events are those of the hosts that stand alone with their value; without a majority all of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from nccl_triage.diagnosis.case import Case, Fact, FactFunction, fact
from nccl_triage.events import Event


def _by_fact(case: Case) -> dict[str, dict[str, Event]]:
    """Return fact -> host -> the event with its value: the one signature that doctor's values have."""
    found: dict[str, dict[str, Event]] = defaultdict(dict)
    for event in case.of("host.value"):
        found[event.fields["fact"]][event.fields["host"]] = event
    return found


def _odd(events: dict[str, Event], hosts: int) -> list[Event]:
    """Return the events of the minority where values differ; what a host does not tell is no value."""
    counted = Counter(event.fields["value"] for event in events.values())
    if len(counted) < 2 or hosts < 2:
        return []
    best, number = counted.most_common(1)[0]
    majority = number * 2 > len(events)
    return [event for event in events.values() if not majority or event.fields["value"] != best]


#: Fact -> (of which values of doctor, what it tells).
_FACTS: dict[str, tuple[Callable[[str], bool], str]] = {
    "hosts.drivers_differ": (
        lambda name: name == "driver",
        "hosts of the job whose NVIDIA driver is another one than the others'",
    ),
    "hosts.nccl_differs": (
        lambda name: name == "nccl",
        "hosts of the job whose NCCL is another version than the others'",
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


def _differing(wanted: Callable[[str], bool]) -> FactFunction:
    def differ(case: Case) -> Fact | None:
        values = _by_fact(case)
        hosts = {host for told in values.values() for host in told}
        events = [event for name, told in sorted(values.items()) if wanted(name) for event in _odd(told, len(hosts))]
        if not events:
            return None
        return Fact(sorted({f"{event.fields['fact']} ({event.fields['host']})" for event in events}), events[:6])

    return differ


for _name, (_wanted, _meaning) in _FACTS.items():
    fact(_name, _meaning)(_differing(_wanted))
