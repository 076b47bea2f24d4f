"""What collectors, terminals and people put around the lines of a log on its way: none of it changes what happened."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from functools import cache

from nccl_triage.engine import load
from nccl_triage.parsers import times
from nccl_triage.parsers.wrappers import PrefixReader

Carry = Callable[[list[str], random.Random], Iterator[str]]

#: How a log comes, and what makes it of its lines.
WAYS: dict[str, Carry] = {}
#: The clock of a job that prints no time.
_BEGIN = datetime(2025, 6, 3, 9, tzinfo=timezone.utc).timestamp()
#: What a program in China is ahead of a collector that writes UTC.
_AHEAD = 8 * 3600.0
_INSERTED = 1000


@cache
def prefixes() -> PrefixReader:
    """Return what reads the shipped prefixes."""
    return PrefixReader(load.load().prefixes)


def way(name: str) -> Callable[[Carry], Carry]:
    """Register a way."""

    def register(carry: Carry) -> Carry:
        WAYS[name] = carry
        return carry

    return register


def clock(lines: Sequence[str]) -> list[float]:
    """Return for each line when it was printed, by the program's clock: its own stamp, or that of the line before."""
    profile = prefixes().sniff(lines[:400])
    own = [prefixes().peel(line, profile).context.time for line in lines]
    year = next((time for time in own if time is not None and times.has_year(time)), _BEGIN)
    known = [None if time is None else times.with_year_of(time, year) for time in own]
    now = next((time for time in known if time is not None), _BEGIN)
    found = []
    for time in known:
        now = now if time is None else max(now, time)
        found.append(now)
    return found


def iso(time: float, end: str = "Z", between: str = "T") -> str:
    """Return a time as ISO 8601 has it, to the millisecond."""
    return datetime.fromtimestamp(time, timezone.utc).strftime(f"%Y-%m-%d{between}%H:%M:%S.%f")[:-3] + end


def _syslog(time: float) -> str:
    moment = datetime.fromtimestamp(time, timezone.utc)
    return f"{moment:%b} {moment.day:2d} {moment:%H:%M:%S}"


#: Name -> what a collector makes of a line that was written at a time.
_STAMPS: dict[str, Callable[[float, str], str]] = {
    "journald": lambda time, line: f"{_syslog(time)} node7 python3[4711]: {line}",
    "docker JSON": lambda time, line: json.dumps({"log": f"{line}\n", "stream": "stderr", "time": iso(time)}),
    "CRI": lambda time, line: f"{iso(time)} stderr F {line}",
    "ISO stamps": lambda time, line: f"{iso(time)} {line}",
    "[time]": lambda time, line: f"[{iso(time, '', ' ')}] {line}",
}


def _stamped(name: str, behind: float) -> None:
    stamp = _STAMPS[name]

    @way(f"{name}, {'in UTC, the program in +08:00' if behind else 'one clock'}")
    def _carry(lines: list[str], chance: random.Random) -> Iterator[str]:
        for time, line in zip(clock(lines), lines, strict=True):
            yield stamp(time - behind, line)


for _name in _STAMPS:
    _stamped(_name, 0.0)
for _name in _STAMPS:
    _stamped(_name, _AHEAD)

#: Name -> what stands before each line, by its number.
_BEFORE: dict[str, Callable[[int], str]] = {
    "kubectl --prefix": lambda number: "[pod/train-0/trainer] ",
    "docker compose": lambda number: "trainer-1  | ",
    "cat -n": lambda number: f"{number:6d}\t",
    "grep -n": lambda number: f"{number}:",
    "quoted": lambda number: "> ",
}


def _prefixed(name: str) -> None:
    before = _BEFORE[name]

    @way(name)
    def _carry(lines: list[str], chance: random.Random) -> Iterator[str]:
        return (before(number) + line for number, line in enumerate(lines, 1))


for _name in _BEFORE:
    _prefixed(_name)


@way("blanks at the ends of lines")
def _blanks(lines: list[str], chance: random.Random) -> Iterator[str]:
    return (line + " " * chance.randrange(4) for line in lines)


@way("the log twice")
def _twice(lines: list[str], chance: random.Random) -> Iterator[str]:
    yield from lines
    yield from lines


def _between(name: str, line: Callable[[float, int], str]) -> None:
    @way(name)
    def _carry(lines: list[str], chance: random.Random) -> Iterator[str]:
        """Put lines of a service that has nothing to do with the job between those of the log, never into a traceback."""
        places = sorted(chance.choices(_gaps(lines), k=_INSERTED))
        now = clock(lines)
        for number, own in enumerate(lines):
            while places and places[0] == number:
                places.pop(0)
                yield line(now[number], len(places))
            yield own
        yield from (line(now[-1] if now else _BEGIN, rest) for rest in range(len(places)))


def _gaps(lines: list[str]) -> list[int]:
    """Return the lines before which another process may have printed: none that goes on with the one before it."""
    return [
        number
        for number, line in enumerate(lines)
        if not number or (line[:1].strip() and lines[number - 1][:1].strip())
    ] or [0]


_between(
    "1,000 dated INFO lines between",
    lambda time, number: f"{iso(time, '', ' ')} INFO metrics.exporter: scrape {number} took 12 ms",
)
_between("1,000 undated INFO lines between", lambda time, number: f"INFO: exporter scrape {number} took 12 ms")


def carried(name: str, text: str, chance: random.Random) -> str:
    """Return a log as it comes by a way."""
    return "\n".join(WAYS[name](text.splitlines(), chance)) + "\n"
