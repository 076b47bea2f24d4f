"""Copy observations with every event and row changed, as for another name of a source or another clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nccl_triage.observations.curves import CurveRow, CurveTable
from nccl_triage.observations.event import Event
from nccl_triage.observations.links import LinkTable
from nccl_triage.observations.store import Bucket, Observations


def mapped(
    observations: Observations,
    event: Callable[[Event], Event],
    row: Callable[[CurveRow], CurveRow],
    path: Callable[[str], str] = str,
) -> Observations:
    """Return observations with these events, rows and paths of sources; the original stays as it is."""

    def bucket(one: Bucket) -> Bucket:
        return replace(one, first=[event(e) for e in one.first], last=[event(e) for e in one.last])

    return replace(
        observations,
        sources={
            path(name): replace(info, path=path(name), log=None if info.log is None else path(info.log))
            for name, info in observations.sources.items()
        },
        buckets={
            signature: {(path(str(key[0])), *key[1:]): bucket(kept) for key, kept in by_key.items()}
            for signature, by_key in observations.buckets.items()
        },
        counts=dict(observations.counts),
        notes=list(observations.notes),
        curves=_curves(observations.curves, row),
        links=_links(observations.links, path),
    )


def renamed(observations: Observations, old: str, new: str) -> Observations:
    """Return observations in which what stood in ``old`` stands in ``new``: a log that was rotated while it was read."""

    def event(one: Event) -> Event:
        return replace(one, source=new) if one.source == old else one

    def row(one: CurveRow) -> CurveRow:
        if one.source != old:
            return one
        return one._replace(source=new, process=one.process._replace(source=new))

    return mapped(observations, event, row, lambda path: new if path == old else path)


def _curves(table: CurveTable, row: Callable[[CurveRow], CurveRow]) -> CurveTable:
    return replace(
        table,
        samples={
            kind: replace(sample, rows=[(mark, row(one)) for mark, one in sample.rows])
            for kind, sample in table.samples.items()
        },
        ends={
            kind: {
                row(ends.first).process: replace(ends, first=row(ends.first), last=row(ends.last))
                for ends in processes.values()
            }
            for kind, processes in table.ends.items()
        },
        strange={metric: ([row(one) for one in rows], number) for metric, (rows, number) in table.strange.items()},
    )


def _links(table: LinkTable, path: Callable[[str], str]) -> LinkTable:
    return replace(
        table,
        links={link: replace(seen, place=(path(seen.place[0]), seen.place[1])) for link, seen in table.links.items()},
    )
