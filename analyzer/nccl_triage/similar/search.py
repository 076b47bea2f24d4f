"""Find the threads whose logs look like this one: signatures seen, by how rare they are, exceptions, words of messages.

A named cause is kept to: only its threads are shown. Without one, the nearest threads vote, each cause with the
confidence that the rules give it, and nothing is shown unless one cause has most of the votes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts import software
from nccl_triage.diagnosis.findings import Findings
from nccl_triage.lazy_regex import lazily
from nccl_triage.similar.features import extract
from nccl_triage.similar.threads import PublicThread, ThreadIndex, shipped

#: Threads that are shown.
MOST = 3
#: Cosine below which a thread is not alike.
ALIKE = 0.2
#: Nearest threads that vote where no cause is named, and the least share of the votes.
VOTERS, MAJORITY = 10, 0.75
#: The confidence of a cause that the rules do not consider.
UNCONSIDERED = 0.05
#: The label of a log that does not show its cause.
UNKNOWN = "unknown"
#: What a confirmed cause adds to the cosine, for the order of threads of one cause.
_BONUS = 0.1
#: Who confirmed a cause, the best first.
CONFIRMED = ("maintainer", "vendor", "PR", "reporter fix", "consensus", "reporter", "author", "article", "commenter")
_NOBODY = len(CONFIRMED)
_HARDWARE = lazily(
    r"\b(?:[ABHPV]100|[AH]800|H20|H200|G?B200|G?B300|A10G?|A40|A6000|L4|L40S?|T4|RTX[ -]?\d{4}|MI\d{3}X?|910[ABC]\d?)\b"
)
#: A literal that stands in lines which name the hardware.
_NAMING = ("NVIDIA", "GPU", "Tesla", "device", "AMD", "Ascend")


class AlikeThread(NamedTuple):
    """A thread that looks alike: the cosine of the two logs, and the features that both have, the most telling first."""

    thread: PublicThread
    score: float
    shared: tuple[str, ...]


def features_of(case: Case) -> frozenset[str]:
    """Return the features of a case: signatures, words, versions (major.minor) and hardware."""
    names = extract(case, software.programs(case))
    for program, version in software.first_versions(case).items():
        numbers = software.version_key(version)
        if numbers:
            names.add(f"v:{program} {'.'.join(map(str, numbers[:2]))}")
    for event in case.events:
        if any(word in event.text for word in _NAMING):
            names.update(f"h:{found}" for found in _HARDWARE.findall(event.text))
    return frozenset(names)


def nearest(names: Iterable[str], index: ThreadIndex, without: str | None = None) -> list[tuple[float, int]]:
    """Return (cosine, number) of the entries that share features, the nearest first, each thread once.

    ``without`` is the address of a thread that is left out: that of the log itself, in a measurement.
    """
    weights = {name: index.weight(name) for name in names}
    length = math.sqrt(sum(value * value for value in weights.values()))
    products: dict[int, float] = defaultdict(float)
    for name, value in sorted(weights.items()):
        for number in index.postings.get(name, ()) if value > 0 else ():
            products[number] += value * value
    found = sorted(
        ((product / (length * index.lengths[number] or 1.0), number) for number, product in products.items()),
        key=lambda pair: (-pair[0], pair[1]),
    )
    kept: dict[str, tuple[float, int]] = {}
    for score, number in found:
        url = index.threads[number].url
        if url != without:
            kept.setdefault(url, (score, number))
    return list(kept.values())


def favoured(near: Iterable[tuple[float, int]], index: ThreadIndex, beliefs: Mapping[str, float]) -> str | None:
    """Return the cause for which most of the nearest threads speak, None where none has the majority."""
    votes: dict[str, float] = defaultdict(float)
    for score, number in list(near)[:VOTERS]:
        cause = index.threads[number].cause
        votes[cause] += score**2 * max(beliefs.get(cause, 0.0), UNCONSIDERED)
    total = sum(votes.values())
    best = max(votes, key=lambda cause: votes[cause], default=None)
    return best if best is not None and votes[best] >= MAJORITY * total else None


def find(findings: Findings, index: ThreadIndex | None = None, without: str | None = None) -> list[AlikeThread]:
    """Return up to ``MOST`` threads that look like a failed job, the best first; none when nothing is alike."""
    if findings.verdict == "healthy":
        return []
    beliefs = {candidate.id: candidate.confidence for candidate in findings.candidates}
    beliefs[UNKNOWN] = findings.unknown_confidence
    return alike(features_of(findings.case), findings.cause, beliefs, shipped() if index is None else index, without)


def alike(
    names: frozenset[str],
    cause: str | None,
    beliefs: Mapping[str, float],
    index: ThreadIndex,
    without: str | None = None,
) -> list[AlikeThread]:
    """Return up to ``MOST`` threads of the named cause, else of the cause that the nearest ones favour, the best first."""
    near = nearest(names, index, without)
    if cause is None:
        cause = favoured(near, index, beliefs)
    same = [pair for pair in near if pair[0] >= ALIKE and index.threads[pair[1]].cause == cause]
    ranks = {number: _rank(index.threads[number]) for _, number in same}
    same.sort(key=lambda pair: (-round(pair[0] + _BONUS * (ranks[pair[1]] < _NOBODY), 2), ranks[pair[1]], pair[1]))
    return [AlikeThread(index.threads[n], round(score, 3), _shared(names, index, n)) for score, n in same[:MOST]]


def _rank(thread: PublicThread) -> int:
    return CONFIRMED.index(thread.confirmed_by) if thread.confirmed_by in CONFIRMED else _NOBODY


def _shared(names: Iterable[str], index: ThreadIndex, number: int) -> tuple[str, ...]:
    found = [name for name in names if number in index.postings.get(name, ())]
    return tuple(sorted(found, key=lambda name: (-index.weight(name), name)))
