"""By what a log is known again: the first lines of it that mean something.

They stay the same while a log grows, when it is compressed, moved, copied or piped, and whatever machine reads it. Lines
that carry neither a time nor a process id may be those of another run of the same program: then the path counts, too.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations

#: Marks kept of a log, and their length in hexadecimal digits.
MOST, DIGITS = 16, 8


def of(observations: Observations) -> dict[str, tuple[str, ...]]:
    """Return the marks of every source, those of its earliest lines first."""
    earliest: dict[str, dict[int, Event]] = defaultdict(dict)
    for by_key in observations.buckets.values():
        for bucket in by_key.values():
            for event in bucket.first:  # the last ones change while a log grows
                if event.source in observations.sources:
                    earliest[event.source].setdefault(event.line, event)
    return {
        source: _digests(source, [events[line] for line in sorted(events)[:MOST]])
        for source, events in earliest.items()
    }


def _digests(source: str, events: list[Event]) -> tuple[str, ...]:
    alone = any(event.context.time is not None or event.context.pid is not None for event in events)
    salt = "" if alone else str(Path(source).absolute())
    texts = (f"{salt}\0{event.text}".encode("utf-8", "surrogatepass") for event in events)
    return tuple(hashlib.blake2b(text, digest_size=DIGITS // 2).hexdigest() for text in texts)


def same_log(one: Iterable[str], two: Iterable[str]) -> bool:
    """Tell whether two logs are one, or the beginning of the other: they share most of the marks of the shorter."""
    first, second = set(one), set(two)
    fewer = min(len(first), len(second))
    return fewer > 0 and len(first & second) * 4 >= fewer * 3


def same_job(one: Iterable[Iterable[str]], two: Iterable[Iterable[str]]) -> bool:
    """Tell whether two sets of logs tell of one incident: more than half of the smaller set is in the other."""
    ours, theirs = [set(marks) for marks in one if marks], [set(marks) for marks in two if marks]
    fewer, more = sorted((ours, theirs), key=len)
    shared = sum(any(same_log(marks, other) for other in more) for marks in fewer)
    return bool(fewer) and shared * 2 > len(fewer)
