r"""Compare the tables of CUDA's p2pBandwidthLatencyTest: with P2P between two GPUs and without.

Format: ``p2pBandwidthLatencyTest.cu`` of the CUDA samples, all releases: a title, a head ``D\\D  0  1`` and a row a GPU.
Direct transfers that are slower than copies through the host's memory are redirected (IOMMU, ACS) or broken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.observations.kinds import Produced
from nccl_triage.parsers.stateful import SILENCE_AFTER, PeeledLine, StreamKey

_TITLE = lazily(r"^\s{0,4}(?P<way>Uni|Bi)directional P2P=(?P<state>Disabled|Enabled) Bandwidth\b")
_HEAD = lazily(r"^\s{0,8}D\\D(?:\s+\d{1,3}){1,64}\s*$")
_ROW = lazily(r"^\s{0,8}(?P<gpu>\d{1,3})(?P<cells>(?:\s+\d{1,6}\.\d{1,3}){2,64})\s*$")
#: With P2P this share of the speed without it, or less, is no noise.
SLOW = 0.5
#: Tables remembered; the test runs in one process, seldom on several hosts. More are passed over.
MAX_TABLES = 256


@dataclass(slots=True)
class _Table:
    way: str
    enabled: bool
    #: Its last line.
    heard: int


class P2pTestParser:
    """See the module; one instance per source."""

    PRODUCES: ClassVar[dict[str, Produced]] = {
        "nccl.p2p_test_slow": Produced(
            "measurement",
            "CUDA's p2pBandwidthLatencyTest: between two GPUs direct transfers are far slower than "
            "copies through the host's memory.",
            ("gpu", "peer", "value", "without"),
        )
    }
    OPENERS: ClassVar[tuple[str, ...]] = ("P2P=Disabled Bandwidth", "P2P=Enabled Bandwidth")
    KEEP_BY: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._open: dict[StreamKey, _Table] = {}
        self._without: dict[tuple[StreamKey, str], dict[int, list[float]]] = {}
        self._told: set[tuple[StreamKey, str]] = set()

    def is_open(self) -> bool:
        """See ``StatefulParser``."""
        return bool(self._open)

    def feed(self, line: PeeledLine) -> list[Event]:
        """See ``StatefulParser``."""
        key = line.key()
        title = _TITLE.match(line.text)
        if title is not None:
            if (key, title["way"]) not in self._without and max(len(self._without), len(self._open)) >= MAX_TABLES:
                return []
            opened = self._open[key] = _Table(title["way"], title["state"] == "Enabled", line.number)
            if not opened.enabled:
                self._without[key, opened.way] = {}
                self._told.discard((key, opened.way))
            return []
        table = self._open.get(key)
        if table is None:
            return []
        if line.number - table.heard > SILENCE_AFTER:
            self._open.pop(key)
            return []
        table.heard = line.number
        row = _ROW.match(line.text)
        if row is None:
            if not _HEAD.match(line.text):
                self._open.pop(key)
            return []
        gpu, cells = int(row["gpu"]), [float(cell) for cell in row["cells"].split()]
        if not table.enabled:
            self._without.setdefault((key, table.way), {})[gpu] = cells
            return []
        return self._compare(line, table, gpu, cells)

    def give_up(self, number: int) -> list[Event]:
        """See ``StatefulParser``."""
        self._open = {key: table for key, table in self._open.items() if number - table.heard <= SILENCE_AFTER}
        return []

    def finish(self) -> list[Event]:
        """See ``StatefulParser``."""
        self._open.clear()
        return []

    def _compare(self, line: PeeledLine, table: _Table, gpu: int, cells: list[float]) -> list[Event]:
        """Return an event for the first row of a table with a slow pair, about its slowest."""
        key = line.key()
        before = self._without.get((key, table.way), {}).get(gpu, [])
        pairs = [
            (with_p2p / without, peer, with_p2p, without)
            for peer, (with_p2p, without) in enumerate(zip(cells, before, strict=False))
            if peer != gpu and without > 0
        ]
        if not pairs or min(pairs)[0] > SLOW or (key, table.way) in self._told:
            return []
        self._told.add((key, table.way))
        _, peer, with_p2p, without = min(pairs)
        return [
            Event(
                signature="nccl.p2p_test_slow",
                source=line.source,
                line=line.number,
                end_line=line.number,
                text=line.text.strip(),
                context=line.context.copy(),
                role="root",
                fields={"gpu": str(gpu), "peer": str(peer), "value": str(with_p2p), "without": str(without)},
            )
        ]
