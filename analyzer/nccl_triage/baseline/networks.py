"""Interfaces, adapters, networks and plugins that NCCL chose."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from nccl_triage.baseline.model import Difference
from nccl_triage.baseline.values import Valued, changed, of_field
from nccl_triage.diagnosis.case import Case
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.story.addresses import parse

#: ``[0]eth0:10.0.0.1<0> [1]mlx5_0:1/IB``: name, and address where there is one.
_DEVICE = lazily(r"\[\d+\](?P<name>[\w.@-]+)(?::(?P<address>[0-9a-fA-F.:]+)<\d+>)?")
#: Bits of an address that stay from run to run within one network.
_NETWORK = 16


def compare(good: Case, bad: Case) -> Iterator[Difference]:
    """Yield other interfaces, adapters, networks and plugins; addresses within one network are alike."""
    for name in ("sockets", "adapters"):
        yield from changed("interface", name, _devices(good, name), _devices(bad, name))
    for name, lines in (("bootstrap", _bootstrap), ("out-of-band", _adapters)):
        differs = list(changed("interface", name, of_field(lines(good), "iface"), of_field(lines(bad), "iface")))
        yield from differs
        if not differs and name == "bootstrap":
            yield from changed("interface", "subnet", _networks(good), _networks(bad))
    for chosen in ("network", "plugin"):
        theirs, ours = (case.having("transport.chosen", chosen=chosen) for case in (good, bad))
        yield from changed("interface", chosen, of_field(theirs, "name"), of_field(ours, "name"))


def _bootstrap(case: Case) -> list[Event]:
    """Return the lines that name the interface over which processes meet."""
    return [event for event in case.having("interface.chosen", "iface") if "devs" not in event.fields]


def _adapters(case: Case) -> list[Event]:
    """Return the lines that name adapters, and the interface beside them."""
    return case.having("interface.chosen", devices="adapters")


def _devices(case: Case, devices: str) -> Valued:
    """Return the names of the devices of all processes, each once."""
    found: dict[str, Event] = {}
    for event in case.having("interface.chosen", devices=devices):
        for device in _DEVICE.finditer(event.fields.get("devs", "")):
            found.setdefault(device["name"], event)
    return list(found.items())


def _networks(case: Case) -> Valued:
    found: dict[str, Event] = {}
    for event in case.having("interface.chosen", "iface", "address"):
        address = parse(event.fields.get("address"))
        if address is not None and address.version == 4:
            network = ipaddress.ip_network(f"{address}/{_NETWORK}", strict=False)
            found.setdefault(f"{event.fields['iface']} {network}", event)
    return list(found.items())
