"""Read the numbers that a line reports (loss, step time, memory) by the formats of ``rules/series``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.engine.series import PLACES, UNITS, Format, Name, SeriesRules

#: Characters of a line that are looked at.
MAX_LINE = 8192
#: Seconds that one user-written pattern may spend on one line, and steps above which a number is no step.
USER_TIMEOUT, MAX_STEP = 0.05, 1e12

_VALUE = (
    r"(?P<value>[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|nan|inf(?:inity)?))"
)
_UNIT = r"(?:\s?(?P<unit>ms|us|secs?|seconds|s|min|[kmgt]i?b|[mg]|%))?"
_BETWEEN = r"[\"')\]]{0,2}(?:\s?[:=]\s{0,8}|\s{1,8}(?:is |became )?)(?:[\"'\[(]|tensor\()?"
_RANK = re.compile(r"(?i)(?<![a-z0-9_])(?<!local )rank[ =:]{0,2}(?P<rank>\d{1,6})(?![\d.])")


@dataclass(slots=True)
class Reading:
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
    return int(found["rank"]) if found else None


class SeriesReader:
    """All formats, compiled on first use; the first one whose pattern matches reads the line."""

    def __init__(self, rules: SeriesRules) -> None:
        # A user's own format comes first: it is there because the shipped ones misread a line, or do not read it.
        formats = sorted(rules.formats.values(), key=lambda item: not item.pattern.user)
        self._formats = [_FormatReader(item, rules) for item in formats]
        #: Literals that must lead to a line although no signature may have one in it.
        self.alone = frozenset(text for item in formats if item.alone for text in item.literals)

    def read(self, text: str) -> Reading | None:
        """Return the numbers of a message without launcher and logger prefixes, or None when it reports none."""
        for item in self._formats:
            for literal in item.literals:
                if literal in text:
                    found = item.read(text[:MAX_LINE])
                    if found is not None:
                        return found
                    break
        return None


class _FormatReader:
    """One format: its pattern, and one expression for all its names."""

    def __init__(self, definition: Format, rules: SeriesRules) -> None:
        self.literals = definition.literals
        self._pattern = definition.pattern
        self._definition = definition
        self._units = {metric.id: metric.unit for metric in rules.metrics.values()}
        self._before: re.Pattern[str] | None = None
        self._after: re.Pattern[str] | None = None
        self._compiled = False

    def read(self, text: str) -> Reading | None:
        """Return the numbers of a line that has a literal of the format, or None when it is not of the format."""
        matched = self._search(text)
        if matched is None:
            return None
        if not self._compiled:
            self._compile()
        reading = Reading()
        seen: set[str] = set()
        groups = matched.groupdict()
        for name in PLACES:
            if groups.get(name) is not None:
                self._take(reading, seen, Name("", name), groups[name], None)
        for expression, names in ((self._before, self._definition.values), (self._after, self._definition.after)):
            if expression is not None:
                table = {name.text.lower(): name for name in names}
                for found in expression.finditer(text):
                    unit = found.groupdict().get("unit")
                    self._take(reading, seen, table[" ".join(found["name"].lower().split())], found["value"], unit)
        return reading if reading.values else None

    def _search(self, text: str) -> Any:
        if not self._pattern.user:
            return self._pattern.compiled.search(text)
        try:
            return self._pattern.compiled.search(text, timeout=USER_TIMEOUT)
        except TimeoutError:
            return None

    def _compile(self) -> None:
        self._compiled = True
        if self._definition.values:
            self._before = re.compile(
                rf"(?i)(?<![\w/.-])(?P<name>{_any(self._definition.values)}){_BETWEEN}{_VALUE}{_UNIT}(?![\w:])"
            )
        if self._definition.after:
            self._after = re.compile(rf"(?i)(?<![\w.,]){_VALUE}\s?(?P<name>{_any(self._definition.after)})(?!\w)")

    def _take(self, reading: Reading, seen: set[str], name: Name, text: str, unit: str | None) -> None:
        if name.metric in seen:
            return
        value = float(text.replace(",", ""))
        if name.metric in PLACES:
            if 0 <= value < MAX_STEP and unit != "%":
                seen.add(name.metric)
                setattr(reading, name.metric, value)
            return
        converted = _convert(value, self._units[name.metric], unit, name.unit)
        if converted is not None:
            seen.add(name.metric)
            reading.values.append((name.metric, converted))


def _any(names: Iterable[Name]) -> str:
    """Return an expression for any of the names, the longest first, blanks of any number where one stands."""
    texts = sorted({name.text for name in names}, key=lambda text: (-len(text), text))
    return "|".join(re.escape(text).replace(r"\ ", r"\s{1,4}") for text in texts)


def _convert(value: float, unit: str, written: str | None, usual: str | None) -> float | None:
    """Return a number in the unit of its metric; None for what has no inverse."""
    factors = UNITS[unit]
    written = written.lower() if written else None
    chosen = written if written in factors else usual
    if chosen == "per s":
        return 1.0 / value if value > 0 else None
    return value * factors[chosen] if chosen is not None and chosen in factors else value
