"""The order of events: certain within one source, and across sources where all of them carry times.

Times come from different clocks. Sources without times are ordered by how far into their source each line stands, which
says nothing certain about the order of their lines against each other. Consoles of log stores export the newest line
first: a source whose times run backwards is read from its end. The parts of a log that was rotated are one log: its
parts follow each other.

Facts of hosts, which are collected beside the log, have no place in its order and come last. Facts of hosts outside the
job are dropped. A host belongs to the job if the log names it or one of its addresses; if the log names none of the
hosts that have facts, all of them count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.parsers import times

#: Steps back in time of a source that is written newest first, and how many more they are than steps forward.
_BACKWARDS, _MOSTLY = 5, 10
#: How signatures of host facts begin.
_HOST_FACT = "host."


def in_order(events: list[Event], observations: Observations) -> tuple[list[Event], bool]:
    """Return the events in order, and whether that order is certain across sources."""
    events, facts = _split_host_facts(_oldest_first(events))
    logs = _Logs(events, observations)
    events = logs.joined(events)
    dumps = observations.recorder.sources()
    if dumps and any(event.source not in dumps for event in events):
        # The clock of dumps is UTC, that of a log may be any. What dumps show together does not depend on the order.
        events = [event for event in events if event.source not in dumps]
    ordered, known = _by_time(events, logs)
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


class _Logs:
    """The logs of which sources are parts, and how many lines of a log stand before each part."""

    def __init__(self, events: Sequence[Event], observations: Observations) -> None:
        sources = observations.sources
        parts: dict[str, list[SourceInfo]] = defaultdict(list)
        for info in sources.values():
            if info.log is not None and info.log in sources:
                parts[info.log].append(info)
        self._log: dict[str, str] = {}
        #: Place of a part in its log, and lines before it; lines of logs.
        self._place: dict[str, tuple[int, int]] = {}
        self._lines = {path: info.lines for path, info in sources.items()}
        first = _first_times(events) if parts else {}
        for log, older in parts.items():
            every = sorted([*older, sources[log]], key=lambda info: info.part)
            if all(info.path in first for info in every):
                every.sort(key=lambda info: first[info.path])
            lines = 0
            for place, info in enumerate(every):
                self._log[info.path], self._place[info.path] = log, (place, lines)
                lines += info.lines
            self._lines[log] = lines

    def of(self, event: Event) -> str:
        """Return the log of which the source of an event is a part."""
        return self._log.get(event.source, event.source)

    def joined(self, events: list[Event]) -> list[Event]:
        """Return the events with those of the parts of a log one after the other."""
        if not self._log:
            return events
        return sorted(events, key=lambda event: (self.of(event), self._place.get(event.source, (0, 0))))

    def share(self, event: Event) -> float:
        """Return how far into its log an event stands."""
        before = self._place.get(event.source, (0, 0))[1]
        return (before + event.line) / max(1, self._lines.get(self.of(event)) or event.line)


def _first_times(events: Sequence[Event]) -> dict[str, float]:
    """Return the first time of each source."""
    first: dict[str, float] = {}
    for event in events:
        if event.context.time is not None:
            first.setdefault(event.source, event.context.time)
    return first


def _by_time(events: list[Event], logs: _Logs) -> tuple[list[Event], bool]:
    names = {logs.of(event) for event in events}
    if len(names) <= 1:
        return events, True
    timed = Counter(logs.of(event) for event in events if event.context.time is not None)
    if any(not timed[name] for name in names):
        return sorted(events, key=lambda event: (logs.share(event), event.source, event.line)), False
    # glog and vLLM print no year: take that of the other lines.
    year = next((e.context.time for e in events if e.context.time is not None and times.has_year(e.context.time)), 0.0)
    first: dict[str, float] = {}
    current: dict[str, float] = {}
    keyed: list[tuple[float | None, str, int, Event]] = []
    for event in events:
        name = logs.of(event)
        if event.context.time is not None:
            time = times.with_year_of(event.context.time, year)
            first.setdefault(name, time)
            current[name] = max(time, current.get(name, time))
        keyed.append((current.get(name), name, len(keyed), event))
    # Events before a log's first stamp get that stamp.
    ordered = sorted(keyed, key=lambda k: (first[k[1]] if k[0] is None else k[0], k[1], k[2]))
    counts = Counter(logs.of(event) for event in events)
    # Where a log has few stamps, most of its lines stand an unknown distance behind one.
    return [event for *_, event in ordered], all(timed[name] * 2 >= counts[name] for name in names)


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
