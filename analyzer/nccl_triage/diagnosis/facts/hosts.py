"""Values that differ between the hosts of the job, as ``nccl-triage doctor`` saw them.

The events are those of the hosts that stand alone with their value; without a majority all of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.events import Event


def _by_fact(case: Case) -> dict[str, dict[str, Event]]:
    """Return fact -> host -> the event with its value."""
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


def _differing(case: Case, wanted: Callable[[str], bool]) -> Fact | None:
    values = _by_fact(case)
    hosts = {host for told in values.values() for host in told}
    events = [event for name, told in sorted(values.items()) if wanted(name) for event in _odd(told, len(hosts))]
    if not events:
        return None
    return Fact(sorted({f"{event.fields['fact']} ({event.fields['host']})" for event in events}), events[:6])


@fact("hosts.drivers_differ", "hosts of the job whose NVIDIA driver is another one than the others'")
def _drivers(case: Case) -> Fact | None:
    return _differing(case, lambda name: name == "driver")


@fact("hosts.nccl_differs", "hosts of the job whose NCCL is another version than the others'")
def _nccl(case: Case) -> Fact | None:
    return _differing(case, lambda name: name == "nccl")


@fact("hosts.software_differs", "hosts of the job whose torch, vLLM or Ray is another version than the others'")
def _software(case: Case) -> Fact | None:
    return _differing(case, lambda name: name in ("torch", "vllm", "ray"))


@fact("hosts.interfaces_differ", "hosts of the job where NCCL would use an interface of another name")
def _interfaces(case: Case) -> Fact | None:
    return _differing(case, lambda name: name == "interface")


@fact("hosts.networks_differ", "hosts of the job whose chosen interface lies in another network")
def _networks(case: Case) -> Fact | None:
    return _differing(case, lambda name: name == "network")


@fact("hosts.mtu_differs", "hosts of the job whose chosen interface has another MTU")
def _mtu(case: Case) -> Fact | None:
    return _differing(case, lambda name: name == "mtu")


@fact("hosts.ports_differ", "hosts of the job with other active InfiniBand or RoCE ports")
def _ports(case: Case) -> Fact | None:
    return _differing(case, lambda name: name == "ports")


@fact("hosts.variables_differ", "NCCL variables that differ between hosts of the job")
def _variables(case: Case) -> Fact | None:
    names = ("variable:NCCL_", "variable:TORCH_NCCL_", "variable:GLOO_")
    return _differing(case, lambda name: name.startswith(names))
