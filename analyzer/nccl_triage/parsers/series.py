"""Read the numbers that a line reports (loss, step time, memory) by the formats of ``rules/series``.

A line is read in one pass for all names: every ``word separator number`` is found by one expression, and the word
(with the words before it, for names of several) is looked up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nccl_triage.engine.metric_formats import PLACES, UNITS, LineFormat, PrintedName, SeriesRules
from nccl_triage.lazy_regex import lazily

#: Characters of a line that are looked at.
MAX_LINE = 8192
#: Numbers above it are no steps.
MAX_STEP = 1e12

_VALUE = (
    r"[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|(?i:nan|inf(?:inity)?))"
)
_UNIT = r"(?:\s?(ms|us|secs?|seconds|s|min|[kKmMgGtT]i?[bB]|[mMgG]|%))?"
#: 1: the word before the number, 2: the number, 3: its unit.
_PAIR = lazily(
    r"(?<![\w/.-])([A-Za-z#][\w/.#+%-]*(?:\([\w/]{1,16}\))?|\([\w/]{1,16}\))"
    r"[\"')\]]{0,2}(?:\s?[:=]\s{0,8}|\s{1,8}(?:is |became )?)(?:[\"'\[(]|tensor\()?"
    rf"({_VALUE}){_UNIT}(?![\w:])"
)
_STRANGE = lazily(r"[\s:='\"(\[+-](?:nan|inf(?:inity)?)\b(?! iterations)", re.IGNORECASE)
#: What a number counts (``tok/s``), read from both sides of its slash; the number at the end of the column before.
_COUNTED, _PER = lazily(r"[A-Za-z]{1,8}$"), lazily(r"[A-Za-z]{1,6}(?!\w)")
_LAST_NUMBER = lazily(rf"(?:.*[^\w.,+-])?({_VALUE})$")
#: Characters in front of a name that make it a part of another word.
_PART_OF_WORD = lazily(r"[\w/.-]$")
_RANK = lazily(r"(?<![A-Za-z0-9_])(?<!local )[Rr]ank[ =:]{0,2}(\d{1,6})(?![\d.])")
#: Sets of formats whose readers are remembered.
_MAX_CHOICES = 1000
#: Characters looked at before a number for its name.
_TAIL = 64


@dataclass(slots=True)
class SeriesReading:
    """The numbers of one line, each metric once and in its own unit; ``step`` and ``epoch`` are -1.0 where not told."""

    step: float = -1.0
    epoch: float = -1.0
    values: list[tuple[str, float]] = field(default_factory=list)

    def gives(self) -> dict[str, float]:
        """Return everything by name, the place included where it is known."""
        place = {name: value for name, value in (("step", self.step), ("epoch", self.epoch)) if value >= 0}
        return {**place, **dict(self.values)}


def stated_rank(text: str) -> int | None:
    """Return the rank that a line with numbers names (``[rank 3/8] step 12 loss 2.1``), or None."""
    found = _RANK.search(text)
    return int(found[1]) if found else None


def may_be_strange(text: str) -> bool:
    """Tell whether a line may report a number that is not finite."""
    return _STRANGE.search(text[:MAX_LINE]) is not None


class SeriesReader:
    """All formats by id; the first one whose pattern matches reads the line."""

    def __init__(self, rules: SeriesRules) -> None:
        # A user's own format comes first: it is there because the shipped ones misread a line, or do not read it.
        formats = sorted(rules.formats.values(), key=lambda item: not item.pattern.user)
        self._readers = {item.id: _FormatReader(item, rules) for item in formats}
        self._chosen: dict[tuple[str, ...], list[_FormatReader]] = {}

    def read(self, text: str, among: tuple[str, ...]) -> SeriesReading | None:
        """Return the numbers of a message without prefixes; ``among``: the formats of which the line has a literal."""
        text = text[:MAX_LINE]
        readers = self._chosen.get(among)
        if readers is None:
            readers = [reader for name, reader in self._readers.items() if name in among]
            if len(self._chosen) < _MAX_CHOICES:
                self._chosen[among] = readers
        for reader in readers:
            found = reader.read(text)
            if found is not None:
                return found
        return None

    @property
    def literals(self) -> dict[str, tuple[str, ...]]:
        """Format -> its literals."""
        return {name: reader.literals for name, reader in self._readers.items()}

    def formats_of(self, text: str) -> tuple[str, ...]:
        """Return the formats of which a line has a literal; a scan asks its prefilter instead."""
        return tuple(
            name for name, reader in self._readers.items() if any(literal in text for literal in reader.literals)
        )


@dataclass(frozen=True, slots=True)
class _Target:
    """What a name stands for: a metric or a place, and how its numbers become those of the metric's unit."""

    metric: str
    place: bool = False
    factor: float = 1.0
    inverse: bool = False
    #: Units that may stand behind the number, with their factors.
    units: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, name: PrintedName, rules: SeriesRules) -> _Target:
        """Return the target of a name."""
        if name.metric in PLACES:
            return cls(name.metric, place=True)
        units = UNITS[rules.metrics[name.metric].unit]
        factor = units[name.unit] if name.unit is not None else 1.0
        return cls(name.metric, False, factor, name.unit == "per s", units)

    def convert(self, value: float, unit: str | None) -> float | None:
        """Return a number in the metric's unit; None for what has no inverse and for what is no place."""
        if self.place:
            return value if 0 <= value < MAX_STEP and unit != "%" else None
        if unit is not None and (known := self.units.get(unit.lower())) is not None:
            return value * known
        if self.inverse:
            return 1.0 / value if value > 0 else None
        return value * self.factor


class _FormatReader:
    """One format: its pattern, and its names by their last word."""

    def __init__(self, definition: LineFormat, rules: SeriesRules) -> None:
        self.literals = definition.literals
        self._pattern = definition.pattern
        self._after = {name.text: _Target.of(name, rules) for name in definition.after}
        self._names: dict[str, list[tuple[str, _Target]]] = {}
        for name in sorted(definition.values, key=lambda name: -len(name.text)):
            full = name.text.lower()
            self._names.setdefault(full.rpartition(" ")[2], []).append((full, _Target.of(name, rules)))

    def read(self, text: str) -> SeriesReading | None:
        """Return the numbers of a line that has a literal of the format, or None when it is not of the format."""
        matched = self._pattern.search(text)
        if matched is None:
            return None
        found: dict[str, float] = {}
        for place, printed in matched.groupdict().items():
            if printed is not None and place in PLACES and (number := float(printed)) < MAX_STEP:
                found[place] = number
        self._before(text, found)
        if self._after:
            self._behind(text, found)
        reading = SeriesReading(found.pop("step", -1.0), found.pop("epoch", -1.0), list(found.items()))
        return reading if reading.values else None

    def _before(self, text: str, into: dict[str, float]) -> None:
        """Take what is named in front of its number, from left to right."""
        names = self._names
        for found in _PAIR.finditer(text):
            choices = names.get(found[1].lower())
            if choices is None:
                continue
            full, target = choices[0]
            if len(choices) > 1 or " " in full:
                end = found.end(1)
                chosen = _longest(choices, text[max(0, end - _TAIL) : end])
                if chosen is None:
                    continue
                target = chosen
            if target.metric not in into:
                self._take(into, target, found[2], found[3])

    def _behind(self, text: str, into: dict[str, float]) -> None:
        """Take the rates: numbers that are followed by what they count."""
        slash = text.find("/")
        while slash > 0:
            counted, per = _COUNTED.search(text[max(0, slash - 8) : slash]), _PER.match(text, slash + 1)
            if counted is not None and per is not None:
                target = self._after.get(f"{counted[0]}/{per[0]}")
                before = text[max(0, slash - _TAIL) : slash - len(counted[0])].split()
                number = _LAST_NUMBER.match(before[-1]) if target is not None and before else None
                if target is not None and number is not None and target.metric not in into:
                    self._take(into, target, number[1], None)
            slash = text.find("/", slash + 1)

    def _take(self, into: dict[str, float], target: _Target, printed: str, unit: str | None) -> None:
        value = float(printed.replace(",", "") if "," in printed else printed)
        converted = target.convert(value, unit)
        if converted is not None and (printed[-1].isalpha() or not math.isinf(converted)):  # digits may overflow
            into[target.metric] = converted


def _longest(choices: list[tuple[str, _Target]], tail: str) -> _Target | None:
    """Return the target of the longest name with which a text ends, or None."""
    tail = " ".join(tail.lower().split())
    for full, target in choices:
        if tail.endswith(full) and not _PART_OF_WORD.search(tail[: -len(full)]):
            return target
    return None
