"""What one line adds: its signatures, the block it belongs to, its numbers; in full or, where it repeats, counted."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from nccl_triage.engine import match
from nccl_triage.engine.schema import Signature
from nccl_triage.observations.event import MAX_TEXT, Event
from nccl_triage.observations.store import KEEP_LAST, Observations, SourceInfo
from nccl_triage.parsers import STATEFUL, counters, headers, templates, times, unknown_errors
from nccl_triage.parsers.series import SeriesReader
from nccl_triage.parsers.stateful import PeeledLine, StatefulParser
from nccl_triage.parsers.wrappers import Peeled, WrapperProfile, peel
from nccl_triage.scan import measurements, records
from nccl_triage.scan.learned_fields import FieldPositions, Match, Reading
from nccl_triage.scan.learned_shapes import LearnedShapesBySource
from nccl_triage.scan.prefilter import LineKind, Prefilter, candidates
from nccl_triage.scan.shapes import Group, Part, Shapes, Told
from nccl_triage.scan.sharing import Shared
from nccl_triage.scan.terminal_wrap import MAX_PARTS

#: Signature of a line that shows nothing but which rank printed it.
SPEAKER = "line.speaker"
#: Lines inside of blocks after which the streams are looked for that have fallen silent.
PATIENCE = 200


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


class LineScan:
    """The state of scanning the lines of one source."""

    def __init__(
        self,
        prefilter: Prefilter,
        series: SeriesReader,
        info: SourceInfo,
        result: Observations | None = None,
        lores: LearnedShapesBySource | None = None,
    ) -> None:
        self.result = result if result is not None else Observations()
        #: Whether a parser is inside of a block.
        self.open = False
        #: Whether of context and progress one line of each kind will do.
        self.brief = False
        #: Lines so far that told something new: of a process, or of a kind; and kinds of faults so far.
        self.gains = self.faults = 0
        self._prefilter = prefilter
        self._series = series
        self._info = info
        self._counts = True
        self._parsers: list[StatefulParser] = [parser() for parser in STATEFUL]
        #: The line from which on it is asked again whether their blocks have ended in silence.
        self._patience = PATIENCE
        self._salient = unknown_errors.UnknownErrors()
        self._numbers = measurements.Numbers(series, info.path, self.result.curves)
        self._links = measurements.Links(info.path, self.result.links)
        self._year: float | None = None
        self._shared = Shared()
        self._tallies: dict[str, _Tally] = {}
        #: What was learnt about lines that differ in numbers only.
        self.shapes = Shapes(self._outcome, self._reading, prefilter)
        self._lores = LearnedShapesBySource() if lores is None else lores
        self.profile = WrapperProfile()
        # What the line at hand added, whether its buckets are full, and whether the next of its kind need only be counted.
        self._parts: list[Part] = []
        self._matched: list[str] = []
        self._settled = self._full = True
        # What the lines of a paste match; of others nobody asks.
        self._seen: set[tuple[str, int]] | None = None

    @property
    def profile(self) -> WrapperProfile:
        """The prefixes of this source, once its first lines are known."""
        return self._profile

    @profile.setter
    def profile(self, profile: WrapperProfile) -> None:
        self._profile = profile
        self.shapes.lore = self._lores.of(profile)

    def begin(self, paste: bool = False) -> None:
        """Begin a batch; of a ``paste`` it is remembered what its lines match, for ``join``."""
        self._seen = set() if paste else None
        if self.shapes.full:
            self._drain()

    def finish(self) -> None:
        """Read what was only counted, and close the parsers."""
        self.settle()
        for parser in self._parsers:
            self._record(parser, parser.finish())

    def settle(self) -> None:
        """Read what was only counted, so that the result holds every line so far but those of open blocks."""
        self._drain()
        self._numbers.finish()

    def ahead(self, result: Observations) -> LineScan:
        """Return a scan that goes on from here into another result, and reads every line in full."""
        other = LineScan(self._prefilter, self._series, self._info, result)
        other.open, other.profile, other._year, other._counts = self.open, self.profile, self._year, False
        other._patience = self._patience
        other._parsers, other._salient = copy.deepcopy(self._parsers), copy.deepcopy(self._salient)
        return other

    def unfinished(self) -> Observations:
        """Return what the blocks that are open would tell if nothing came any more; they stay open."""
        other = self.ahead(Observations())
        other.finish()
        return other.result

    def _drain(self) -> None:
        """Read the last lines of those that were only counted."""
        waiting = [(number, raw.decode("utf-8", "replace"), recipe) for (number, raw), recipe in self.shapes.drain()]
        kinds = self._prefilter.kinds([text for _, text, _ in waiting])
        for index, (number, text, recipe) in enumerate(waiting):
            # Such lines open no block, and a block that is open now was not when they came.
            self._line(number, text, kinds.get(index), feed=False, recipe=recipe)

    def take(self, number: int, text: str, kind: LineKind | None, speaks: bool = False) -> None:
        """Scan a line that may matter, in full only where it may add something new."""
        raw = text.encode("utf-8", "surrogatepass") if kind is not None or text.startswith(records.STARTS) else b""
        if self.open or records.hides(raw):
            self._line(number, text, kind)
            return
        matched: Sequence[str] = ()
        if kind is not None:
            group = self.count(number, raw)
            matched = self._candidate(number, raw, text, kind) if group is None else group.signatures
            if group is not None and self._seen is not None:
                self._seen.update([(signature, number) for signature in matched])
        # A line that holds literals of signatures and matches none may still tell who speaks.
        if speaks and not matched:
            self._speaker(number, text)

    def meet(self, number: int, raw: bytes, text: str) -> None:
        """Scan a line (``text`` of ``raw``) that ``count`` left."""
        if self.open or records.hides(raw):
            self._line(number, text, self._prefilter.kinds([text]).get(0))
            return
        if self._salient.full and not self.shapes.knows(raw):
            # A line of which is only known that it sounds like trouble tells nothing any more.
            kind = self._prefilter.kinds([text]).get(0)
            if kind is not None and kind.sounds:
                return
        else:
            kind = self.shapes.kind(raw, text)
        if kind is not None:
            self._candidate(number, raw, text, kind)

    def count(self, number: int, raw: bytes) -> Group | None:
        """Count a line (without its end) that adds what earlier ones added, and return its group; None: it must be taken."""
        if self.open or not self._counts or records.hides(raw):
            return None
        group = self.shapes.group(raw)
        if group is None or (group.formats is not None and self._numbers.sampled(group.formats, number)):
            return None
        group.add(number, raw)
        return group

    def _candidate(self, number: int, raw: bytes, text: str, kind: LineKind) -> Sequence[str]:
        """Read a line that holds literals, and have its like counted; returns the signatures that it matches."""
        place = self.shapes.place(raw, kind) if self._counts else None
        recipe = None if place is None else place.recipe
        if kind.signatures is not None:
            self._line(number, text, kind, recipe=recipe)
        else:
            self._begin_line()
            if kind.formats is not None and self._numbers.wanted(kind.formats, number):
                peeled, _ = self._read(text, recipe)
                self._numbers.take(peeled, number, kind.formats, advances=False)
        if place is not None and self._settled:
            self.shapes.keep(place, self._parts, self._matched, KEEP_LAST if self._full else 1)
        return self._matched

    def _outcome(self, text: str, kind: LineKind) -> Told | None:
        """Return what a line would add, without the numbers that only its kept events show; None: always read it."""
        if any(opener in text for parser in self._parsers for opener in parser.OPENERS):
            return None
        year = self._year
        peeled = self._peeled(text)
        self._year = year  # the line may be a made-up one
        if peeled.extra:
            return None
        told: list[Hashable] = [peeled.context.repeated]
        matched: set[str] = set()
        for signature, fields in match.matches(kind.signatures or (), peeled.text, text):
            event = self._event(signature, fields, peeled, 0)
            matched.add(signature.id)
            told.append((signature.id, event.key(signature.keep_by)))
            if signature.id == measurements.LINK:
                told.append((self._links.key(fields, peeled.context), fields.get("channel")))
        if kind.formats is not None:
            process = self._numbers.outcome(peeled, kind.formats)
            if process is None:
                return None
            told.append(process)
        if not matched and kind.signatures is not None and unknown_errors.sounds(peeled.text):
            told.append(templates.key(peeled.text))
        return Told(frozenset(matched), tuple(told))

    def _begin_line(self) -> None:
        self._parts, self._matched, self._settled, self._full = [], [], True, True

    def _speaker(self, number: int, text: str) -> None:
        """Note who printed a line that nothing else is known about: a rank that never complains is a finding, too."""
        peeled = self._peeled(text)
        if peeled.context.rank is not None and peeled.text:
            self.result.add(Event(SPEAKER, self._info.path, number, peeled.text[:MAX_TEXT], peeled.context), ())

    def _peeled(self, text: str) -> Peeled:
        peeled = peel(text, self._profile)
        self._complete(peeled)
        return peeled

    def _reading(self, text: str, signatures: Iterable[Signature]) -> Reading:
        """Read a line in full, without what its surroundings tell."""
        peeled = peel(text, self._profile)
        return Reading(peeled, list(match.matches(signatures, peeled.text, text)))

    def _read(self, text: str, recipe: FieldPositions | None) -> tuple[Peeled, Sequence[Match] | None]:
        """Return a line without its wrappers and, where a recipe tells it, what its signatures find."""
        reading = None if recipe is None else recipe.read(text)
        if reading is None:
            return self._peeled(text), None
        self._complete(reading.peeled)
        return reading

    def _line(
        self, number: int, text: str, kind: LineKind | None, feed: bool = True, recipe: FieldPositions | None = None
    ) -> None:
        """Take what a line tells."""
        self._begin_line()
        peeled, found = self._read(text, recipe)
        if "json" in peeled.wrappers:
            # Escapes inside JSON hide literals from the prefilter.
            kind = self._prefilter.kinds([peeled.text]).get(0)
        signatures, formats = (kind.signatures or (), kind.formats) if kind is not None else ((), None)
        if feed and recipe is None:  # lines of a shape that was learnt open no block
            self._feed(PeeledLine(self._info.path, number, peeled.text, peeled.context))
        known = advances = False
        for signature, fields in match.matches(signatures, peeled.text, text) if found is None else found:
            known = True
            advances = advances or signature.role == "progress"
            self._add(signature, fields, peeled, number)
        if formats is not None:
            self._numbers.take(peeled, number, formats, advances)
        if not known:
            self._unknown(peeled, number)
        for extra in peeled.extra:
            inner = Peeled(text=extra, context=peeled.context.copy())
            follow = PeeledLine(self._info.path, number, extra, inner.context)
            self._feed(follow)
            for signature, fields in match.matches(candidates(self._prefilter, [extra]).get(0, ()), extra, extra):
                self._add(signature, fields, inner, number)

    def _unknown(self, peeled: Peeled, number: int) -> None:
        """Keep a line that no signature knows when it sounds like trouble."""
        folded = self._salient.fresh(peeled.text)
        if folded is not None:
            fields = {"template": folded}
            text = peeled.text[:MAX_TEXT]
            event = Event(unknown_errors.SALIENT, self._info.path, number, text, peeled.context, fields=fields)
            self.result.add(event, ("template",))
            self.gains += 1

    def take_counts(self, lines: Sequence[TextLine]) -> None:
        """Keep the lines of the counter that advanced last among the last lines of the source."""
        for count in counters.advancing([line.text for line in lines]):
            line = lines[count.index]
            peeled = self._peeled(line.text)
            fields = {"name": count.name, "step": str(count.value)}
            if count.total is not None:
                fields["total"] = str(count.total)
            text = peeled.text[:MAX_TEXT]
            event = Event(
                counters.COUNTER, self._info.path, line.number, text, peeled.context, "progress", fields, kind="step"
            )
            self.result.add(event, ())

    def _feed(self, line: PeeledLine) -> None:
        if line.number >= self._patience:
            self._patience = line.number + PATIENCE
            for parser in self._parsers:
                self._record(parser, parser.give_up(line.number))
        for parser in self._parsers:
            if parser.is_open() or any(map(line.text.__contains__, parser.OPENERS)):
                self._record(parser, parser.feed(line))
        self.open = any(parser.is_open() for parser in self._parsers)

    def join(self, line: TextLine, joined: str, signatures: Sequence[Signature]) -> None:
        """Take lines that a terminal broke, as one; ``line`` is the first of them."""
        peeled, seen = self._peeled(joined), self._seen or ()
        for signature, fields in match.matches(signatures, peeled.text, joined):
            own = range(line.number, line.number + MAX_PARTS)
            if not any((signature.id, number) in seen for number in own):
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
            # glog, vLLM and syslog print no year: theirs is that of the other clock, or of the lines before.
            for time in (context.printed, context.time):
                if time is not None and times.has_year(time):
                    self._year = time
            if self._year is not None:
                context.time = times.with_year_of(context.time, self._year)
                if context.printed is not None:
                    context.printed = times.with_year_of(context.printed, self._year)

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
            kind=signature.kind,
        )

    def _add(self, signature: Signature, fields: dict[str, str], peeled: Peeled, number: int) -> None:
        if signature.id == measurements.LINK:
            before = self._links.count
            self.gains += self._links.take(fields, peeled.context, number)
            self._parts.append(Part(self._links, self._links.count - before))
        self._matched.append(signature.id)
        if self._seen is not None:
            self._seen.add((signature.id, number))
        told = {**signature.sets, **fields} if signature.sets else fields
        event = self._event(signature, self._shared.fields(told), peeled, number)
        event.context = self._shared.context(event.context)
        self.faults += event.is_failure and not self.result.has(signature.id)
        bucket = self.result.add(event, signature.keep_by)
        self._parts.append(Part(self._tally(signature.id), event.count))
        if bucket is not None:
            self._parts.append(Part(bucket, event.count))
            self._full = self._full and bucket.full
            self._settled = self._settled and (bucket.full or (self.brief and not event.is_failure))
            self.gains += bucket.count == event.count

    def _tally(self, signature: str) -> _Tally:
        tally = self._tallies.get(signature)
        if tally is None:
            tally = self._tallies[signature] = _Tally(self.result.counts, signature)
        return tally

    def _record(self, parser: StatefulParser, events: Iterable[Event]) -> None:
        for event in events:
            self.result.add(event, parser.KEEP_BY)
            self.gains += 1
