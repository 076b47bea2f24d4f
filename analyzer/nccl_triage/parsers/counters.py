"""Counters of loops that no signature knows: a word such as step, epoch or round with a number that rises line by line.

Every program that trains counts something aloud, each in a form of its own. Of the last lines of a source this finds
the counter that advanced, whatever stands around it: the job was at work there, and how far it came.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.kinds import Produced

#: Signature id of the line of a counter.
COUNTER = "training.counter"
PRODUCES = {
    COUNTER: Produced(
        "step", "A number behind a word such as step or epoch, which rises from line to line near the end of a log."
    )
}
#: Lines at the end of a source that are looked at, and characters of each.
LINES, WIDTH = 240, 300
#: Different values that a counter must take, and those of a rise that is one of steps: who counts leaves little out.
_VALUES, _STRIDE = 3, 1000
_COUNTER = lazily(
    r"(?<![A-Za-z])(?P<name>(?:(?:global|train(?:ing)?|local|micro|opt(?:imizer)?)[_ ])?"
    r"(?:step|iter(?:ation)?|epoch|batch|round|episode|update|generation|trial|game|cycle|it|mini_?batch|rollout)s?)"
    r"(?:\((?:train|val)\))?[\"']?[ \t]{0,3}[:=#\[( \t]{0,3}[\"']?(?P<n>\d{1,12})(?:[ \t]{0,3}(?:/|of)[ \t]{0,3}(?P<total>\d{1,12}))?"
    r"(?![\w:]|\.\d{0,6}\s?(?:s|ms|sec\w{0,4})\b|-\d)",
    re.IGNORECASE,
)
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
_ITS = lazily(r"its?(?![a-z])")
_DIGITS = lazily(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Count:
    """One line of a counter."""

    index: int
    name: str
    value: int
    total: int | None


def advancing(lines: Sequence[str]) -> list[Count]:
    """Return the first and the last lines of the counter that advanced last among lines in order; none without one."""
    found: dict[tuple[str, str], list[Count]] = {}
    starts, text = [], []
    at = 0
    for line in lines:
        cut = line[:WIDTH]
        if not _may_count(cut.lower()):
            cut = ""
        starts.append(at)
        text.append(cut)
        at += len(cut) + 1
    index = 0
    for match in _COUNTER.finditer("\n".join(text)):
        while index + 1 < len(starts) and starts[index + 1] <= match.start():
            index += 1
        name = match["name"].lower()
        before = _DIGITS.sub("#", text[index][: match.start() - starts[index]])[-40:]
        total = int(match["total"]) if match["total"] else None
        found.setdefault((name, before), []).append(Count(index, name, int(match["n"]), total))
    risen = [counts for counts in found.values() if _rises([count.value for count in counts])]
    if not risen:
        return []
    last = max(risen, key=lambda counts: (counts[-1].index, _changes(counts)))
    news = [
        count
        for count, earlier in zip(last, [None, *last[:-1]], strict=True)
        if earlier is None or count.value != earlier.value
    ]
    return news[:2] + news[2:][-3:]


def _may_count(lowered: str) -> bool:
    for word in _WORDS:
        if word in lowered:
            return True
    return _ITS.search(lowered) is not None


def _changes(counts: Sequence[Count]) -> int:
    return sum(one.value != other.value for one, other in pairwise(counts))


def _rises(values: Sequence[int]) -> bool:
    """Tell whether numbers are those of a counter: they rise by little, and seldom fall back to begin anew."""
    changes = [b - a for a, b in pairwise(values) if b != a]
    ups = [change for change in changes if 0 < change <= _STRIDE]
    return len(set(values)) >= _VALUES and len(ups) >= _VALUES - 1 and 3 * len(ups) >= 2 * len(changes)
