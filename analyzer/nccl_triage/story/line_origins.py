"""Where and when a line was printed: corrects the host and the time that its prefixes state.

A collector (docker, Kubernetes, journald, ``ts``) writes its own time and the pod or host where it found the line in
front of every line. Its clock may differ from the program's (UTC there, local time here). The place that it names does
not say which process printed the line: where all lines come from one place, the place distinguishes no processes.

Two processes that write at once tear lines: the prefix of one line runs into that of another.
``x3006c0s25b0x3006c0s25b0n0`` and ``0mew0`` name no hosts. A name is refused only if the lines show a better one, so a
host that printed a single line keeps its name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from nccl_triage.numbers import median
from nccl_triage.observations.curves import NOT_KNOWN, CurveRow
from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.mapping import mapped
from nccl_triage.observations.store import Observations
from nccl_triage.parsers import times
from nccl_triage.story import devices

#: Seconds by which two clocks of one line may differ and still be the same: a collector writes late what was buffered.
SAME_CLOCK = 120.0
#: Prefixes that only a collector writes: a line that has no other time has that of the collector.
COLLECTORS = frozenset({"json", "cri", "syslog", "syslog-iso", "syslog-5424", "stamped", "ts", "horovod-timed"})
#: A name that lacks a piece, or has one too many, is torn if it stands on so few lines and its host on more.
RARE_NAME = 3
#: Limits of the number and length of names that are compared: more or longer names are not hosts of one job.
MOST_NAMES, LONGEST_NAME = 4096, 80
#: Characters at the beginning of a name that are enough to compare it with another.
PREFIX_LENGTH = 4


def correct_origins(observations: Observations) -> Observations:
    """Return observations with places as hosts where they distinguish processes, and with one clock for all sources."""
    events = list(observations.kept())
    placed = _placed(events)
    hosts = _HostsOfPlaces(placed)
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
            # If one process wrote everything, it is the launcher or the collector.
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
    """Return the place where all lines of a job were collected, None if there are several places or none."""
    places = _of_jobs(_placed(observations.kept()))
    return places.pop() if len(places) == 1 else None


def two_clocks(observations: Observations) -> dict[str, float]:
    """Return by how many seconds the collector's clock is behind the program's, for each source where they differ."""
    return {source: seconds for source, seconds in _apart(observations.kept()).items() if abs(seconds) > SAME_CLOCK}


def _placed(events: Iterable[Event]) -> list[Event]:
    return [event for event in events if event.context.place is not None]


def _of_jobs(placed: Iterable[Event]) -> set[str]:
    """Return the places of a job's lines; lines of the kernel and of daemons are about their host in any case."""
    return {event.context.place or "" for event in placed if not devices.is_of_host(event)}


class _HostsOfPlaces:
    """Which places are hosts, and of what name."""

    def __init__(self, placed: list[Event]) -> None:
        inside: dict[str, set[str]] = defaultdict(set)
        around: dict[str, set[str]] = defaultdict(set)
        for event in placed:
            place, host = event.context.place or "", event.context.host
            if host is not None:
                inside[place].add(host)
                around[host].add(place)
        self._several = len(_of_jobs(placed)) > 1
        #: Place -> the only host that its processes name.
        self._called = {place: next(iter(names)) for place, names in inside.items() if len(names) == 1}
        #: Host names that processes of several places use ("localhost", the name of the image).
        self._ambiguous = {
            host for host, places in around.items() if len(places) > 1 and all(len(inside[p]) == 1 for p in places)
        }

    def of(self, host: str | None, place: str | None, of_host: bool = False) -> str | None:
        """Return the host of a line that names a host itself and was found at a place."""
        if place is None or (host is not None and host not in self._ambiguous):
            return host
        if not self._several and not of_host:
            return host
        called = self._called.get(place)
        return called if called is not None and called not in self._ambiguous else place


def _time(context: Context, apart: float) -> float:
    """Return when a line was printed by the clock of its source's lines; the program's time is the more precise one."""
    if (clocks := _both(context)) is None:
        return context.time or 0.0
    return clocks[1] if abs(apart) <= SAME_CLOCK else clocks[1] - apart


def _both(context: Context) -> tuple[float, float] | None:
    """Return the times by the collector's clock and by the program's, None if they cannot be compared."""
    time, printed = context.time, context.printed
    if time is None or printed is None or times.has_year(time) != times.has_year(printed):
        return None
    return time, printed


def _apart(events: Iterable[Event]) -> dict[str, float]:
    """Return by how many seconds the collector's clock is behind the program's, for sources with lines that have both."""
    found: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if (clocks := _both(event.context)) is not None:
            found[event.source].append(clocks[1] - clocks[0])
    return {source: median(values) for source, values in found.items()}


def _behind(events: list[Event], known: dict[str, float]) -> dict[str, float]:
    """Return by how many seconds the clocks of sources are behind the program's, if they differ between sources."""
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
        elif others and max(others) - min(others) <= SAME_CLOCK:
            behind[source] = median(others)
        else:
            behind[source] = 0.0
    if not behind or max(behind.values()) - min(behind.values()) <= SAME_CLOCK:
        return {}
    return {source: seconds for source, seconds in behind.items() if abs(seconds) > SAME_CLOCK}


def correct_torn_hosts(events: Sequence[Event]) -> list[Event]:
    """Return the events in order; those with a torn host name get the right name, or none."""
    lines = Counter(event.context.host for event in events if event.context.host)
    if not 2 <= len(lines) <= MOST_NAMES:
        return list(events)
    pids: dict[str, set[int]] = defaultdict(set)
    for event in events:
        if event.context.host and event.context.pid is not None:
            pids[event.context.host].add(event.context.pid)
    ends = _NameEnds(lines)
    right = {name: glued or None for name in lines if (glued := ends.glued_to(name)) is not None}
    for name, count in lines.items():
        if name not in right and count <= RARE_NAME:
            better = [h for h in ends.cut_of(name) if h not in right and lines[h] > count and pids[h] & pids[name]]
            if better:
                right[name] = max(better, key=lambda host: lines[host])
    return [
        replace(event, context=replace(event.context, host=right[event.context.host]))
        if event.context.host in right
        else event
        for event in events
    ]


class _NameEnds:
    """Index of names by their beginnings and ends, which avoids comparing every two of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {name for name in names if len(name) <= LONGEST_NAME}
        self._begins = {name[:length] for name in self._names for length in range(PREFIX_LENGTH, len(name) + 1)}
        self._tails: dict[str, list[str]] = defaultdict(list)
        for name in self._names:
            for start in range(1, len(name)):
                self._tails[name[start:]].append(name)

    def glued_to(self, name: str) -> str | None:
        """Return the host name at the end of two that ran together, "" if only the first is whole, None if it is no such name."""
        for cut in range(PREFIX_LENGTH, min(len(name), 2 * LONGEST_NAME) - PREFIX_LENGTH + 1):
            first, last = name[:cut], name[cut:]
            if first[:PREFIX_LENGTH] != last[:PREFIX_LENGTH]:  # names of hosts of one job begin alike
                continue
            if last in self._names and first in self._begins:
                return last
            if first in self._names and last in self._begins:
                return ""
        return None

    def cut_of(self, name: str) -> list[str]:
        """Return the names of which this one is the end, and those that are the end of this one."""
        inside = [name[start:] for start in range(1, min(len(name), 2 * LONGEST_NAME)) if name[start:] in self._names]
        return [*inside, *self._tails.get(name, ())]
