"""The order of events: certain inside one source, and across sources where all of them carry times.

Times come from different clocks. Where sources have none they stand one after another, and nothing is known about the
order of their lines against each other.
"""

from __future__ import annotations

from collections import Counter

from nccl_triage.events import Event, Observations
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
    stamped: dict[str, float | None] = {}
    keyed: list[tuple[float, str, int, Event]] = []
    for event in events:
        time = event.context.time
        if time is not None and times.has_year(time):
            last = stamped.get(event.source)
            stamped[event.source] = max(time, last) if last is not None else time
        elif time is not None and event.source not in stamped:
            stamped[event.source] = time
    counts = Counter(event.source for event in events)
    timed = Counter(event.source for event in events if event.context.time is not None)
    if any(timed[source] * 2 < counts[source] for source in sources):
        # A source with few stamps: nothing orders most of its lines against the others.
        return _by_share(events, observations), False
    current: dict[str, float] = {}
    for event in events:
        time = event.context.time
        if time is not None:
            current[event.source] = max(time, current.get(event.source, time))
        keyed.append((current.get(event.source, 0.0), event.source, event.line, event))
    # Events before a source's first stamp get that stamp.
    first: dict[str, float] = {}
    for value, source, _, _ in keyed:
        if value and source not in first:
            first[source] = value
    ordered = sorted(keyed, key=lambda k: (k[0] or first.get(k[1], 0.0), k[1], k[2]))
    return [event for *_, event in ordered], True


def _by_share(events: list[Event], observations: Observations) -> list[Event]:
    """Order events of unstamped sources by how far into their source they stand."""

    def share(event: Event) -> tuple[float, str, int]:
        info = observations.sources.get(event.source)
        lines = info.lines if info is not None and info.lines else event.line
        return (event.line / max(1, lines), event.source, event.line)

    return sorted(events, key=share)
