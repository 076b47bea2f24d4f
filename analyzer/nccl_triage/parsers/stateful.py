"""What stateful parsers share: a line with its place, and the key of the process that printed it."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.kinds import Produced

StreamKey = tuple[object, ...]
#: Lines of a source without one of the block's stream after which the block has ended: a process that died in the middle
#: of a traceback says no more, and while a block is open every line is read. Lines of thousands of ranks that print at
#: once are not that far apart.
SILENCE = 20_000
#: The same for a block that is complete, and to which only more of the same could be added.
SILENCE_AFTER = 2_000


class PeeledLine(NamedTuple):
    """One line ready for parsing."""

    source: str
    number: int
    text: str
    context: Context

    def key(self) -> StreamKey:
        """Return which stream of which process the line belongs to; lines without any identity share one."""
        context = self.context
        return (
            context.rank,
            context.local_rank,
            context.host,
            context.place,
            context.writer,
            context.address,
            context.pid if context.program != "nccl" else None,
            context.actor,
        )


class StatefulParser(Protocol):
    """A parser of blocks that span lines and interleave between processes."""

    #: Signature ids that the parser makes, with their meaning.
    PRODUCES: ClassVar[dict[str, Produced]]
    #: Literals that open a block: a line with one of them is always fed.
    OPENERS: ClassVar[tuple[str, ...]]
    #: Fields that keep events of one process apart.
    KEEP_BY: ClassVar[tuple[str, ...]]

    def feed(self, line: PeeledLine) -> list[Event]:
        """Take one line and return the events that it completes."""
        ...

    def is_open(self) -> bool:
        """Tell whether a block is open, so that following lines must be fed too."""
        ...

    def give_up(self, number: int) -> list[Event]:
        """Close the blocks whose streams have said nothing for long when this line comes; return their events.

        A line of such a stream finds no block open whether this was called or not.
        """
        ...

    def finish(self) -> list[Event]:
        """Close what is open and return the last events."""
        ...
