"""The order of events: certain inside one source, and across sources where all of them carry times.

Times come from different clocks. Where sources have none they stand one after another, and nothing is known about the
order of their lines against each other.
"""

from __future__ import annotations

from collections import Counter

from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.parsers import times
from nccl_triage.story import host_facts


def in_order(events: list[Event], observations: Observations) -> tuple[list[Event], bool]:
    """Return the events in order, and whether that order is certain across sources; facts of hosts come last."""
    events, facts = host_facts.split(events)
    dumps = observations.recorder.sources()
    if dumps and any(event.source not in dumps for event in events):
        # Their clock is UTC and a log's may be any; what they show together is facts, whatever the order.
        events = [event for event in events if event.source not in dumps]
    ordered, known = _by_time(events, observations)
    return ordered + facts, known


def _by_time(events: list[Event], observations: Observations) -> tuple[list[Event], bool]:
    sources = {event.source for event in events}
    if len(sources) <= 1:
        return events, True
    timed = Counter(event.source for event in events if event.context.time is not None)
    if any(not timed[source] for source in sources):
        return _by_share(events, observations), False
    # glog and vLLM print no year: theirs is that of the others.
    year = next((e.context.time for e in events if e.context.time is not None and times.has_year(e.context.time)), 0.0)
    first: dict[str, float] = {}
    current: dict[str, float] = {}
    keyed: list[tuple[float | None, str, int, Event]] = []
    for event in events:
        if event.context.time is not None:
            time = times.with_year_of(event.context.time, year)
            first.setdefault(event.source, time)
            current[event.source] = max(time, current.get(event.source, time))
        keyed.append((current.get(event.source), event.source, event.line, event))
    # Events before a source's first stamp get that stamp.
    ordered = sorted(keyed, key=lambda k: (first[k[1]] if k[0] is None else k[0], k[1], k[2]))
    counts = Counter(event.source for event in events)
    # Where a source has few stamps, most of its lines stand somewhere behind theirs.
    return [event for *_, event in ordered], all(timed[source] * 2 >= counts[source] for source in sources)


def _by_share(events: list[Event], observations: Observations) -> list[Event]:
    """Order events of unstamped sources by how far into their source they stand."""

    def share(event: Event) -> tuple[float, str, int]:
        info = observations.sources.get(event.source)
        lines = info.lines if info is not None and info.lines else event.line
        return (event.line / max(1, lines), event.source, event.line)

    return sorted(events, key=share)
