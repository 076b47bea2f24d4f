"""The connections between ranks that NCCL prints while it connects its channels, in bounded space and mergeable.

Source: NCCL ``src/transport/{p2p,shm,net}.cc``, ``Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM`` and
``Channel 02/0 : 7[7] -> 8[0] [send] via NET/IB/3/GDRDMA``. The ranks are those of the communicator, the numbers in
brackets devices (bus ids in older versions). Of more than ``MAX_LINKS`` connections those with the smallest marks are
kept. A mark depends on the connection alone, so merged parts of a log give what the whole log gives.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

#: Connections kept, and channel numbers told apart (NCCL has at most 64).
MAX_LINKS, MAX_CHANNEL = 20_000, 127
#: Connections of all sources behind which no line is looked for because it may name another one.
ENOUGH = 1_000
NOT_KNOWN = -1


class ChannelLink(NamedTuple):
    """A connection as one process printed it; ranks within the communicator. ``size`` is its number of ranks, or -1."""

    host: str
    pid: int
    source_rank: int
    source_device: str
    target_rank: int
    target_device: str
    receives: bool
    via: str
    direct: bool
    size: int

    @property
    def printer(self) -> int:
        """The rank that printed the line: the receiver of a ``[receive]`` line, otherwise the sender."""
        return self.target_rank if self.receives else self.source_rank

    @property
    def printer_device(self) -> str:
        """The device of the rank that printed the line."""
        return self.target_device if self.receives else self.source_device


@dataclass(slots=True)
class LinkSighting:
    """Where a connection was printed first, and its channels as bits of a number."""

    place: tuple[str, int]
    channels: int = 0


def transport(name: str, detail: str) -> tuple[str, bool]:
    """Return the transport in a few words (P2P, SHM, NET/IB, NET/Socket ..) and whether the GPU's memory is read directly."""
    if name in ("SHM", "direct shared memory"):
        return "SHM", False
    if name == "NET":
        network = detail.split("/", 1)[0][:24].strip()
        return (f"NET/{network}" if network and not network.isdigit() else "NET"), "GDRDMA" in detail
    return name, False


def _size(detail: str) -> int:
    """Return the number of ranks that some lines name: ``direct pointer comm 0x55aa nRanks 08``."""
    _, found, number = detail.rpartition(" nRanks ")
    return int(number) if found and number.isdigit() and len(number) < 8 else NOT_KNOWN


def read(fields: Mapping[str, str], host: str | None, pid: int | None) -> ChannelLink | None:
    """Return the connection that the fields of ``nccl.channel_via_net`` name; None when they are absurd."""
    source, target = fields["src"], fields["dst"]
    if max(len(source), len(target)) > 7:
        return None
    detail = fields.get("detail", "")
    via, direct = transport(fields["transport"], detail)
    return ChannelLink(
        host=host or "",
        pid=NOT_KNOWN if pid is None else pid,
        source_rank=int(source),
        source_device=fields.get("src_dev", ""),
        target_rank=int(target),
        target_device=fields.get("dst_dev", ""),
        receives=fields.get("dir") == "receive",
        via=via,
        direct=direct,
        size=_size(detail),
    )


@lru_cache(maxsize=1024)
def channel_bit(channel: str) -> int:
    """Return the bit of a channel's number; all beyond ``MAX_CHANNEL`` share one."""
    return 1 << (min(int(channel), MAX_CHANNEL) if len(channel) < 7 else MAX_CHANNEL)


def _mark(link: ChannelLink) -> int:
    return zlib.crc32(repr(tuple(link)).encode("utf-8", "surrogatepass"))


@dataclass(slots=True)
class LinkTable:
    """All connections, bounded."""

    links: dict[ChannelLink, LinkSighting] = field(default_factory=dict)
    #: Lines read, whether their connection is kept or not.
    lines: int = 0
    #: Connections were left out because there were more than ``MAX_LINKS``.
    cut: bool = False
    #: How many connections are looked for; more are taken where their lines are read.
    wanted: int = field(default=MAX_LINKS, compare=False, repr=False)

    def seen(self, link: ChannelLink, source: str, line: int) -> LinkSighting:
        """Return the sighting of a connection, and note the line if it is the first."""
        seen = self.links.get(link)
        if seen is None:
            seen = self.links[link] = LinkSighting((source, line))
            self._thin(MAX_LINKS // 2)
        elif (source, line) < seen.place:
            seen.place = (source, line)
        return seen

    def add(self, link: ChannelLink, channel: str, source: str, line: int) -> None:
        """Take one line; ``channel`` is the number that it prints."""
        self.lines += 1
        self.seen(link, source, line).channels |= channel_bit(channel)

    def absorb(self, other: LinkTable) -> None:
        """Take over the connections of another part; associative and commutative."""
        self.lines += other.lines
        self.cut = self.cut or other.cut
        for link, theirs in other.links.items():
            mine = self.links.get(link)
            if mine is None:
                self.links[link] = LinkSighting(theirs.place, theirs.channels)
            else:
                mine.channels |= theirs.channels
                mine.place = min(mine.place, theirs.place)
        self._thin(0)

    def kept(self) -> dict[ChannelLink, LinkSighting]:
        """Return the connections, at most ``MAX_LINKS``."""
        self._thin(0)
        return self.links

    def _thin(self, slack: int) -> None:
        """Keep the connections with the smallest marks; one that was pushed out never comes back."""
        if len(self.links) > MAX_LINKS + slack:
            self.cut = True
            kept = sorted(self.links, key=lambda link: (_mark(link), link))[:MAX_LINKS]
            self.links = {link: self.links[link] for link in kept}
