"""Call a source by another name in what was observed: a log that was rotated while it was read lies elsewhere now."""

from __future__ import annotations

from dataclasses import replace

from nccl_triage.curves import CurveTable, Ends, Row, Sample
from nccl_triage.events import Bucket, Event, Observations
from nccl_triage.links import LinkTable, Seen


def renamed(observations: Observations, old: str, new: str) -> Observations:
    """Return observations in which what stood in ``old`` stands in ``new``; the original stays as it is."""

    def event(one: Event) -> Event:
        return replace(one, source=new) if one.source == old else one

    def bucket(one: Bucket) -> Bucket:
        return Bucket([event(e) for e in one.first], [event(e) for e in one.last], one.count, one.room)

    return Observations(
        sources={
            new if path == old else path: replace(info, path=new) if path == old else info
            for path, info in observations.sources.items()
        },
        buckets={
            signature: {(new if key[0] == old else key[0], *key[1:]): bucket(kept) for key, kept in by_key.items()}
            for signature, by_key in observations.buckets.items()
        },
        counts=dict(observations.counts),
        notes=list(observations.notes),
        curves=_curves(observations.curves, old, new),
        links=_links(observations.links, old, new),
    )


def _curves(table: CurveTable, old: str, new: str) -> CurveTable:
    def row(one: Row) -> Row:
        if one.source != old:
            return one
        return one._replace(source=new, process=one.process._replace(source=new))

    return CurveTable(
        samples={
            kind: Sample([(mark, row(one)) for mark, one in sample.rows], sample.limit)
            for kind, sample in table.samples.items()
        },
        ends={
            kind: {row(ends.first).process: Ends(row(ends.first), row(ends.last)) for ends in processes.values()}
            for kind, processes in table.ends.items()
        },
        strange={metric: ([row(one) for one in rows], number) for metric, (rows, number) in table.strange.items()},
    )


def _links(table: LinkTable, old: str, new: str) -> LinkTable:
    return LinkTable(
        links={
            link: Seen((new, seen.place[1]) if seen.place[0] == old else seen.place, seen.channels)
            for link, seen in table.links.items()
        },
        lines=table.lines,
        cut=table.cut,
    )
