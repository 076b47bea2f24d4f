"""When a layout of a path counts: what the other files of the folder, or the rest of the name, say of its number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from nccl_triage.lazy_regex import lazily

_COMPRESSED = lazily(r"\.(?:gz|zst|zstd|xz|bz2)$", re.I)
#: Endings of logs, any number of them: ``rank0.err.log``.
_END = lazily(r"(?:[._-](?:log|txt|out|err|stdout|stderr|output|error))*$", re.I)
#: No cluster of today has more processes; job and process ids are larger.
_MAX_RANK = 1 << 16
#: Words of a file name that say nothing about its content.
_NEUTRAL = lazily(
    r"\d+|of|log|logs|txt|out|err|stdout|stderr|output|console|train|trainer|training|worker|proc|process"
    r"|job|run|slurm|nccl|debug|info|trace|torch|pytorch|torchrun|global|local|rank\d*|pid\d*|ip"
    r"|(?:gpu|cpu|compute)?node\d*|host\d*|gpu\d*|dgx\d*|hgx\d*|nid\d+|cn\d+|srv\d*|server\d*"
)
_ADAPTER = lazily(r"lora|adapter|alpha")


class Searcher(Protocol):
    """A compiled pattern that is searched for."""

    def search(self, text: str, /) -> re.Match[str] | None:
        """Return the first match in a text."""
        ...


def strip_compression(name: str) -> str:
    """Return a file name without the ending that a compression program added."""
    return _COMPRESSED.sub("", name)


class Siblings:
    """The names of the files of one folder, indexed for the rules that need to see more than one name."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = [strip_compression(name) for name in names]
        self._numbers: dict[Searcher, dict[str, set[int]]] = {}

    def numbers(self, pattern: Searcher, match: re.Match[str]) -> set[int]:
        """Return the ranks in the names that differ from the matched one in nothing else."""
        known = self._numbers.get(pattern)
        if known is None:
            known = {}
            for name in self._names:
                found = pattern.search(name)
                if found:
                    known.setdefault(_skeleton(found), set()).add(int(found["rank"]))
            self._numbers[pattern] = known
        return known.get(_skeleton(match), set()) | {int(match["rank"])}


def _skeleton(match: re.Match[str]) -> str:
    """Return the file name without its rank, its host and its ending."""
    text = match.string
    groups = match.groupdict()
    for start, end in sorted((match.span(g) for g in ("rank", "host") if groups.get(g)), reverse=True):
        text = f"{text[:start]}#{text[end:]}"
    return _END.sub("", text.rsplit("/", 1)[-1])


def without_endings(name: str) -> str:
    """Return a file name without the endings of logs."""
    return _END.sub("", name)


def are_ranks(numbers: set[int]) -> bool:
    """Tell whether these numbers can be the ranks of a job or of one of its nodes, not jobs or dates."""
    low, high, count = min(numbers), max(numbers), len(numbers)
    if count < 2 or high >= _MAX_RANK:
        return False
    if low == 0:
        # Some files may be missing.
        return high < 4 * count + 8
    # The second of several nodes: 8 to 15.
    return count >= 4 and high - low == count - 1 and low % count == 0


#: Decides by the pattern of a layout, its match and the files of the folder.
Condition = Callable[[Searcher, "re.Match[str]", Siblings], bool]

WHEN: dict[str, Condition] = {}
#: The conditions under which the numbers in the names of a folder decide alone: an array's outputs have such numbers, too.
BY_SIBLINGS = ("siblings-are-ranks", "alone-or-ranks")


def condition(name: str) -> Callable[[Condition], Condition]:
    """Register a condition."""

    def register(function: Condition) -> Condition:
        WHEN[name] = function
        return function

    return register


@condition("siblings-are-ranks")
def _siblings_are_ranks(pattern: Searcher, match: re.Match[str], siblings: Siblings) -> bool:
    """Accept the number when there is a file for each of several ranks."""
    return are_ranks(siblings.numbers(pattern, match))


@condition("alone-or-ranks")
def _alone_or_ranks(pattern: Searcher, match: re.Match[str], siblings: Siblings) -> bool:
    """Accept the number unless files beside it show that it counts something else."""
    numbers = siblings.numbers(pattern, match)
    return (len(numbers) == 1 and max(numbers) < _MAX_RANK) or are_ranks(numbers)


@condition("speaks-for-itself")
def _speaks_for_itself(pattern: Searcher, match: re.Match[str], siblings: Siblings) -> bool:
    """Tell ``trainer_rank_3_of_8.log`` from ``stuck_rank3_w8.log``, which may be the log of all ranks.

    Names that say more than who wrote them are believed when there is one for each of several ranks; that of
    a low-rank adapter (``lora_rank16.log``) never.
    """
    words = [word for word in re.split(r"[._-]+", f"{match['before']}.{match['after']}".lower()) if word]
    if any(_ADAPTER.match(word) for word in words):
        return False
    return all(_NEUTRAL.fullmatch(word) for word in words) or are_ranks(siblings.numbers(pattern, match))


@condition("host-has-number")
def _host_has_number(pattern: Searcher, match: re.Match[str], siblings: Siblings) -> bool:
    """Tell ``nccl_gpu07_4120.log`` from ``nccl_allreduce_1024.log``."""
    host = match["host"] or ""
    return host == "localhost" or any(letter.isdigit() for letter in host)
