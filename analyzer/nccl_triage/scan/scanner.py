"""Scan one source: lines in batches through the prefilter, candidates through peeling and matching.

Blocks that span lines (tracebacks, torchelastic reports) go to stateful parsers; text that was hard-wrapped by a
terminal is matched again joined. The result is bounded (``events.Observations``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from nccl_triage.engine import match
from nccl_triage.engine.schema import RuleSet, Signature
from nccl_triage.events import MAX_TEXT, Event, Observations, SourceInfo
from nccl_triage.parsers import STATEFUL, headers, salient, times
from nccl_triage.parsers.series import SeriesReader
from nccl_triage.parsers.streams import PeeledLine, StatefulParser
from nccl_triage.parsers.wrappers import Peeled, WrapperProfile, peel
from nccl_triage.scan import measures
from nccl_triage.scan.prefilter import Prefilter, make_prefilter
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

    def take(self, batch: Sequence[TextLine]) -> None:
        """Scan one batch of lines."""
        if self._profile is None:
            self._profile = WrapperProfile.sniff(line.text for line in batch[:SNIFF_LINES])
        texts = [line.text for line in batch]
        candidates, measured = self._prefilter.search(texts)
        for index, line in enumerate(batch):
            signatures, formats = candidates.get(index), measured.get(index)
            if signatures is None and not line.text.startswith("{") and not self._block_open():
                if index < SPEAKER_LINES or index >= len(batch) - SPEAKER_LINES:
                    self._speaker(line)
                if formats is not None and self._numbers.wanted(formats, line.number):
                    self._numbers.take(self._peeled(line), line.number, formats, advances=False)
                continue
            self._line(line, signatures or [], formats)
        for first, joined, signatures in joined_candidates(texts, self._prefilter, self._profile):
            self._joined(batch[first], joined, signatures)

    def finish(self) -> Observations:
        """Close the parsers and return what was seen."""
        for parser in self._parsers:
            self._record(parser.finish())
        self._numbers.finish()
        self._result.add_source(self._info)
        return self._result

    def _block_open(self) -> bool:
        return any(parser.is_open() for parser in self._parsers)

    def _speaker(self, line: TextLine) -> None:
        """Note who printed a line that nothing else is known about: a rank that never complains is a finding, too."""
        peeled = self._peeled(line)
        if peeled.context.rank is not None and peeled.text:
            text = peeled.text[:MAX_TEXT]
            self._result.add(Event(SPEAKER, self._info.path, line.number, text, peeled.context), ())

    def _peeled(self, line: TextLine) -> Peeled:
        peeled = peel(line.text, self._profile or WrapperProfile())
        self._complete(peeled)
        return peeled

    def _line(self, line: TextLine, signatures: list[Signature], formats: tuple[str, ...] | None) -> None:
        peeled = self._peeled(line)
        if "json" in peeled.wrappers:
            # Escapes inside JSON hide literals from the prefilter.
            inside, measured = self._prefilter.search([peeled.text])
            signatures, formats = inside.get(0, []), measured.get(0)
        parsed = PeeledLine(self._info.path, line.number, peeled.text, peeled.context)
        self._feed(parsed)
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
            for signature, fields in match.matches(self._prefilter.candidates([extra]).get(0, []), extra, extra):
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

    def _joined(self, line: TextLine, joined: str, signatures: list[Signature]) -> None:
        peeled = peel(joined, self._profile or WrapperProfile())
        self._complete(peeled)
        for signature, fields in match.matches(signatures, peeled.text, joined):
            own = range(line.number, line.number + MAX_PARTS)
            if not any(e.line in own for e in self._result.events(signature.id)):
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

    def _add(self, signature: Signature, fields: dict[str, str], peeled: Peeled, number: int) -> None:
        context = peeled.context  # shared by the events of one line: nobody changes it after this
        if signature.id == measures.LINK:
            self._links.take(fields, context, number)
        if signature.role == "progress" and context.rank is None and context.group_rank is None:
            named = headers.plain_rank(peeled.text) if "ank" in peeled.text else None
            if named is not None:
                context = context.copy()
                context.rank = named
        event = Event(
            signature=signature.id,
            source=self._info.path,
            line=number,
            text=peeled.text[:MAX_TEXT],
            context=context,
            role=signature.role,
            fields=fields,
            count=1 + context.repeated,
        )
        self._result.add(event, signature.keep_by)

    def _record(self, events: Iterable[Event]) -> None:
        for event in events:
            self._result.add(event, ("type",) if event.signature == "python.traceback" else ())
