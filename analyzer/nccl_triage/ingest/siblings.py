"""Rules over file names that sometimes need to see the other names of the folder.

Whether ``3.log`` is the log of rank 3 shows only beside ``0.log``, ``1.log`` and ``2.log``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from nccl_triage.patterns import lazily

#: Stands for any digit in ``Rule.needs``.
DIGIT = "#"
_COMPRESSED = lazily(r"\.(?:gz|zst|zstd|xz|bz2)$", re.I)
#: Endings of logs, any number of them: ``rank0.err.log``.
END = r"(?:[._-](?:log|txt|out|err|stdout|stderr|output|error))*$"
_END = lazily(END, re.I)
#: No cluster of today has more processes; job and process ids are larger.
_MAX_RANK = 1 << 16


def strip_compression(name: str) -> str:
    """Return a file name without the ending that a compression program added."""
    return _COMPRESSED.sub("", name)


class Siblings:
    """The names of the files of one folder, indexed for the rules that need to see more than one name."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = [strip_compression(name) for name in names]
        self._numbers: dict[str, dict[str, set[int]]] = {}

    def numbers(self, rule: Rule, match: re.Match[str]) -> set[int]:
        """Return the ranks in the names that differ from the matched one in nothing else."""
        known = self._numbers.get(rule.expression)
        if known is None:
            known = {}
            pattern = rule.pattern
            for name in self._names:
                found = pattern.search(name)
                if found:
                    known.setdefault(_skeleton(found), set()).add(int(found["rank"]))
            self._numbers[rule.expression] = known
        return known.get(_skeleton(match), set()) | {int(match["rank"])}


Check = Callable[["Rule", "re.Match[str]", Siblings], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """A layout and the path that shows it.

    ``needs`` is text without which the rule cannot match, or ``DIGIT``: patterns take half a millisecond each to
    compile, and most names need few of them. ``check`` may ask the other files of the folder.
    """

    layout: str
    needs: str
    expression: str
    check: Check | None = None

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression."""
        return _compiled(self.expression)

    def search(self, path: str, siblings: Siblings) -> re.Match[str] | None:
        """Return the match when the rule holds for the path."""
        if self.needs == DIGIT:
            if not any(letter.isdigit() for letter in path):
                return None
        elif self.needs not in path.lower():
            return None
        match = self.pattern.search(path)
        if match is None or (self.check is not None and not self.check(self, match, siblings)):
            return None
        return match


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.I)


def _skeleton(match: re.Match[str]) -> str:
    """Return the file name without its rank, its host and its ending."""
    text = match.string
    groups = match.groupdict()
    for start, end in sorted((match.span(g) for g in ("rank", "host") if groups.get(g)), reverse=True):
        text = f"{text[:start]}#{text[end:]}"
    return _END.sub("", text.rsplit("/", 1)[-1])


def _are_ranks(numbers: set[int]) -> bool:
    """Tell whether these numbers can be the ranks of a job or of one of its nodes, not jobs or dates."""
    low, high, count = min(numbers), max(numbers), len(numbers)
    if count < 2 or high >= _MAX_RANK:
        return False
    if low == 0:
        # Some files may be missing.
        return high < 4 * count + 8
    # The second of several nodes: 8 to 15.
    return count >= 4 and high - low == count - 1 and low % count == 0


def siblings_are_ranks(rule: Rule, match: re.Match[str], siblings: Siblings) -> bool:
    """Accept the number when there is a file for each of several ranks."""
    return _are_ranks(siblings.numbers(rule, match))


def alone_or_ranks(rule: Rule, match: re.Match[str], siblings: Siblings) -> bool:
    """Accept the number unless files beside it show that it counts something else."""
    numbers = siblings.numbers(rule, match)
    return (len(numbers) == 1 and max(numbers) < _MAX_RANK) or _are_ranks(numbers)
