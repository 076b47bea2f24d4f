"""Learn a prefix that every line of a log got when it was copied, searched or collected.

Quotes of mails and issues, numbers of ``cat -n`` and ``grep -n``, cells of a table, the prefix of a collector that nobody
knows. It is learned from the first lines of a source, and accepted only if more lines are recognised behind it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from nccl_triage.lazy_regex import lazily

_DIGITS = lazily(r"[0-9]+")
_END = lazily(r"[^\s|:>\])]*$")
#: Shares of the lines that must begin so (of few all but one, the head of a table), and that must be better known
#: without it.
MOST, GAIN = 0.95, 0.2
#: Lines that are tried before the others.
PROBE = 20
#: Lines below which nothing is learnt, and characters of a learnt prefix.
LEAST, LONGEST = 4, 200
#: Lines that no program begins so by chance, each with a greater number or a quote's mark.
MANY = 8


class BeginningMatcher(Protocol):
    """What matches the beginnings of lines."""

    def match(self, text: str, /) -> re.Match[str] | None:
        """Return the match at the beginning of a text."""
        ...


class LearnedPrefix(NamedTuple):
    """A prefix of the lines of a source; with ``cells`` the last table cell holds the line, its quotes doubled.

    ``counter`` is the group that counts lines.
    """

    pattern: BeginningMatcher
    cells: bool = False
    counter: str | None = None
    id: str = "learned"

    def without(self, line: str) -> str | None:
        """Return the line without it, or None if the line does not begin with it."""
        found = self.pattern.match(line)
        if found is None:
            return None
        rest = line[found.end() :]
        return rest.rstrip().removesuffix('"').replace('""', '"') if self.cells else rest


class CopiedForm(NamedTuple):
    """What copying, quoting or searching a log puts before its lines; ``when`` is one of ``COPIES`` (``line_prefixes``)."""

    id: str
    pattern: BeginningMatcher
    when: str
    counter: str | None = None
    cells: bool = False

    @property
    def prefix(self) -> LearnedPrefix:
        """The form as the prefix of a source."""
        return LearnedPrefix(self.pattern, self.cells, self.counter, self.id)


def learn(
    lines: Sequence[str], known: Callable[[Sequence[str]], int], forms: Sequence[CopiedForm]
) -> LearnedPrefix | None:
    """Return the prefix of nearly all lines that hides what they are; ``known`` counts lines that are recognised.

    ``forms`` need no learning.
    """
    if len(lines) < LEAST:
        return None
    certain = _certain(lines, forms) if len(lines) >= MANY else None
    if certain is not None:
        return certain
    best = None
    if known(lines[:PROBE]) <= (1 - GAIN) * len(lines[:PROBE]):  # else too little is hidden to look any further
        most = known(lines) + max(2, int(GAIN * len(lines))) - 1
        for candidate in (*(form.prefix for form in forms), *_common(lines)):
            rests = [rest for line in lines if (rest := candidate.without(line)) is not None]
            if _fits(candidate, lines) and (found := known(rests)) > most:
                best, most = candidate, found
    indent = _indent(lines) if best is None else None
    if indent is not None:  # says nothing, and goes where nothing is lost with it
        behind = [rest for line in lines if (rest := indent.without(line)) is not None]
        return indent if known(behind) >= known(lines) else None
    return best


def _indent(lines: Sequence[str]) -> LearnedPrefix | None:
    """Return the white space before all lines, if there is any."""
    least = min(len(line) - len(line.lstrip(" \t")) for line in lines)
    return LearnedPrefix(re.compile(rf"[ \t]{{{min(least, LONGEST)}}}")) if least else None


def _certain(lines: Sequence[str], forms: Sequence[CopiedForm]) -> LearnedPrefix | None:
    """Return what only a quote, ``cat -n`` or ``grep -n`` puts before lines, in whatever they are known."""
    for form in forms:
        if form.when == "surely" and _fits(form.prefix, lines):
            return form.prefix
        if form.when == "surely-unless-spaced" and _close(form.prefix, lines) and _fits(form.prefix, lines):
            return form.prefix
    return None


def _close(candidate: LearnedPrefix, lines: Sequence[str]) -> bool:
    """Tell whether the lines go on at once: `srun --label` puts a blank behind the number of a task."""
    return any(not rest[:1].isspace() for line in lines if (rest := candidate.without(line)))


def _fits(candidate: LearnedPrefix, lines: Sequence[str]) -> bool:
    """Tell whether nearly all lines begin so; of few lines one may be the head of a table."""
    begun = sum(1 for line in lines if candidate.pattern.match(line))
    return begun >= min(MOST * len(lines), len(lines) - 1) and _rises(candidate, lines)


def _rises(candidate: LearnedPrefix, lines: Sequence[str]) -> bool:
    """Tell whether what counts lines counts up; of other candidates True."""
    if candidate.counter is None:
        return True
    numbers = [int(m[candidate.counter] or -1) for line in lines if (m := candidate.pattern.match(line))]
    return -1 in numbers or all(one < two for one, two in itertools.pairwise(numbers))


def _common(lines: Sequence[str]) -> list[LearnedPrefix]:
    """Return the beginnings that all lines share, whatever their numbers, up to the end of a word, the shortest first.

    A word of which the number changes and comes again (``node0: ``, ``[pod-1] ``, ``3: ``) may be the name of who
    speaks: what stands before it is a beginning of its own.
    """
    folded = [_DIGITS.sub("0", line[: 2 * LONGEST]) for line in lines]
    # What the first and the last in order share, all share.
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(min(folded), max(folded), strict=False))
    shared = _END.sub("", "".join(pair[0] for pair in same)[:LONGEST])
    ends = [len(shared)]
    numbers = [_DIGITS.findall(line[: 2 * LONGEST]) for line in lines]
    for place, end in enumerate(i for i, letter in enumerate(shared) if letter == "0"):
        before = _END.sub("", shared[:end])
        word = shared[len(before) : end + 3]
        named = word[0].isalpha() or word[0] in "[(" or word == "0: "
        if named and 1 < len({found[place] for found in numbers}) <= len(lines) // 2:
            ends.append(len(before))
    return [beginning for end in sorted(set(ends)) if (beginning := _beginning(shared[:end])) is not None]


def _beginning(shared: str) -> LearnedPrefix | None:
    if not shared or (shared.count("0") == 1 and not any(map(str.isalpha, shared))):
        return None  # a lone number may be a rank
    return LearnedPrefix(re.compile("[0-9]+".join(re.escape(part) for part in shared.split("0"))))
