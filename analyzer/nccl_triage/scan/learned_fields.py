"""Read a line by where earlier lines of its shape had their context and their fields.

All lines of a shape are alike but for their digits, so what stands at a place in one of them stands there in each. The
positions are learned by trying: a line is read twice more with other digits, and for each value that was read the place
is sought that gives it every time; a third reading proves them. A value may have no such place, because it is computed
from several or because the line is read in another way when its digits change; then lines of the shape are read in full.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields as fields_of
from functools import partial
from operator import contains
from typing import Any, NamedTuple

from nccl_triage.engine import match
from nccl_triage.engine.schema import Signature
from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Context
from nccl_triage.parsers import times
from nccl_triage.parsers.wrappers import Peeled
from nccl_triage.scan.digit_folding import STAMP, revalued
from nccl_triage.scan.line_parser import Match, ParsedLine
from nccl_triage.scan.literals import LineKind

#: Attributes of a context, in order, and which of them are numbers.
_ATTRIBUTES = tuple(one.name for one in fields_of(Context))
_WHOLE = frozenset({"rank", "local_rank", "group_rank", "world_size", "pid", "writer", "tid", "gpu", "repeated"})
#: Those that tell a time.
_TIMES = frozenset({"time", "printed"})

_DIGITS = lazily(r"-?[0-9]+")
_MONTH_DAY = lazily(r"(?<![0-9])([0-9]{3,4}|[0-9]{2}-[0-9]{2}) ([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?)")


#: Reads a line in full, with these signatures.
Reader = Callable[[str, Iterable[Signature]], ParsedLine]
#: Where something stands in a line.
Span = tuple[int, int]
_When = partial[float | None]


class _Fields(NamedTuple):
    """Where the fields of a signature stand in every line of a shape; without ``spans`` its pattern must be run."""

    signature: Signature
    spans: tuple[tuple[str, int, int], ...] | None


class FieldPositions:
    """Where the message, context and fields of the lines of one shape stand."""

    __slots__ = ("_constants", "_fields", "_numbers", "_text", "_times", "_words", "_wrappers")

    def __init__(
        self,
        text: Span,
        wrappers: list[str],
        constants: list[Any],
        numbers: Sequence[tuple[int, int, int]],
        words: Sequence[tuple[int, int, int]],
        clocks: Sequence[tuple[int, _When]],
        fields: Sequence[_Fields],
    ) -> None:
        self._text, self._wrappers, self._constants = text, wrappers, constants
        self._numbers, self._words, self._times, self._fields = numbers, words, clocks, fields

    def read(self, line: str) -> ParsedLine | None:
        """Return what a line of the shape says; None for one that must be read in full."""
        values = self._constants.copy()
        for place, start, end in self._numbers:
            values[place] = int(line[start:end])
        for place, start, end in self._words:
            values[place] = line[start:end]
        for place, when in self._times:
            time = when(line)
            if time is None:
                return None
            values[place] = time
        start, end = self._text
        text = line[start:end]
        found: list[Match] = []
        for signature, spans in self._fields:
            if spans is not None:
                found.append((signature, {name: line[start:end] for name, start, end in spans}))
            else:
                fields = match.search(signature, line if signature.raw_line else text)
                if fields is not None:
                    found.append((signature, fields))
        return ParsedLine(Peeled(text, Context(*values), self._wrappers), found)

    def moved(self, before: Sequence[int], after: Sequence[int]) -> FieldPositions | None:
        """Return the positions in a line whose numbers are longer or shorter; None where one lies within such a number.

        ``before`` and ``after`` are where the numbers begin and end, in turn, in a line of the shape and in the other one.
        """

        def place(at: int) -> int:
            index = bisect_right(before, at)
            if not index:
                return at
            edge = before[index - 1]
            if index & 1 and at > edge and before[index] - edge != after[index] - after[index - 1]:
                raise ValueError("within a number")
            return after[index - 1] + at - edge

        def places(rows: Iterable[tuple[Any, int, int]]) -> tuple[tuple[Any, int, int], ...]:
            return tuple((name, place(start), place(end)) for name, start, end in rows)

        try:
            return FieldPositions(
                (place(self._text[0]), place(self._text[1])),
                self._wrappers,
                self._constants,
                places(self._numbers),
                places(self._words),
                [(index, _moved_clock(when, place)) for index, when in self._times],
                [_Fields(one, None if spans is None else places(spans)) for one, spans in self._fields],
            )
        except ValueError:
            return None


def _moved_clock(when: partial[float | None], place: Callable[[int], int]) -> partial[float | None]:
    return partial(when.func, *(slice(place(part.start), place(part.stop)) for part in when.args))


class PositionsByNumber:
    """Where the fields stand in lines that differ in their numbers and in the lengths of these.

    What stands behind a number moves with its end. A line with a number of a length that was not tried is read in full,
    too; once the two differ, no position is believed.
    """

    def __init__(self, positions: FieldPositions, edges: Sequence[int]) -> None:
        """``edges`` are where the numbers of the line begin and end, in turn, in which the positions were learned."""
        self._positions: FieldPositions | None = positions
        self._edges = edges
        self._tried = [{length} for length in _lengths(edges)]

    def in_line(
        self, line: str, edges: Sequence[int], signatures: Iterable[Signature], reader: Reader
    ) -> FieldPositions | None:
        """Return the positions in another line, None for one that must be read in full."""
        if self._positions is None:
            return None
        moved = self._positions.moved(self._edges, edges)
        lengths = _lengths(edges)
        if moved is not None and not all(map(contains, self._tried, lengths)):
            if not _same(moved.read(line), reader(line, signatures)):
                self._positions = None
                return None
            for tried, length in zip(self._tried, lengths, strict=True):
                tried.add(length)
        return moved


def _lengths(edges: Sequence[int]) -> list[int]:
    return [end - start for start, end in zip(edges[::2], edges[1::2], strict=True)]


def learn(line: str, kind: LineKind, sensitive: Sequence[Signature], reader: Reader) -> FieldPositions | None:
    """Return the positions of the fields of a line's shape, if they can be learned.

    ``sensitive`` are the signatures for which it matters which digits there are.
    """
    minding = {one.id for one in sensitive}
    alike = [one for one in kind.signatures or () if one.id not in minding]
    lines = [line, revalued(line, 0), revalued(line, 1)]
    readings = [reader(one, alike) for one in lines]
    first = readings[0]
    names = [(one.id, *fields) for one, fields in first.found]
    for reading in readings:
        if reading.peeled.wrappers != first.peeled.wrappers or [(s.id, *f) for s, f in reading.found] != names:
            return None
    text = _place(lines, [reading.peeled.text for reading in readings])
    if text is None:
        return None
    learnt = _context(lines, [reading.peeled.context for reading in readings])
    if learnt is None:
        return None
    spans: dict[str, tuple[tuple[str, int, int], ...]] = {}
    for index, (signature, fields) in enumerate(first.found):
        places = {name: _place(lines, [reading.found[index][1][name] for reading in readings]) for name in fields}
        known = tuple((name, *span) for name, span in places.items() if span is not None)
        if len(known) < len(places):
            return None
        spans[signature.id] = known
    plan = [
        _Fields(one, spans.get(one.id)) for one in kind.signatures or () if one.id in spans or one.id in minding
    ]  # in the order in which they are tried
    positions = FieldPositions(text, first.peeled.wrappers, *learnt, plan)
    check = revalued(line, 2)
    return positions if _same(positions.read(check), reader(check, kind.signatures or ())) else None


def _same(one: ParsedLine | None, two: ParsedLine) -> bool:
    """Tell whether a line was read alike twice."""
    if one is None or one.peeled != two.peeled:
        return False
    return [(s.id, fields) for s, fields in one.found] == [(s.id, fields) for s, fields in two.found]


def _context(
    lines: Sequence[str], contexts: Sequence[Context]
) -> tuple[list[Any], list[tuple[int, int, int]], list[tuple[int, int, int]], list[tuple[int, _When]]] | None:
    """Return what all contexts share, where their numbers and words stand, and how to read their times."""
    constants: list[Any] = []
    numbers: list[tuple[int, int, int]] = []
    words: list[tuple[int, int, int]] = []
    clocks: list[tuple[int, _When]] = []
    for index, name in enumerate(_ATTRIBUTES):
        values = [getattr(context, name) for context in contexts]
        constants.append(values[0])
        if all(value == values[0] for value in values):
            continue
        if any(value is None for value in values):
            return None
        if name in _TIMES:
            when = _clock(lines, values)
            if when is None:
                return None
            clocks.append((index, when))
            continue
        span = _number(lines, values) if name in _WHOLE else _place(lines, values)
        if span is None:
            return None
        (numbers if name in _WHOLE else words).append((index, *span))
    return constants, numbers, words, clocks


def _place(lines: Sequence[str], values: Sequence[str]) -> Span | None:
    """Return where a text stands in every line."""
    size = len(values[0])
    at = lines[0].find(values[0])
    while at >= 0:
        if all(line[at : at + size] == value for line, value in zip(lines, values, strict=True)):
            return at, at + size
        at = lines[0].find(values[0], at + 1)
    return None


def _number(lines: Sequence[str], values: Sequence[int | None]) -> Span | None:
    """Return where a whole number stands in every line."""
    for found in _DIGITS.finditer(lines[0]):
        start, end = found.span()
        for begin in {start, start + (lines[0][start] == "-")}:
            if all(whole(line[begin:end]) == value for line, value in zip(lines, values, strict=True)):
                return begin, end
    return None


def _clock(lines: Sequence[str], values: Sequence[float | None]) -> _When | None:
    """Return what reads the right time from every line."""
    for tell in _clocks(lines[0]):
        if all(tell(line) == value for line, value in zip(lines, values, strict=True)):
            return tell
    return None


def _clocks(line: str) -> Iterator[_When]:
    """Yield ways to read the time from one of the stamps of a line."""
    for found in STAMP.finditer(line):
        yield partial(_stamped, slice(*found.span()))
    for found in _MONTH_DAY.finditer(line):
        yield partial(_dated, slice(*found.span(1)), slice(*found.span(2)))


def _stamped(stamp: slice, line: str) -> float | None:
    return times.from_stamp(line[stamp])


def _dated(month_day: slice, clock: slice, line: str) -> float | None:
    return times.from_month_day(line[month_day], line[clock])
