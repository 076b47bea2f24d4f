"""Counters of loops that no signature knows: a word such as step, epoch or round with a number that rises line by line.

Every program that trains counts something aloud, each in a form of its own. Of the last lines of a source this finds
the counter that advanced, whatever stands around it: the job was at work there, and how far it came.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.kinds import Produced

#: Signature id of the line of a counter.
COUNTER = "training.counter"
PRODUCES = {
    COUNTER: Produced(
        "step",
        "A number behind a word such as step or epoch, which rises from line to line near the end of a log.",
        ("name", "step"),
        ("total",),
    )
}
#: Lines at the end of a source that are looked at, and characters of each.
LINES, WIDTH = 240, 300
#: Different values that a counter must take, and those of a rise that is one of steps: who counts leaves little out.
_VALUES, _STRIDE = 3, 1000
_COUNTER = lazily(
    r"(?<![A-Za-z])(?P<name>(?:(?:global|train(?:ing)?|local|micro|opt(?:imizer)?)[_ ])?"
    r"(?:step|iter(?:ation)?|epoch|batch|round|episode|update|generation|trial|game|cycle|it|mini_?batch|rollout)s?)"
    r"(?:\((?:train|val)\))?[\"']?[ \t]{0,3}(?:(?:n|no|nr|num|number)\b\.?)?[:=#\[( \t]{0,16}[\"']?(?P<n>\d{1,12})(?:[ \t]{0,3}(?:/|of)[ \t]{0,3}(?P<total>\d{1,12}))?"
    r"(?![\w:]|\.\d{0,6}\s?(?:s|ms|sec\w{0,4})\b|-\d)",
    re.IGNORECASE,
)
#: How many of all are done, whatever is counted.
_SHARE = lazily(
    r"(?<![\w./:-])(?P<n>\d{1,9})[ \t]{0,2}(?:/|\bof\b)[ \t]{0,2}(?P<total>\d{1,9})(?![\w/%-]|[.:]\d)", re.IGNORECASE
)
#: What numbers one of several that are there at once: it rises without work.
_AT_ONCE = lazily(
    r"(?:rank|worker|node|gpu|process|proc|device|host|pod|shard|stage|part|page)s?\W{0,3}$", re.IGNORECASE
)
#: Characters before a share that tell what it is of.
_OF = 16
#: Tries that fail are counted as well.
_TRIES = lazily(
    r"retr(?:y|ie)|attempt|\btr(?:y|ies)\b|refuse|fail|error|time[sd]?[ -]?out|unable|cannot", re.IGNORECASE
)
#: The name of such a counter. Who works on one thing after another may do so in vain: it is a bar, no step.
ITEM = "item"
#: What a line with a counter holds, in lower case: the expression looks for much at every place of a text.
_WORDS = (
    *(
        "step",
        "iter",
        "epoch",
        "batch",
        "round",
        "episode",
        "update",
        "generation",
        "trial",
        "game",
        "cycle",
        "rollout",
    ),
)
#: What may stand before such a word and belong to the name, and characters from the word on that are looked at.
_QUALIFIERS = tuple(
    f"{word}{behind}"
    for word in ("global", "train", "training", "local", "micro", "opt", "optimizer")
    for behind in "_ "
)
_MINI = ("mini", "mini_")
_BEHIND = 96
_ITS = lazily(r"its?(?![a-z])")
_DIGITS = lazily(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Count:
    """One line of a counter."""

    index: int
    name: str
    value: int
    total: int | None


def advancing(lines: Sequence[str], certain: bool = False) -> list[Count]:
    """Return the first and the last lines of the counter that advanced last among lines in order; none without one.

    ``certain``: none, too, if lines before these could show that another one advanced later.
    """
    cut = [line[:WIDTH] for line in lines]
    text = "\n".join(cut)
    starts = [0, *itertools.accumulate(len(line) + 1 for line in cut)]
    for matches in (_counters(text), _shares(text)):
        found: dict[tuple[str, str], list[Count]] = {}
        for match in matches:
            index = bisect_right(starts, match.start()) - 1
            name = (match.groupdict().get("name") or ITEM).lower()
            before = _DIGITS.sub("#", text[starts[index] : match.start()])[-40:]
            total = int(match["total"]) if match["total"] else None
            found.setdefault((name, before), []).append(Count(index, name, int(match["n"]), total))
        risen = [counts for counts in found.values() if _rises([count.value for count in counts])]
        if risen:
            break
    if not risen:
        return []
    last = max(risen, key=lambda counts: (counts[-1].index, _changes(counts)))
    if certain and any(counts[-1].index > last[-1].index for counts in found.values()):
        return []
    news = [
        count
        for count, earlier in zip(last, [None, *last[:-1]], strict=True)
        if earlier is None or count.value != earlier.value
    ]
    return news[:2] + news[2:][-3:]


def _counters(text: str) -> Iterator[re.Match[str]]:
    """Yield what the expression finds, tried only where a name may begin: it is slow where it finds nothing."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter that has two in lower case
        yield from _COUNTER.finditer(text)
        return
    places = {found.start() for found in _ITS.finditer(lowered)}.union(*(_places(lowered, word) for word in _WORDS))
    behind = 0
    for place in sorted(places):
        for start in _starts(lowered, place):
            match = _COUNTER.match(text, start, place + _BEHIND) if start >= behind else None
            if match is not None:
                yield match
                behind = match.end()
                break


def _shares(text: str) -> Iterator[re.Match[str]]:
    """Yield the shares of a total; no date or ratio has a part that is larger than the whole."""
    for found in _SHARE.finditer(text):
        start = text.rfind("\n", 0, found.start()) + 1
        of = text[max(start, found.start() - _OF) : found.start()]
        end = text.find("\n", found.end())
        line = text[start : end if end >= 0 else len(text)]
        if int(found["n"]) <= int(found["total"]) and not _AT_ONCE.search(of) and not _TRIES.search(line):
            yield found


def _starts(text: str, place: int) -> Iterator[int]:
    """Yield where the name of a counter may begin whose word stands at a place, the longest name first."""
    for start in (_before(text, place, _MINI), place):
        if start is not None:
            for begin in (_before(text, start, _QUALIFIERS), start):
                if begin is not None and not "a" <= text[begin - 1 : begin] <= "z":
                    yield begin


def _before(text: str, end: int, words: tuple[str, ...]) -> int | None:
    """Return where one of some words begins that ends at a place."""
    if not text.endswith(words, 0, end):
        return None
    return next(end - len(word) for word in words if text.endswith(word, 0, end))


def _places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def _changes(counts: Sequence[Count]) -> int:
    return sum(one.value != other.value for one, other in pairwise(counts))


def _rises(values: Sequence[int]) -> bool:
    """Tell whether numbers are those of a counter: they rise by little, and seldom fall back to begin anew."""
    changes = [b - a for a, b in pairwise(values) if b != a]
    ups = [change for change in changes if 0 < change <= _STRIDE]
    return len(set(values)) >= _VALUES and len(ups) >= _VALUES - 1 and 3 * len(ups) >= 2 * len(changes)
