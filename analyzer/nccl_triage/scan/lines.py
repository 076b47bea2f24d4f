"""Scan the lines of one source that may matter: count those that repeat others, read the rest, keep their events.

A line goes through the stages once, in this order: its shape is looked up (``shapes``); a line of a known group is counted,
and that is all. Any other is read, by the positions of its fields (``learned_fields``) or in full (``line_parser``), and
its events are kept (``event_collector``). What it added is then known for the lines like it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nccl_triage.engine import match
from nccl_triage.engine.schema import Signature
from nccl_triage.observations.store import KEEP_LAST, Observations, SourceInfo
from nccl_triage.parsers.series import SeriesReader
from nccl_triage.parsers.wrappers import Peeled, PrefixReader, WrapperProfile
from nccl_triage.scan.event_collector import Additions, EventCollector
from nccl_triage.scan.learned_fields import FieldPositions
from nccl_triage.scan.learned_shapes import LearnedShapesByProfile
from nccl_triage.scan.line_groups import LineGroup
from nccl_triage.scan.line_parser import LineParser, Match
from nccl_triage.scan.literals import RECORD_STARTS, LineKind, may_hide_literals
from nccl_triage.scan.measurements import CurveSampler, states_numbers
from nccl_triage.scan.prefilter import Prefilter, candidates
from nccl_triage.scan.shapes import Shapes
from nccl_triage.scan.terminal_wrap import MAX_PARTS

#: Lines at either end of a batch that are looked at only to learn which ranks speak at all.
SPEAKER_LINES = 40


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


class LineScan:
    """The state of scanning the lines of one source."""

    def __init__(
        self,
        prefilter: Prefilter,
        series: SeriesReader,
        prefixes: PrefixReader,
        info: SourceInfo,
        result: Observations | None = None,
        learned: LearnedShapesByProfile | None = None,
    ) -> None:
        self.result = result if result is not None else Observations()
        self._prefilter = prefilter
        self._series, self._prefixes = series, prefixes
        self._info = info
        #: Whether lines that repeat others are counted.
        self._counts = True
        self._learned = LearnedShapesByProfile(prefixes) if learned is None else learned
        self._curves = CurveSampler(series, info.path, self.result.curves)
        self._parser = LineParser(info, self._curves, prefixes)
        self._shapes = Shapes(self._parser, prefilter)
        self.events = EventCollector(info, self.result, self._parser)
        self.profile = WrapperProfile()

    @property
    def profile(self) -> WrapperProfile:
        """The prefixes of this source, once its first lines are known."""
        return self._parser.profile

    @profile.setter
    def profile(self, profile: WrapperProfile) -> None:
        self._parser.profile = profile
        self._shapes.learned = learned = self._learned.of(profile)
        #: What sources taught that are like this one.
        self.alike = learned.alike(self._info.path)

    def wrapped(self, text: str) -> bool:
        """Tell whether a line of this source begins with a prefix."""
        return bool(self._prefixes.peel(text, self.profile).wrappers)

    def sniff(self, first: Sequence[str]) -> None:
        """Learn from the first lines of the source which prefixes it has."""
        self.profile = self._learned.sniff(first)
        self.alike.number += 1

    def recall(self, first: Sequence[str]) -> bool:
        """Tell whether a few of the first lines show that an earlier source had the same prefixes; these are taken over."""
        profile = self._learned.known(first)
        if profile is not None:
            self.profile = profile
        return profile is not None

    def begin(self, paste: bool = False) -> None:
        """Begin a batch; in a ``paste`` what each line matches is remembered, for ``join``."""
        self.events.seen = set() if paste else None
        if self._shapes.full:
            self._read_waiting()

    def take(self, number: int, text: str, kind: LineKind | None, speaks: bool = False) -> None:
        """Scan a line whose kind is known; with ``speaks`` it may be kept only for who printed it."""
        raw = text.encode("utf-8", "surrogatepass") if kind is not None or text.startswith(RECORD_STARTS) else b""
        events = self.events
        if events.open or may_hide_literals(raw):
            self._read(number, text, kind)
            return
        matched: Sequence[str] = ()
        if kind is not None:
            group = self.count(number, raw)
            matched = self._read_candidate(number, raw, text, kind) if group is None else group.signatures
            if group is not None and events.seen is not None:
                events.seen.update([(signature, number) for signature in matched])
        # A line that holds literals of signatures and matches none may still tell who speaks.
        if speaks and not matched:
            events.add_speaker(number, text)

    def harmless(self, raw: bytes) -> bool:
        """Tell whether a line is like one before it that no signature matches."""
        if may_hide_literals(raw):
            return False
        group = self._shapes.group(raw)
        return group is not None and not group.signatures

    def count(self, number: int, raw: bytes) -> LineGroup | None:
        """Count a line (without its end) that repeats others, and return its group; None if it must be read."""
        if self.events.open or not self._counts or may_hide_literals(raw):
            return None
        group = self._shapes.group(raw)
        if group is None or (group.formats is not None and self._curves.sampled(group.formats, number)):
            return None
        group.add(number, raw)
        return group

    def read_uncounted(self, number: int, raw: bytes, text: str) -> bool:
        """Scan a line (``text`` of ``raw``) that ``count`` did not count, and whose kind is not known.

        Returns whether it says something: a signature matches, or it may state numbers.
        """
        if self.events.open or may_hide_literals(raw):
            self._read(number, text, self._prefilter.kinds([text]).get(0))
            return True
        if self.events.heard_enough and not self._shapes.knows(raw):
            kind = self._prefilter.kinds([text]).get(0)
            if kind is not None and kind.sounds:
                return False
        else:
            kind = self._shapes.kind(raw, text)
        if kind is None:
            return False
        matched = self._read_candidate(number, raw, text, kind)
        return bool(matched) or (kind.formats is not None and states_numbers(kind.formats))

    def _read_candidate(self, number: int, raw: bytes, text: str, kind: LineKind) -> Sequence[str]:
        """Read a line that holds literals and begin its group; returns the signatures that it matches."""
        place = self._shapes.place(raw, kind) if self._counts else None
        positions = None if place is None else place.positions
        if kind.signatures is not None:
            added = self._read(number, text, kind, positions=positions)
        else:
            added = Additions()
            if kind.formats is not None and self._curves.wanted(kind.formats, number):
                peeled, _ = self._parsed(text, positions)
                self._curves.take(peeled, number, kind.formats, advances=False)
        if place is not None and added.settled:
            self._shapes.keep(place, added.parts, added.matched, KEEP_LAST if added.full else 1)
        return added.matched

    def _read(
        self, number: int, text: str, kind: LineKind | None, feed: bool = True, positions: FieldPositions | None = None
    ) -> Additions:
        """Read a line, keep its events, and return what they added."""
        added, events = Additions(), self.events
        peeled, found = self._parsed(text, positions)
        if "json" in peeled.wrappers:
            # Escapes inside JSON hide literals from the prefilter.
            kind = self._prefilter.kinds([peeled.text]).get(0)
        signatures, formats = (kind.signatures or (), kind.formats) if kind is not None else ((), None)
        if feed and positions is None:  # lines of a shape that was learnt open no block
            events.feed(number, peeled.text, peeled.context)
        known = advances = False
        for signature, fields in match.matches(signatures, peeled.text, text) if found is None else found:
            known = True
            advances = advances or signature.role == "progress"
            events.add(signature, fields, peeled, number, added)
        if formats is not None:
            self._curves.take(peeled, number, formats, advances)
        if not known:
            events.add_unknown(peeled, number)
        for extra in peeled.extra:
            inner = Peeled(text=extra, context=peeled.context.copy())
            events.feed(number, extra, inner.context)
            for signature, fields in match.matches(candidates(self._prefilter, [extra]).get(0, ()), extra, extra):
                events.add(signature, fields, inner, number, added)
        return added

    def _parsed(self, text: str, positions: FieldPositions | None) -> tuple[Peeled, Sequence[Match] | None]:
        """Return a line without its prefixes and, if its fields stand at known positions, what its signatures find."""
        parsed = None if positions is None else positions.read(text)
        if parsed is None:
            return self._parser.peel(text), None
        self._parser.complete(parsed.peeled)
        return parsed

    def join(self, line: TextLine, joined: str, signatures: Sequence[Signature]) -> bool:
        """Match lines that a terminal broke as one line, of which ``line`` is the first; returns whether that told something."""
        told = False
        peeled, seen = self._parser.peel(joined), self.events.seen or ()
        for signature, fields in match.matches(signatures, peeled.text, joined):
            own = range(line.number, line.number + MAX_PARTS)
            if not any((signature.id, number) in seen for number in own):
                self.events.add(signature, fields, peeled, line.number, Additions())
                told = True
        return told

    def _read_waiting(self) -> None:
        """Drop the groups, and read the last lines of those that were only counted."""
        waiting = [(number, raw.decode("utf-8", "replace"), found) for (number, raw), found in self._shapes.drain()]
        kinds = self._prefilter.kinds([text for _, text, _ in waiting])
        for index, (number, text, positions) in enumerate(waiting):
            # Such lines open no block, and a block that is open now was not when they came.
            self._read(number, text, kinds.get(index), feed=False, positions=positions)

    def settle(self) -> None:
        """Bring the result up to date: it then holds every line so far but those of open blocks."""
        self._read_waiting()
        self._curves.finish()

    def finish(self) -> None:
        """Bring the result up to date, and close the open blocks."""
        self.settle()
        self.events.close_blocks()

    def continued(self, result: Observations) -> LineScan:
        """Return a scan that goes on from here into another result, and reads every line in full."""
        other = LineScan(self._prefilter, self._series, self._prefixes, self._info, result)
        other.profile = self.profile
        other._counts = False
        other._parser.go_on_from(self._parser)
        other.events.go_on_from(self.events)
        return other

    def unfinished(self) -> Observations:
        """Return what the open blocks would tell if nothing more came; they stay open."""
        other = self.continued(Observations())
        other.finish()
        return other.result
