"""The network and the links that NCCL took in a run, as its own log tells: read by the parsers of the user's logs."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import InputError
from nccl_triage.lazy_regex import lazily

if TYPE_CHECKING:
    from nccl_triage.observations.event import Event
    from nccl_triage.observations.store import Observations

#: NCCL's own logs among the files of a run.
LOGS = "rank-*.nccl.log"
#: ``[0]eth0:10.0.0.1<0> [1]eth1:..`` and ``[0]mlx5_0:1/IB [1]mlx5_1:1/RoCE``: a number, a name, an adapter's port.
_DEVICE = lazily(r"\[(\d{1,3})\]([\w.@+-]{1,60})(?::(\d{1,3})\b)?")
#: ``IB/3/GDRDMA``, ``Socket/1``: the number of the device.
_NUMBER = lazily(r"^[^/]+/(\d{1,3})(?:/|$)")
#: Links listed in a document.
_LISTED = 12


@dataclass(slots=True)
class Transport:
    """What NCCL took: the names of its networks, the devices of each rank, and the links between ranks.

    ``devices`` are interfaces (``eth0``) and ports of adapters (``mlx5_0:1``) by rank, kind (sockets, adapters) and number,
    ``used`` the numbers that a rank's links name. A link is (from, to, via): ``P2P``, ``SHM``, ``NET/IB``. ``gpudirect``: some network read GPU memory.
    """

    networks: tuple[str, ...] = ()
    devices: dict[int, dict[str, dict[int, str]]] = field(default_factory=dict)
    used: dict[int, set[int]] = field(default_factory=dict)
    links: frozenset[tuple[int, int, str]] = frozenset()
    gpudirect: bool = False

    def of(self, ranks: Iterable[int]) -> tuple[str, ...]:
        """Return the devices that some ranks use together: those that their links name, else all that NCCL found."""
        kind = "sockets" if "Socket" in self.networks else "adapters"
        found = {rank: self.devices.get(rank, {}).get(kind, {}) for rank in ranks}
        named = {found[rank][number] for rank in found for number in self.used.get(rank, ()) if number in found[rank]}
        return tuple(sorted(named or {name for listed in found.values() for name in listed.values()}))

    def via(self, places: Mapping[int, int], *, inside: bool) -> frozenset[str]:
        """Return the kinds of links inside hosts, or between them; ``places`` are the hosts of the ranks."""
        known = [link for link in self.links if link[0] in places and link[1] in places]
        return frozenset(via for one, two, via in known if (places[one] == places[two]) is inside)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a document has it."""
        counts = Counter(via for _, _, via in self.links)
        return {
            "networks": list(self.networks),
            "devices": list(self.of(self.devices)),
            "links": dict(counts.most_common(_LISTED)),
            "gpudirect": self.gpudirect,
        }


def read(folder: Path, rules: RuleSet) -> Transport | None:
    """Return what the logs of NCCL in a run's folder tell, or None when there are none or they tell nothing."""
    logs = sorted(str(path) for path in folder.glob(LOGS))
    if not logs:
        return None
    from nccl_triage.execution import engines

    with contextlib.suppress(InputError), engines.LocalEngine(1) as engine:
        return of_observations(engine.scan(logs, rules, None))
    return None


def of_observations(seen: Observations) -> Transport | None:
    """Return what some observations tell of the transport, or None for nothing."""
    found = Transport()
    networks: Counter[str] = Counter()
    for event in seen.kept():
        if event.kind == "interface.chosen" and "devs" in event.fields:
            _devices(event, found)
        elif event.fields.get("chosen") == "network":
            networks[event.fields["name"]] += 1
        elif event.fields.get("transport") == "NET" and event.context.rank is not None:
            number = _NUMBER.match(event.fields.get("detail", ""))
            if number is not None:
                found.used.setdefault(event.context.rank, set()).add(int(number[1]))
    kept = seen.links.kept()
    found.networks = tuple(name for name, _ in networks.most_common())
    found.links = frozenset((link.source_rank, link.target_rank, link.via) for link in kept)
    found.gpudirect = any(link.direct for link in kept)
    return found if found.networks or found.links else None


def _devices(event: Event, found: Transport) -> None:
    rank = event.context.rank
    if rank is None:
        return
    kind = "sockets" if event.fields.get("devices") == "sockets" else "adapters"
    listed = found.devices.setdefault(rank, {}).setdefault(kind, {})
    for number, name, port in _DEVICE.findall(event.fields["devs"]):
        listed[int(number)] = f"{name}:{port}" if port and kind == "adapters" else name
