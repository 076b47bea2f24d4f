"""A rank that is slower than its peers, by durations that each of them measured itself."""

from __future__ import annotations

from collections import defaultdict

from nccl_triage.observations.curves import NOT_KNOWN, Row
from nccl_triage.steps.marks import Mark
from nccl_triage.steps.robust import usual
from nccl_triage.steps.tracks import Track, Tracks

#: Metric -> (times the peers' median, seconds above it) from which a rank is slow.
_SLOW = {"step_time": (1.3, 0.05), "data_time": (2.0, 0.2), "generation_time": (1.5, 0.5)}
#: Ranks that are compared at least, numbers of each, standard deviations among the peers, share of a rank's own
#: numbers that must be above what its peers need, and the share of ranks that may be slow.
_RANKS, _NUMBERS, _SIGMA, _OFTEN, _FEW = 3, 6, 6.0, 0.8, 4
#: What a number must exceed of the way from the peers' median to the rank's own to count as slow.
_HALFWAY = 0.5


def slow_ranks(tracks: Tracks) -> list[Mark]:
    """Return the ranks whose durations are longer than those of the others in most of their steps."""
    return [mark for metric in _SLOW for mark in _slow(metric, tracks.of(metric))]


def _slow(metric: str, tracks: list[Track]) -> list[Mark]:
    points: dict[object, list[tuple[Row, float]]] = defaultdict(list)
    for track in tracks:
        points[_who(track)] += track.settled()
    known = {who: own for who, own in points.items() if len(own) >= _NUMBERS}
    if len(known) < _RANKS:
        return []
    middles = {who: usual([value for _, value in own]).middle for who, own in known.items()}
    factor, least = _SLOW[metric]
    found: list[Mark] = []
    for who, own in known.items():
        peers = usual([middle for other, middle in middles.items() if other != who])
        mine = middles[who]
        if mine < factor * peers.middle or mine - peers.middle < max(least, _SIGMA * peers.spread):
            continue
        bar = peers.middle + _HALFWAY * (mine - peers.middle)
        slow = [(row, value) for row, value in own if value > bar]
        if len(slow) >= _OFTEN * len(own):
            found.append(Mark("steps.slow_rank", metric, max(slow)[0], mine, peers.middle, len(own)))
    return found if len(found) <= max(1, len(known) // _FEW) else []


def _who(track: Track) -> object:
    process = track.process
    if process.rank != NOT_KNOWN:
        return process.rank
    return process._replace(group_rank=NOT_KNOWN)
