"""What a collector says of a line, and what the process itself says: two clocks and two names are told apart.

A collector (docker, Kubernetes, journald, ``ts``) writes its own time and the pod or host where it found the line, on
every line alike. Its clock may be another one than the program's (UTC there, local time here), and its name for a place
is no word of who did what: where all lines come from one place, the place tells nobody apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from nccl_triage.observations.curves import NOT_KNOWN, CurveRow
from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.mapping import mapped
from nccl_triage.observations.store import Observations
from nccl_triage.parsers import times
from nccl_triage.story import devices

#: Seconds by which two clocks of one line may differ while they are one: a collector writes late what was buffered.
SAME = 120.0
#: Prefixes that only a collector writes: where they stand alone they are its clock, too.
COLLECTORS = frozenset({"json", "cri", "syslog", "syslog-iso", "syslog-5424", "stamped", "ts", "horovod-timed"})


def settled(observations: Observations) -> Observations:
    """Return observations with hosts where places tell processes apart, all sources by one clock."""
    events = list(observations.kept())
    placed = _placed(events)
    hosts = _Hosts(placed)
    writers = {pid for event in events if (pid := event.context.writer) is not None and not devices.is_of_host(event)}
    apart = _apart(events)
    behind = _behind(events, apart)
    if not placed and not writers and not apart:
        return observations
    contexts: dict[tuple[int, bool, str], Context] = {}

    def context(event: Event) -> Context:
        of, of_host = event.context, devices.is_of_host(event)
        # Lines of one process share their context.
        if (key := (id(of), of_host, event.source)) not in contexts:
            contexts[key] = replace(of, host=hosts.of(of.host, of.place, of_host))
            # One writer of everything is the launcher, or whoever collects.
            if of.pid is None and (of_host or len(writers) > 1):
                contexts[key].pid = of.writer
            if of.time is not None:
                contexts[key].time = _time(of, apart.get(event.source, 0.0)) + behind.get(event.source, 0.0)
        return contexts[key]

    def row(one: CurveRow) -> CurveRow:
        process = one.process._replace(host=hosts.of(one.process.host or None, one.process.place or None) or "")
        if process.pid == NOT_KNOWN and len(writers) > 1:
            process = process._replace(pid=process.writer)
        return one._replace(process=process, time=one.time + (behind.get(one.source, 0.0) if one.time >= 0 else 0.0))

    return mapped(observations, lambda event: replace(event, context=context(event)), row)


def only_place(observations: Observations) -> str | None:
    """Return the place where every line of a job was collected, None where there are several or none."""
    places = _of_jobs(_placed(observations.kept()))
    return places.pop() if len(places) == 1 else None


def two_clocks(observations: Observations) -> dict[str, float]:
    """Return for each source whose collector has another clock by how many seconds that is behind the program's."""
    return {source: seconds for source, seconds in _apart(observations.kept()).items() if abs(seconds) > SAME}


def _placed(events: Iterable[Event]) -> list[Event]:
    return [event for event in events if event.context.place is not None]


def _of_jobs(placed: Iterable[Event]) -> set[str]:
    """Return the places of a job's lines; the kernel and daemons speak of their host in any case."""
    return {event.context.place or "" for event in placed if not devices.is_of_host(event)}


class _Hosts:
    """Whether places are hosts, and which hosts they are."""

    def __init__(self, placed: list[Event]) -> None:
        inside: dict[str, set[str]] = defaultdict(set)
        around: dict[str, set[str]] = defaultdict(set)
        for event in placed:
            place, host = event.context.place or "", event.context.host
            if host is not None:
                inside[place].add(host)
                around[host].add(place)
        self._several = len(_of_jobs(placed)) > 1
        #: Place -> the one host of which its processes speak.
        self._called = {place: next(iter(names)) for place, names in inside.items() if len(names) == 1}
        #: Names by which processes of several places call their host ("localhost", the image's own name).
        self._vague = {
            host for host, places in around.items() if len(places) > 1 and all(len(inside[p]) == 1 for p in places)
        }

    def of(self, host: str | None, place: str | None, of_host: bool = False) -> str | None:
        """Return the host of a line with this host of its own, found at this place."""
        if place is None or (host is not None and host not in self._vague):
            return host
        if not self._several and not of_host:
            return host
        called = self._called.get(place)
        return called if called is not None and called not in self._vague else place


def _time(context: Context, apart: float) -> float:
    """Return when a line was printed, by the clock that all lines of its source have: the program's stamp is the finer one."""
    if (clocks := _both(context)) is None:
        return context.time or 0.0
    return clocks[1] if abs(apart) <= SAME else clocks[1] - apart


def _both(context: Context) -> tuple[float, float] | None:
    """Return the times by the collector's clock and by the program's, None where they cannot be compared."""
    time, printed = context.time, context.printed
    if time is None or printed is None or times.has_year(time) != times.has_year(printed):
        return None
    return time, printed


def _apart(events: Iterable[Event]) -> dict[str, float]:
    """Return by how many seconds the collector's clock of a source is behind the program's, by the lines that carry both."""
    found: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if (clocks := _both(event.context)) is not None:
            found[event.source].append(clocks[1] - clocks[0])
    return {source: median(values) for source, values in found.items()}


def _behind(events: list[Event], known: dict[str, float]) -> dict[str, float]:
    """Return by how many seconds sources are behind the program's clock, where they are not all alike."""
    clocks: dict[str, Counter[str]] = defaultdict(Counter)
    for event in events:
        if event.context.time is not None:
            clocks[event.source][event.context.clock or ""] += 1
    of_clock: dict[str, list[float]] = defaultdict(list)
    for source, seconds in known.items():
        of_clock[clocks[source].most_common(1)[0][0]].append(seconds)
    behind: dict[str, float] = {}
    for source, counted in clocks.items():
        clock = counted.most_common(1)[0][0]
        others = of_clock.get(clock, []) if clock in COLLECTORS else []
        if source in known:
            behind[source] = known[source]
        elif others and max(others) - min(others) <= SAME:
            behind[source] = median(others)
        else:
            behind[source] = 0.0
    if not behind or max(behind.values()) - min(behind.values()) <= SAME:
        return {}
    return {source: seconds for source, seconds in behind.items() if abs(seconds) > SAME}
