"""When a prefix that looks like text is believed: by the first lines of a source, or by what is behind other prefixes.

Each condition returns the names of those who speak by which it is fulfilled, or None.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence

from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import whole
from nccl_triage.parsers.learned_prefix import MOST
from nccl_triage.parsers.prefixes import TextLikePrefix

#: Decides by the lines, and by the number of lines of which there must be more.
Condition = Callable[[TextLikePrefix, Sequence[str], float], "frozenset[str] | None"]

BELIEVED: dict[str, Condition] = {}
NUMBERED = lazily(r"\d")
#: What a syslog writes behind time and host.
_PROGRAM = lazily(r"[A-Za-z][\w./-]{0,60}(?:\[\d{1,18}\])?: ")
#: Share of the different lines that must begin with the name of a host that comes again.
_OF_HOSTS, _OF_ONE_WORD = 0.4, 0.7
#: A word, and one as sentences begin with: no host has such a name.
_WORD, _CAPITALISED = lazily(r"[A-Za-z]+"), lazily(r"[A-Z][a-z]+")


def condition(name: str) -> Callable[[Condition], Condition]:
    """Register a condition."""

    def register(function: Condition) -> Condition:
        BELIEVED[name] = function
        return function

    return register


def _two_thirds(count: int) -> int:
    return count * 2 // 3


def _if(holds: bool) -> frozenset[str] | None:
    return frozenset() if holds else None


@condition("speakers-come-again")
def _speakers_come_again(prefix: TextLikePrefix, lines: Sequence[str], most: float) -> frozenset[str] | None:
    speakers = prefix.speakers(lines)
    return _if(len(speakers) > most and len(set(speakers)) <= max(1, _two_thirds(len(speakers))))


def _rise(numbers: Sequence[int | None]) -> bool:
    return all(one is not None and two is not None and one < two for one, two in itertools.pairwise(numbers))


@condition("numbers-come-again")
def _numbers_come_again(prefix: TextLikePrefix, lines: Sequence[str], most: float) -> frozenset[str] | None:
    numbers = [whole(text) for text in prefix.speakers(lines)]
    return _if(len(numbers) > most and not _rise(numbers) and len(set(numbers)) <= _two_thirds(len(numbers)))


@condition("numbers-rise")
def _numbers_rise(prefix: TextLikePrefix, lines: Sequence[str], most: float) -> frozenset[str] | None:
    numbers = [whole(text) for text in prefix.speakers(lines)]
    return _if(len(numbers) > max(2, most) and _rise(numbers))


@condition("hosts-come-again")
def _hosts_come_again(prefix: TextLikePrefix, lines: Sequence[str], most: float) -> frozenset[str] | None:
    distinct = set(lines)
    named = (name for name in prefix.speakers(distinct) if prefix.may_speak(name) and not _CAPITALISED.fullmatch(name))
    hosts = Counter(named)
    repeated = {name: count for name, count in hosts.items() if count > 1}
    # A single word before most lines may be what a program calls them.
    enough = _OF_ONE_WORD if len(repeated) == 1 and _WORD.fullmatch(min(repeated)) else _OF_HOSTS
    if not repeated or sum(repeated.values()) <= len(distinct) * enough:
        return None
    # A word that stands once before a colon is no host, unless it is numbered as hosts are.
    return frozenset(name for name in hosts if name in repeated or NUMBERED.search(name))


@condition("hosts-behind-times")
def _hosts_behind_times(prefix: TextLikePrefix, lines: Sequence[str], most: float) -> frozenset[str] | None:
    named = prefix.matches(lines)
    names = {found[prefix.speaker] for found in named}
    spoken = sum(1 for found in named if not _PROGRAM.match(found.string, found.end()))
    return _if(len(named) > max(2, MOST * len(lines)) and len(names) <= len(named) // 3 and spoken > len(named) // 2)


@condition("two-thirds")
def _of_two_thirds(prefix: TextLikePrefix, lines: Sequence[str], most: float) -> frozenset[str] | None:
    return _if(len(prefix.matches(lines)) > max(2, _two_thirds(len(lines))))


@condition("several-speakers")
def _several_speakers(prefix: TextLikePrefix, lines: Sequence[str], most: float) -> frozenset[str] | None:
    speakers = prefix.speakers(lines)
    return _if(len(speakers) > most and len(set(speakers)) > 1)


@condition("every-line")
def _every_line(prefix: TextLikePrefix, lines: Sequence[str], most: float) -> frozenset[str] | None:
    speakers = prefix.speakers(lines)
    return _if(len(set(speakers)) > 1 and len(speakers) == len(lines))


@condition("numbered-names")
def _numbered_names(prefix: TextLikePrefix, lines: Sequence[str], most: float) -> frozenset[str] | None:
    names = [name for name in prefix.speakers(lines) if NUMBERED.search(name)]
    return frozenset(names) if len(names) > most else None
