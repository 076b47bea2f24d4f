"""Take out of observations what is of some of the speakers in them, as if the input held their lines alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nccl_triage.observations.curves import CurveProcess, CurveSample, CurveTable
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Bucket, Observations


def part(
    observations: Observations, wanted: Callable[[Event], bool], process: Callable[[CurveProcess], bool]
) -> Observations:
    """Return the observations with the events that are wanted, and the curves of the processes that are.

    What cannot be told apart, the connections between ranks and the last lines of a source, is left out; dumps stay.
    """
    found = Observations(notes=list(observations.notes), interruption=observations.interruption)
    found.recorder.absorb(observations.recorder)
    last: dict[str, int] = {}
    for signature, by_key in observations.buckets.items():
        kept = {key: mine for key, bucket in by_key.items() if (mine := _part_of(bucket, wanted)) is not None}
        if not kept:
            continue
        found.buckets[signature] = kept
        found.counts[signature] = sum(bucket.count for bucket in kept.values())
        for bucket in kept.values():
            for event in bucket.events():
                last[event.source] = max(last.get(event.source, 0), event.last_line)
    found.curves = _curves(observations.curves, process)
    for path, info in observations.sources.items():
        if path in last:
            found.sources[path] = replace(info, lines=min(info.lines, last[path]), last_lines=(), openings=())
    return found


def _part_of(bucket: Bucket, wanted: Callable[[Event], bool]) -> Bucket | None:
    """Return the events of a bucket that are wanted; those of a bucket have one speaker, but for what a job is named."""
    events = list(bucket.events())
    mine = [event for event in events if wanted(event)]
    if len(mine) == len(events):
        return bucket
    return Bucket(mine[: bucket.room.first], mine[bucket.room.first :], len(mine), bucket.room) if mine else None


def _curves(table: CurveTable, wanted: Callable[[CurveProcess], bool]) -> CurveTable:
    samples = {
        kind: CurveSample([row for row in sample.rows if wanted(row[1].process)], sample.limit)
        for kind, sample in table.samples.items()
    }
    ends = {kind: {who: e for who, e in found.items() if wanted(who)} for kind, found in table.ends.items()}
    strange = {}
    for metric, (rows, _) in table.strange.items():
        if mine := [row for row in rows if wanted(row.process)]:
            strange[metric] = (mine, len(mine))
    return CurveTable(samples={kind: one for kind, one in samples.items() if one.rows}, ends=ends, strange=strange)
