"""Observations: all events and tables of the input, in bounded space.

``Observations.merge`` is associative, so parts of a log can be scanned anywhere and put together afterwards.
"""

from __future__ import annotations

import bisect
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nccl_triage.observations.curves import MAX_PROCESSES, CurveProcess, CurveTable, limit_of
from nccl_triage.observations.event import Event
from nccl_triage.observations.links import ENOUGH, LinkTable
from nccl_triage.observations.recorder_table import RecorderTable

#: Occurrences kept per (signature, process, distinguishing fields): the first and the last of each.
KEEP_FIRST = 6
KEEP_LAST = 3
#: Distinct (process, fields) keys kept per signature: all ranks of the largest jobs, since the one that lacks a line may
#: be the culprit. More are only counted.
MAX_KEYS = 65_536
#: Numbers of keys above which fewer occurrences of each are kept: first two and one, then one and one.
MANY, WIDE = 64, 4096


@dataclass(slots=True)
class SourceInfo:
    """One input: its name, its size and what its name or folder says about who wrote it."""

    path: str
    bytes: int = 0
    lines: int = 0
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    attempt: int | None = None
    stream: str | None = None
    layout: str | None = None
    #: The scheduler's id of the job.
    job: str | None = None
    #: Whether the number of its rank rests on the names of its neighbours alone.
    guessed: bool = False
    #: The log of which it is an older, rotated part, and its place among the parts, from 0 for the oldest.
    log: str | None = None
    part: int = 0
    problems: list[str] = field(default_factory=list)
    tail_cut: bool = False
    #: Reading was stopped on request before the end.
    stopped: bool = False
    #: The last lines that are not blank, as they stand there, the last one at the end; none of a source like many others.
    last_lines: tuple[str, ...] = ()
    #: The line that completes its opening, and those at which the opening comes again (``scan.openings``); else nothing.
    openings: tuple[int, ...] = ()
    #: What the text is if it is no log (``parsers.not_logs``).
    no_log: str | None = None
    #: What a tool report read beside the lines, until the observations take it over.
    recorder: RecorderTable | None = None

    def unread(self) -> SourceInfo:
        """Return what the path says of the input, without what was read."""
        unread = replace(self, bytes=0, lines=0, problems=[], tail_cut=False, stopped=False)
        return replace(unread, last_lines=(), openings=(), no_log=None, recorder=None)


def lines_below(sources: Mapping[str, SourceInfo], path: str, line: int) -> int | None:
    """Return how many lines stand below one, those of later parts of a rotated log included; None if it is not known."""
    info = sources.get(path)
    if info is None:
        return None
    if info.log is None:
        return info.lines - line
    later = [one.lines for one in sources.values() if one.part > info.part and info.log in (one.log, one.path)]
    return info.lines - line + sum(later)


def place_in_log(sources: Mapping[str, SourceInfo], event: Event) -> tuple[str, int, int]:
    """Return the log of an event, and its place there: the part of a log that was rotated, and the line."""
    info = sources.get(event.source)
    return (event.source, 0, event.line) if info is None else (info.log or event.source, info.part, event.line)


class Interruption(NamedTuple):
    """A signal ended the reading: bytes that had been read from disks and pipes by then, and their total if known."""

    signal: int
    read: int
    size: int | None


class Room(NamedTuple):
    """How many of the first and of the last occurrences are kept."""

    first: int = KEEP_FIRST
    last: int = KEEP_LAST


_ROOM, _ROOM_OF_MANY, _ROOM_OF_WIDE = Room(), Room(2, 1), Room(1, 1)


def _room(keys: int) -> Room:
    """Return how much is kept of each key when there are so many; whatever is merged first gives the same."""
    if keys <= MANY:
        return _ROOM
    return _ROOM_OF_MANY if keys <= WIDE else _ROOM_OF_WIDE


class Foresight:
    """Knows from earlier sources of which signatures, curves and connections little of the next one will be kept in the end."""

    def __init__(self) -> None:
        self._keys: Counter[str] = Counter()
        #: Kind of a curve -> the smallest marks so far, and what another one must be below to be kept.
        self._marks: dict[int, list[int]] = {}
        self._limits: dict[int, int] = {}
        #: Kind of a curve -> the first processes in order, so many that no other is kept, and the one behind which none is.
        self._processes: dict[int, list[CurveProcess]] = {}
        self._beyond: dict[int, CurveProcess] = {}
        self._links = 0

    def note(self, found: Observations) -> None:
        """Take the observations of a whole source; no other source has its keys."""
        for signature, by_key in found.buckets.items():
            self._keys[signature] += len(by_key)
        for kind, marks in found.curves.marks().items():
            self._limits[kind] = limit_of(self._marks.setdefault(kind, []), marks)
        for kind, ends in found.curves.ends.items():
            first = self._processes[kind] = sorted([*self._processes.get(kind, ()), *ends])[:MAX_PROCESSES]
            if len(first) == MAX_PROCESSES:
                self._beyond[kind] = first[-1]
        self._links += len(found.links.links)

    def begin(self) -> Observations:
        """Return the observations of the next source, empty, with no more room than it needs."""
        rooms = {signature: _room(keys) for signature, keys in self._keys.items() if keys > MANY}
        links = LinkTable(wanted=max(0, ENOUGH - self._links))
        curves = CurveTable(limits=dict(self._limits), beyond=dict(self._beyond))
        return Observations(rooms=rooms, curves=curves, links=links)


@dataclass(slots=True)
class Bucket:
    """The occurrences of one signature by one process (and one value of its distinguishing fields)."""

    first: list[Event] = field(default_factory=list)
    last: list[Event] = field(default_factory=list)
    count: int = 0
    room: Room = _ROOM

    def add(self, event: Event) -> None:
        """Count the event and keep it when it is among the first or the last."""
        self.count += event.count
        if len(self.first) < self.room.first:
            self.first.append(event)
            return
        last = self.last
        last.append(event)
        if len(last) > 1 and event.line < last[-2].line:  # a line that was counted first and read later
            last.sort(key=lambda one: one.line)
        if len(last) > self.room.last:
            del last[0]

    def shrink(self, room: Room) -> None:
        """Keep fewer from now on."""
        self.first, self.last = _outer(list(self.events()), room)
        self.room = room

    @property
    def full(self) -> bool:
        """Whether the first occurrences are complete."""
        return len(self.first) >= self.room.first

    def events(self) -> Iterator[Event]:
        """Yield the kept occurrences in order."""
        yield from self.first
        yield from self.last


def _outer(events: list[Event], room: Room) -> tuple[list[Event], list[Event]]:
    """Return the first and the last of some occurrences in order."""
    return events[: room.first], events[room.first :][-room.last :]


def _merge_buckets(one: Bucket, two: Bucket) -> Bucket:
    room = min(one.room, two.room)
    first, last = _outer(sorted([*one.events(), *two.events()], key=lambda e: (e.source, e.line)), room)
    return Bucket(first, last, one.count + two.count, room)


def _shrunk(bucket: Bucket, room: Room) -> Bucket:
    """Return a bucket that keeps no more than there is room for; the given one is not changed."""
    if bucket.room <= room:
        return bucket
    return Bucket(*_outer(list(bucket.events()), room), bucket.count, room)


_Key = tuple[object, ...]
#: The rank of a key and its text, which no two have in common, and the key.
_MarkedKey = tuple[int, str, _Key]


def _mark(key: _Key) -> tuple[int, str]:
    """Return the rank of a key when there are too many; it depends on the key alone."""
    text = repr(key)
    return zlib.crc32(text.encode("utf-8", "surrogatepass")), text


@dataclass(slots=True)
class Observations:
    """Everything observed, bounded in size whatever the size of the input."""

    sources: dict[str, SourceInfo] = field(default_factory=dict)
    buckets: dict[str, dict[tuple[object, ...], Bucket]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    curves: CurveTable = field(default_factory=CurveTable)
    links: LinkTable = field(default_factory=LinkTable)
    recorder: RecorderTable = field(default_factory=RecorderTable)
    interruption: Interruption | None = None
    #: The room that signatures will have once this is merged with other sources, as far as that is known.
    rooms: Mapping[str, Room] = field(default_factory=dict, compare=False, repr=False)
    #: The keys of signatures that have had too many, by their marks: whatever is added is put in its place there.
    _marked: dict[str, list[_MarkedKey]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def add(self, event: Event, keep_by: Iterable[str] = ()) -> Bucket | None:
        """Record an event; events that differ in a ``keep_by`` field are kept apart.

        Returns the bucket that it went to, None when there are too many.
        """
        self.counts[event.signature] = self.counts.get(event.signature, 0) + event.count
        by_key = self.buckets.setdefault(event.signature, {})
        key = event.key(keep_by)
        bucket = by_key.get(key)
        if bucket is None:
            if len(by_key) >= MAX_KEYS:
                return None
            most, keys = self.rooms.get(event.signature, _ROOM), len(by_key)
            before, room = min(most, _room(keys)), min(most, _room(keys + 1))
            bucket = by_key[key] = Bucket(room=room)
            if room is not before:
                for other in by_key.values():
                    other.shrink(room)
        bucket.add(event)
        return bucket

    def add_source(self, info: SourceInfo) -> None:
        """Register an input (a later registration of the same path replaces the earlier), and take what it brings."""
        if info.recorder is not None:
            if self.recorder:
                self.recorder.absorb(info.recorder)
            else:
                self.recorder = info.recorder
            info.recorder = None
        self.sources[info.path] = info

    def has(self, signature: str) -> bool:
        """Tell whether the signature was seen."""
        return signature in self.buckets

    def count(self, signature: str) -> int:
        """Return how often the signature was seen, kept or not."""
        return self.counts.get(signature, 0)

    def signatures(self) -> list[str]:
        """Return the ids of all signatures seen."""
        return sorted(self.buckets)

    def events(self, signature: str) -> list[Event]:
        """Return the kept occurrences of one signature in the order of sources and lines."""
        found = [event for bucket in self.buckets.get(signature, {}).values() for event in bucket.events()]
        found.sort(key=lambda e: (e.source, e.line))
        return found

    def kept(self) -> Iterator[Event]:
        """Yield every kept event, in no order."""
        for by_key in self.buckets.values():
            for bucket in by_key.values():
                yield from bucket.events()

    def all_events(self) -> list[Event]:
        """Return every kept event in the order of sources and lines."""
        found = list(self.kept())
        found.sort(key=lambda e: (e.source, e.line, e.signature))
        return found

    def beside(self, other: Observations) -> Observations:
        """Return the union with what a producer made of these observations; the same object if it made nothing."""
        made = (other.buckets, other.sources, other.notes, other.curves, other.links.kept(), other.recorder)
        return self.merge(other) if any(made) else self

    def merge(self, other: Observations) -> Observations:
        """Return the union of two observations; associative, and commutative up to the order of notes."""
        merged = Observations()
        merged.absorb(self)
        merged.absorb(other)
        return merged

    def absorb(self, other: Observations) -> None:
        """Add other observations to these, in time that depends on the size of the other only."""
        for path, info in other.sources.items():
            mine = self.sources.get(path)
            if mine is None:
                self.sources[path] = info
            else:
                problems = [*mine.problems, *(p for p in info.problems if p not in mine.problems)]
                self.sources[path] = replace(
                    mine,
                    bytes=mine.bytes + info.bytes,
                    lines=mine.lines + info.lines,
                    problems=problems,
                    tail_cut=mine.tail_cut or info.tail_cut,
                    stopped=mine.stopped or info.stopped,
                    last_lines=info.last_lines or mine.last_lines,
                    openings=mine.openings or info.openings,
                )
        if other.notes:
            self.notes = list(dict.fromkeys([*self.notes, *other.notes]))
        self.curves.absorb(other.curves)
        self.links.absorb(other.links)
        self.recorder.absorb(other.recorder)
        self.interruption = self.interruption or other.interruption
        for signature, number in other.counts.items():
            self.counts[signature] = self.counts.get(signature, 0) + number
        for signature, by_key in other.buckets.items():
            target = self.buckets.setdefault(signature, {})
            before = _room(len(target))
            new: list[_Key] = []
            for key, bucket in by_key.items():
                present = target.get(key)
                if present is None:
                    new.append(key)
                target[key] = bucket if present is None else _merge_buckets(present, bucket)
            room = _room(len(target))  # never grows: whatever the order of merging, the same is left
            for key in by_key if room is before else list(target):
                target[key] = _shrunk(target[key], room)
            if len(target) > MAX_KEYS:
                self._drop(signature, new)

    def _drop(self, signature: str, new: list[_Key]) -> None:
        """Drop the keys of a signature that are too many; the same ones are left in whatever order they came."""
        target, marked = self.buckets[signature], self._marked.get(signature)
        if marked is None:
            marked = self._marked[signature] = sorted((*_mark(key), key) for key in target)
        else:
            for key in new:
                bisect.insort(marked, (*_mark(key), key))
        for _, _, key in marked[MAX_KEYS:]:
            del target[key]
        del marked[MAX_KEYS:]
