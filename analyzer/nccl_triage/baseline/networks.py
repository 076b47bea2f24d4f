"""Interfaces, adapters, networks and plugins that NCCL chose."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from nccl_triage.baseline.model import Difference
from nccl_triage.baseline.values import Valued, changed, of_field
from nccl_triage.diagnosis.addresses import parse
from nccl_triage.diagnosis.case import Case
from nccl_triage.events import Event
from nccl_triage.patterns import lazily

#: ``[0]eth0:10.0.0.1<0> [1]mlx5_0:1/IB``: name, and address where there is one.
_DEVICE = lazily(r"\[\d+\](?P<name>[\w.@-]+)(?::(?P<address>[0-9a-fA-F.:]+)<\d+>)?")
#: Bits of an address that stay from run to run within one network.
_NETWORK = 16
_PLUGINS = ("nccl.net_plugin_loaded", "nccl.net_plugin_initialized")


def compare(good: Case, bad: Case) -> Iterator[Difference]:
    """Yield other interfaces, adapters, networks and plugins; addresses within one network are alike."""
    for name, signature in (("sockets", "nccl.net_socket_using"), ("adapters", "nccl.net_ib_using")):
        yield from changed("interface", name, _devices(good, signature), _devices(bad, signature))
    for name, signatures in (
        ("bootstrap", ("nccl.bootstrap_using", "nccl.net_using_interface")),
        ("out-of-band", ("nccl.net_ib_using",)),
    ):
        differs = list(
            changed("interface", name, of_field(good, "iface", *signatures), of_field(bad, "iface", *signatures))
        )
        yield from differs
        if not differs and name == "bootstrap":
            yield from changed("interface", "subnet", _networks(good), _networks(bad))
    yield from changed(
        "interface",
        "network",
        of_field(good, "name", "nccl.using_network"),
        of_field(bad, "name", "nccl.using_network"),
    )
    yield from changed("interface", "plugin", of_field(good, "name", *_PLUGINS), of_field(bad, "name", *_PLUGINS))


def _devices(case: Case, signature: str) -> Valued:
    """Return the names of the devices of all processes, each once."""
    found: dict[str, Event] = {}
    for event in case.of(signature):
        for device in _DEVICE.finditer(event.fields.get("devs", "")):
            found.setdefault(device["name"], event)
    return list(found.items())


def _networks(case: Case) -> Valued:
    found: dict[str, Event] = {}
    for event in case.of("nccl.bootstrap_using"):
        address = parse(event.fields.get("address"))
        if address is not None and address.version == 4:
            network = ipaddress.ip_network(f"{address}/{_NETWORK}", strict=False)
            found.setdefault(f"{event.fields['iface']} {network}", event)
    return list(found.items())
