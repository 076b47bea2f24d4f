"""Scan one source: lines in batches through the prefilter, candidates through peeling and matching.

Blocks that span lines (tracebacks, torchelastic reports) go to stateful parsers; text that was hard-wrapped by a
terminal is matched again joined. The result is bounded (``events.Observations``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from nccl_triage.engine import match
from nccl_triage.engine.schema import RuleSet, Signature
from nccl_triage.events import MAX_TEXT, Event, Observations, SourceInfo
from nccl_triage.parsers import STATEFUL, headers, salient, times
from nccl_triage.parsers.series import SeriesReader
from nccl_triage.parsers.streams import PeeledLine, StatefulParser
from nccl_triage.parsers.wrappers import Peeled, WrapperProfile, peel
from nccl_triage.scan import measures
from nccl_triage.scan.prefilter import Kind, Prefilter, candidates, make_prefilter
from nccl_triage.scan.shapes import Group, Part, Place, Shapes
from nccl_triage.scan.unwrap import MAX_PARTS, joined_candidates

#: Lines looked at to learn which ambiguous prefixes a source uses.
SNIFF_LINES = 400
#: Lines per prefilter call, and characters after which a batch is full anyway.
BATCH_LINES = 2000
BATCH_CHARACTERS = 1 << 18
#: Lines at either end of a batch that are looked at only to learn which ranks speak at all.
SPEAKER_LINES = 40
#: Signature of a line that shows nothing but which rank printed it.
SPEAKER = "line.speaker"


class TextLine(Protocol):
    """A decoded line as ``ingest.decode`` yields it."""

    @property
    def number(self) -> int:
        """The 1-based physical line."""
        ...

    @property
    def text(self) -> str:
        """The line without its end."""
        ...


Progress = Callable[[int], None]


class _Line(NamedTuple):
    """A line that was kept."""

    number: int
    text: str


class _Tally:
    """The number of lines of one signature, as something to add to."""

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


class Scanner:
    """Scan sources with one set of rules; the prefilter is built once."""

    def __init__(self, rules: RuleSet) -> None:
        further = {text for parser in STATEFUL for text in parser.OPENERS} | set(salient.LITERALS)
        self._series = SeriesReader(rules.series)
        self._prefilter = make_prefilter(rules.signatures.values(), sorted(further), measures.literals(self._series))

    def scan(self, lines: Iterable[TextLine], info: SourceInfo) -> Observations:
        """Scan one source; ``info`` is completed by whoever yields the lines."""
        run = _SourceScan(self._prefilter, self._series, info)
        for batch in _batches(lines):
            run.take(batch)
        return run.finish()


_last = threading.local()


def scanner_for(rules: RuleSet) -> Scanner:
    """Return a scanner, the same one while the rules of this thread's calls are the same."""
    if getattr(_last, "rules", None) is not rules:
        _last.scanner, _last.rules = Scanner(rules), rules
    made: Scanner = _last.scanner
    return made


def _batches(lines: Iterable[TextLine]) -> Iterator[list[TextLine]]:
    batch: list[TextLine] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line.text)
        if len(batch) >= BATCH_LINES or size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _SourceScan:
    """The state of scanning one source."""

    def __init__(self, prefilter: Prefilter, series: SeriesReader, info: SourceInfo) -> None:
        self._prefilter = prefilter
        self._info = info
        self._profile: WrapperProfile | None = None
        self._parsers: list[StatefulParser] = [parser() for parser in STATEFUL]
        self._salient = salient.SalientLines()
        self._result = Observations()
        self._numbers = measures.Numbers(series, info.path, self._result.curves)
        self._links = measures.Links(info.path, self._result.links)
        self._year: float | None = None
        self._shapes = Shapes(self._outcome, lambda text: prefilter.kinds([text]).get(0))
        # Whether a parser is inside of a block.
        self._open = False
        # What the line at hand added, and whether the next of its kind need only be counted.
        self._parts: list[Part] = []
        self._matched: list[str] = []
        self._settled = True
        # What the lines of the batch at hand match.
        self._seen: set[tuple[str, int]] = set()

    def take(self, batch: Sequence[TextLine]) -> None:
        """Scan one batch of lines."""
        if self._profile is None:
            self._profile = WrapperProfile.sniff(line.text for line in batch[:SNIFF_LINES])
        self._seen.clear()
        texts = [line.text for line in batch]
        kinds = self._prefilter.kinds(texts)
        speakers = {*range(min(SPEAKER_LINES, len(batch))), *range(max(0, len(batch) - SPEAKER_LINES), len(batch))}
        records = [index for index, text in enumerate(texts) if text.startswith("{")]
        following = iter(sorted({*kinds, *speakers, *records}))
        index, wanted = -1, next(following, None)
        while True:
            # A line inside of a block matters whatever it holds.
            index += 1
            if not self._open:
                while wanted is not None and wanted < index:
                    wanted = next(following, None)
                if wanted is None:
                    break
                index = wanted
            elif index >= len(batch):
                break
            self._one(batch[index], kinds.get(index), index in speakers)
        for first, joined, signatures in joined_candidates(texts, self._prefilter, self._profile):
            self._joined(batch[first], joined, signatures)
        if self._shapes.full:
            self._drain()

    def finish(self) -> Observations:
        """Close the parsers and return what was seen."""
        self._drain()
        for parser in self._parsers:
            self._record(parser.finish())
        self._numbers.finish()
        self._result.add_source(self._info)
        return self._result

    def _drain(self) -> None:
        """Read the last lines of those that were only counted."""
        for number, text, kind in self._shapes.drain():
            # Such lines open no block, and a block that is open now was not when they came.
            self._line(_Line(number, text), kind, feed=False)

    def _one(self, line: TextLine, kind: Kind | None, speaks: bool) -> None:
        """Scan a line that may matter, in full only where it may add something new."""
        if self._open or line.text.startswith("{"):
            self._line(line, kind)
        elif kind is None or kind.signatures is None:
            if speaks:
                self._speaker(line)
            if kind is not None and kind.formats is not None and self._numbers.wanted(kind.formats, line.number):
                self._numbers.take(self._peeled(line.text), line.number, kind.formats, advances=False)
        else:
            found = self._shapes.find(line.text, kind)
            if isinstance(found, Group) and not (kind.formats and self._numbers.sampled(kind.formats, line.number)):
                found.take(line.number, line.text, kind)
                self._seen.update([(signature, line.number) for signature in found.signatures])
                return
            self._line(line, kind)
            if isinstance(found, Place) and self._settled:
                self._shapes.keep(found, self._parts, self._matched)

    def _outcome(self, text: str, kind: Kind) -> Hashable | None:
        """Return what a line would add, without the numbers that only its kept events show; None: always read it."""
        if any(opener in text for parser in self._parsers for opener in parser.OPENERS):
            return None
        year = self._year
        peeled = self._peeled(text)
        self._year = year  # the line may be a made-up one
        if peeled.extra or "json" in peeled.wrappers:
            return None
        told: list[Hashable] = [peeled.context.repeated]
        for signature, fields in match.matches(kind.signatures or (), peeled.text, text):
            event = self._event(signature, fields, peeled, 0)
            told.append((signature.id, event.key(signature.keep_by)))
            if signature.id == measures.LINK:
                told.append((self._links.key(fields, peeled.context), fields.get("channel")))
        if kind.formats is not None:
            process = self._numbers.outcome(peeled, kind.formats)
            if process is None:
                return None
            told.append(process)
        return tuple(told)

    def _speaker(self, line: TextLine) -> None:
        """Note who printed a line that nothing else is known about: a rank that never complains is a finding, too."""
        peeled = self._peeled(line.text)
        if peeled.context.rank is not None and peeled.text:
            text = peeled.text[:MAX_TEXT]
            self._result.add(Event(SPEAKER, self._info.path, line.number, text, peeled.context), ())

    def _peeled(self, text: str) -> Peeled:
        peeled = peel(text, self._profile or WrapperProfile())
        self._complete(peeled)
        return peeled

    def _line(self, line: TextLine, kind: Kind | None, feed: bool = True) -> None:
        """Read a line in full."""
        self._parts, self._matched, self._settled = [], [], True
        peeled = self._peeled(line.text)
        if "json" in peeled.wrappers:
            # Escapes inside JSON hide literals from the prefilter.
            kind = self._prefilter.kinds([peeled.text]).get(0)
        signatures, formats = (kind.signatures or (), kind.formats) if kind is not None else ((), None)
        if feed:
            self._feed(PeeledLine(self._info.path, line.number, peeled.text, peeled.context))
        known = advances = False
        for signature, fields in match.matches(signatures, peeled.text, line.text):
            known = True
            advances = advances or signature.role == "progress"
            self._add(signature, fields, peeled, line.number)
        if formats is not None:
            self._numbers.take(peeled, line.number, formats, advances)
        if not known:
            self._unknown(peeled, line.number)
        for extra in peeled.extra:
            inner = Peeled(text=extra, context=peeled.context.copy())
            follow = PeeledLine(self._info.path, line.number, extra, inner.context)
            self._feed(follow)
            for signature, fields in match.matches(candidates(self._prefilter, [extra]).get(0, ()), extra, extra):
                self._add(signature, fields, inner, line.number)

    def _unknown(self, peeled: Peeled, number: int) -> None:
        """Keep a line that no signature knows when it sounds like trouble."""
        folded = self._salient.fresh(peeled.text)
        if folded is not None:
            fields = {"template": folded}
            text = peeled.text[:MAX_TEXT]
            event = Event(salient.SALIENT, self._info.path, number, text, peeled.context, fields=fields)
            self._result.add(event, ("template",))

    def _feed(self, line: PeeledLine) -> None:
        for parser in self._parsers:
            if parser.is_open() or any(opener in line.text for opener in parser.OPENERS):
                self._record(parser.feed(line))
        self._open = any(parser.is_open() for parser in self._parsers)

    def _joined(self, line: TextLine, joined: str, signatures: Sequence[Signature]) -> None:
        peeled = peel(joined, self._profile or WrapperProfile())
        self._complete(peeled)
        for signature, fields in match.matches(signatures, peeled.text, joined):
            own = range(line.number, line.number + MAX_PARTS)
            if not any((signature.id, number) in self._seen for number in own):
                self._add(signature, fields, peeled, line.number)

    def _complete(self, peeled: Peeled) -> None:
        """Fill the context from the file's name and the year seen so far."""
        context, info = peeled.context, self._info
        if context.rank is None and info.rank is not None:
            context.rank = info.rank
        if context.local_rank is None and info.local_rank is not None:
            context.local_rank = info.local_rank
        context.host = context.host or info.host
        if context.pid is None and info.pid is not None:
            context.pid = info.pid
        if context.time is not None:
            if times.has_year(context.time):
                self._year = context.time
            elif self._year is not None:
                context.time = times.with_year_of(context.time, self._year)

    def _event(self, signature: Signature, fields: dict[str, str], peeled: Peeled, number: int) -> Event:
        context = peeled.context  # shared by the events of one line: nobody changes it after this
        if signature.role == "progress" and context.rank is None and context.group_rank is None:
            named = headers.plain_rank(peeled.text) if "ank" in peeled.text else None
            if named is not None:
                context = context.copy()
                context.rank = named
        return Event(
            signature=signature.id,
            source=self._info.path,
            line=number,
            text=peeled.text[:MAX_TEXT],
            context=context,
            role=signature.role,
            fields=fields,
            count=1 + context.repeated,
        )

    def _add(self, signature: Signature, fields: dict[str, str], peeled: Peeled, number: int) -> None:
        if signature.id == measures.LINK:
            before = self._links.count
            self._links.take(fields, peeled.context, number)
            self._parts.append(Part(self._links, self._links.count - before))
        self._matched.append(signature.id)
        self._seen.add((signature.id, number))
        event = self._event(signature, fields, peeled, number)
        bucket = self._result.add(event, signature.keep_by)
        self._parts.append(Part(_Tally(self._result.counts, signature.id), event.count))
        if bucket is not None:
            self._parts.append(Part(bucket, event.count))
            self._settled = self._settled and bucket.full

    def _record(self, events: Iterable[Event]) -> None:
        for event in events:
            self._result.add(event, ("type",) if event.signature == "python.traceback" else ())
