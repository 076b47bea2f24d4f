"""The order of events: certain within one source, and across sources where all of them carry times.

Times come from different clocks. Sources without times are ordered by how far into their source each line stands, which
says nothing certain about the order of their lines against each other. Consoles of log stores export the newest line
first: a source whose times run backwards is read from its end.

Facts of hosts, which are collected beside the log, have no place in its order and come last. Facts of hosts outside the
job are dropped. A host belongs to the job if the log names it or one of its addresses; if the log names none of the
hosts that have facts, all of them count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.parsers import times

#: Steps back in time of a source that is written newest first, and how many more they are than steps forward.
_BACKWARDS, _MOSTLY = 5, 10
#: How signatures of host facts begin.
_HOST_FACT = "host."


def in_order(events: list[Event], observations: Observations) -> tuple[list[Event], bool]:
    """Return the events in order, and whether that order is certain across sources."""
    events, facts = _split_host_facts(_oldest_first(events))
    dumps = observations.recorder.sources()
    if dumps and any(event.source not in dumps for event in events):
        # The clock of dumps is UTC, that of a log may be any. What dumps show together does not depend on the order.
        events = [event for event in events if event.source not in dumps]
    ordered, known = _by_time(events, observations)
    return ordered + facts, known


def _oldest_first(events: list[Event]) -> list[Event]:
    """Return the events with those of sources that are written newest first in reverse."""
    times_of: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.context.time is not None:
            times_of[event.source].append(event.context.time)
    reverse = set()
    for source, found in times_of.items():
        back = sum(after < before for before, after in pairwise(found))
        if back >= _BACKWARDS and back >= _MOSTLY * sum(after > before for before, after in pairwise(found)):
            reverse.add(source)
    if not reverse:
        return events
    turned = {source: reversed([event for event in events if event.source == source]) for source in reverse}
    return [next(turned[event.source]) if event.source in turned else event for event in events]


def _by_time(events: list[Event], observations: Observations) -> tuple[list[Event], bool]:
    sources = {event.source for event in events}
    if len(sources) <= 1:
        return events, True
    timed = Counter(event.source for event in events if event.context.time is not None)
    if any(not timed[source] for source in sources):
        return _by_share(events, observations), False
    # glog and vLLM print no year: take that of the other lines.
    year = next((e.context.time for e in events if e.context.time is not None and times.has_year(e.context.time)), 0.0)
    first: dict[str, float] = {}
    current: dict[str, float] = {}
    keyed: list[tuple[float | None, str, int, Event]] = []
    for event in events:
        if event.context.time is not None:
            time = times.with_year_of(event.context.time, year)
            first.setdefault(event.source, time)
            current[event.source] = max(time, current.get(event.source, time))
        keyed.append((current.get(event.source), event.source, len(keyed), event))
    # Events before a source's first stamp get that stamp.
    ordered = sorted(keyed, key=lambda k: (first[k[1]] if k[0] is None else k[0], k[1], k[2]))
    counts = Counter(event.source for event in events)
    # Where a source has few stamps, most of its lines stand an unknown distance behind one.
    return [event for *_, event in ordered], all(timed[source] * 2 >= counts[source] for source in sources)


def _by_share(events: list[Event], observations: Observations) -> list[Event]:
    """Order events of unstamped sources by how far into their source they stand."""

    def share(event: Event) -> tuple[float, str, int]:
        info = observations.sources.get(event.source)
        lines = info.lines if info is not None and info.lines else event.line
        return (event.line / max(1, lines), event.source, event.line)

    return sorted(events, key=share)


def _split_host_facts(events: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """Return the events of the log, and the facts of the job's hosts, each in the order given."""
    facts = [event for event in events if event.signature.startswith(_HOST_FACT)]
    if not facts:
        return list(events), []
    rest = [event for event in events if not event.signature.startswith(_HOST_FACT)]
    hosts = _hosts_of_job(facts, rest)
    return rest, [event for event in facts if event.fields.get("host") in hosts]


def _hosts_of_job(facts: Sequence[Event], rest: Sequence[Event]) -> set[str]:
    """Return the hosts with facts that belong to the job, by the other events."""
    named = {_short(event.context.host) for event in rest if event.context.host}
    used = {event.context.address for event in rest if event.context.address}
    addresses: dict[str, set[str]] = defaultdict(set)
    for event in facts:
        found = addresses[event.fields.get("host", "")]
        if event.fields.get("fact") == "address":
            found.add(event.fields.get("value", ""))
    hosts = {host for host, own in addresses.items() if _short(host) in named or own & used}
    return hosts or set(addresses)


def _short(host: str) -> str:
    """Return a name without its domain and without the suffix by which doctor distinguishes nodes of one name."""
    name = host.partition("#")[0]
    return name if name.replace(".", "").isdigit() else name.partition(".")[0]
