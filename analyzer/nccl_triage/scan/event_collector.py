"""Turn what was read of a line into events and keep them. This is the last stage of a line's way through the scan."""

from __future__ import annotations

import copy
from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from operator import attrgetter
from typing import NamedTuple, Protocol

from nccl_triage.engine.schema import Signature
from nccl_triage.observations.event import MAX_TEXT, Context, Event
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.parsers import STATEFUL, counters, unknown_errors
from nccl_triage.parsers.stateful import PeeledLine, StatefulParser
from nccl_triage.parsers.wrappers import Peeled
from nccl_triage.scan.line_parser import LineParser
from nccl_triage.scan.measurements import LINK, LinkCollector

#: Signature of a line that shows nothing but which rank printed it.
SPEAKER = "line.speaker"
#: Lines between two checks whether the stream of an open block has fallen silent.
PATIENCE = 200
#: Different contexts and fields remembered. Then all are forgotten: later lines are most like the latest ones.
MAX_SHARED = 1 << 16

_values = attrgetter(*(one.name for one in fields_of(Context)))


class SharedValues:
    """The contexts and fields of one source's events; equal ones are kept once. Nobody changes an event once it is made."""

    def __init__(self) -> None:
        self._contexts: dict[Hashable, Context] = {}
        self._fields: dict[Hashable, dict[str, str]] = {}

    def context(self, context: Context) -> Context:
        """Return the first context that equals this one."""
        if len(self._contexts) >= MAX_SHARED:
            self._contexts.clear()
        return self._contexts.setdefault(_values(context), context)

    def fields(self, fields: dict[str, str]) -> dict[str, str]:
        """Return the first fields that equal these."""
        if len(self._fields) >= MAX_SHARED:
            self._fields.clear()
        return self._fields.setdefault((*fields, *fields.values()), fields)


class Counted(Protocol):
    """Something that counts lines: a bucket of events, a table."""

    count: int


class Addition(NamedTuple):
    """A number that one line adds to a counter."""

    counter: Counted
    number: int


@dataclass(slots=True)
class Additions:
    """What one line added to which counters, and the signatures that it matched."""

    parts: list[Addition] = field(default_factory=list)
    matched: list[str] = field(default_factory=list)
    #: Whether the next line like it need only be counted; whether the buckets of all its events are full.
    settled: bool = True
    full: bool = True


class _SignatureCount:
    """The count of one signature in the observations, as a counter."""

    __slots__ = ("_counts", "_signature")

    def __init__(self, counts: dict[str, int], signature: str) -> None:
        self._counts, self._signature = counts, signature

    @property
    def count(self) -> int:
        """Lines so far."""
        return self._counts.get(self._signature, 0)

    @count.setter
    def count(self, number: int) -> None:
        self._counts[self._signature] = number


class EventCollector:
    """Collects the events of one source, those of blocks that span lines among them."""

    def __init__(self, info: SourceInfo, result: Observations, parser: LineParser) -> None:
        self.result = result
        #: Whether a parser is inside of a block that spans lines.
        self.open = False
        #: Whether of context and progress one line of each kind will do.
        self.brief = False
        #: Lines so far that told something new: of a process, or of a kind.
        self.news = 0
        #: Kinds of faults so far, and those of them that are not usual in sources like this one.
        self.faults = self.surprises = 0
        self.usual: Container[str] = ()
        #: What the lines of a paste match; of others nobody asks.
        self.seen: set[tuple[str, int]] | None = None
        self._info = info
        self._parser = parser
        self._links = LinkCollector(info.path, result.links)
        self._blocks: list[StatefulParser] = [parser() for parser in STATEFUL]
        #: The line at which the next check for silent streams is due.
        self._patience = PATIENCE
        self._unknown = unknown_errors.UnknownErrors()
        self._shared = SharedValues()
        self._counts: dict[str, _SignatureCount] = {}

    def go_on_from(self, other: EventCollector) -> None:
        """Take over the open blocks and the known templates of another collector."""
        self.open, self._patience = other.open, other._patience
        self._blocks, self._unknown = copy.deepcopy(other._blocks), copy.deepcopy(other._unknown)

    @property
    def heard_enough(self) -> bool:
        """Whether no further line is kept that only sounds like trouble (``LineKind.sounds``)."""
        return self._unknown.full

    def feed(self, number: int, text: str, context: Context) -> None:
        """Give a line to the parsers of blocks that span lines."""
        line = PeeledLine(self._info.path, number, text, context)
        if number >= self._patience:
            self._patience = number + PATIENCE
            for parser in self._blocks:
                self._keep(parser, parser.give_up(number))
        for parser in self._blocks:
            if parser.is_open() or any(map(text.__contains__, parser.OPENERS)):
                self._keep(parser, parser.feed(line))
        self.open = any(parser.is_open() for parser in self._blocks)

    def close_blocks(self) -> None:
        """Close the blocks that are open at the end, and keep their events."""
        for parser in self._blocks:
            self._keep(parser, parser.finish())

    def _keep(self, parser: StatefulParser, events: Iterable[Event]) -> None:
        for event in events:
            self.result.add(event, parser.KEEP_BY)
            self.news += 1

    def add(
        self, signature: Signature, fields: dict[str, str], peeled: Peeled, number: int, additions: Additions
    ) -> None:
        """Keep the event of a signature that a line matches, and note in ``additions`` what it adds."""
        if signature.id == LINK:
            before = self._links.count
            self.news += self._links.take(fields, peeled.context, number)
            additions.parts.append(Addition(self._links, self._links.count - before))
        additions.matched.append(signature.id)
        if self.seen is not None:
            self.seen.add((signature.id, number))
        told = {**signature.sets, **fields} if signature.sets else fields
        event = self._parser.event(signature, self._shared.fields(told), peeled, number)
        event.context = self._shared.context(event.context)
        if event.is_failure and not self.result.has(signature.id):
            self.faults += 1
            self.surprises += signature.id not in self.usual
        bucket = self.result.add(event, signature.keep_by)
        additions.parts.append(Addition(self._count_of(signature.id), event.count))
        if bucket is not None:
            additions.parts.append(Addition(bucket, event.count))
            additions.full = additions.full and bucket.full
            additions.settled = additions.settled and (bucket.full or (self.brief and not event.is_failure))
            self.news += bucket.count == event.count

    def _count_of(self, signature: str) -> _SignatureCount:
        known = self._counts.get(signature)
        if known is None:
            known = self._counts[signature] = _SignatureCount(self.result.counts, signature)
        return known

    def add_unknown(self, peeled: Peeled, number: int) -> None:
        """Keep a line that no signature knows if it sounds like trouble and its template is new."""
        folded = self._unknown.fresh(peeled.text)
        if folded is not None:
            fields = {"template": folded}
            text = peeled.text[:MAX_TEXT]
            event = Event(unknown_errors.SALIENT, self._info.path, number, text, peeled.context, fields=fields)
            self.result.add(event, ("template",))
            self.news += 1

    def add_speaker(self, number: int, text: str) -> None:
        """Keep who printed a line that says nothing else: that a rank never complains is a finding, too."""
        peeled = self._parser.peel(text)
        if peeled.context.rank is not None and peeled.text:
            self.result.add(Event(SPEAKER, self._info.path, number, peeled.text[:MAX_TEXT], peeled.context), ())

    def add_counters(self, numbers: Sequence[int], texts: Sequence[str], certain: bool = False) -> bool:
        """Keep the lines of the counter that advanced last among the last lines of the source; returns whether there is one.

        ``certain``: lines before these do not matter (``counters.advancing``).
        """
        found = counters.advancing(texts, certain)
        for count in found:
            peeled = self._parser.peel(texts[count.index])
            fields = {"name": count.name, "step": str(count.value)}
            if count.total is not None:
                fields["total"] = str(count.total)
            text, number = peeled.text[:MAX_TEXT], numbers[count.index]
            kind = "progress.bar" if count.name == counters.ITEM else "step"
            event = Event(
                counters.COUNTER, self._info.path, number, text, peeled.context, "progress", fields, kind=kind
            )
            self.result.add(event, ())
        return bool(found)
