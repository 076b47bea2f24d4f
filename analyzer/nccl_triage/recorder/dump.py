"""A dump of the flight recorder as records, whatever version wrote it, as pickle or as JSON, and the table made of it.

Source: torch ``csrc/distributed/c10d/FlightRecorderDetail.hpp`` (``dump`` and ``dump_json``). Fields of later versions are
ignored, fields that an earlier version lacks stay empty. Before 2.0 collectives and sends shared one number (``seq_id``).
Numbers and texts are untrusted and are cut to lengths that can be shown.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.recorder_table import (
    MAX_OPEN,
    Arrival,
    Callers,
    Cell,
    End,
    GroupKey,
    GroupProgress,
    PairKey,
    RankDump,
    RecorderLine,
    RecorderTable,
    Way,
    pack,
)
from nccl_triage.recorder.entry import MAX_TEXT, Reader, RecorderEntry, number_of, text_of
from nccl_triage.recorder.unpickle import MAX_CONTAINERS, NotPlainError, loads

#: Versions whose fields are known. Others are read as far as they resemble these.
KNOWN = frozenset({"1.4", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10"})
#: The most entries, groups and members that are kept.
MAX_ENTRIES, MAX_GROUPS, MAX_RANK = 200_000, 4096, 1 << 20
#: What is checked beside a dump (nvidia_resiliency_ext ``trace_collector.py``).
PARTS = ("gpu", "nic")
_RANKS = lazily(r"\d{1,7}")


@dataclass(slots=True)
class DumpGroup:
    """A process group as one rank knows it; ``members`` are global ranks, empty where the dump lists none."""

    name: str
    desc: str
    ranks: tuple[int, ...] = ()
    #: A digest that tells groups of the same name apart.
    mark: str = ""


@dataclass(slots=True)
class Status:
    """The last sequence numbers of one process group on one rank; -1 for none."""

    enqueued: int
    started: int
    completed: int


@dataclass(slots=True)
class Dump:
    """The dump of one rank."""

    version: str
    library: str
    groups: dict[str, DumpGroup] = field(default_factory=dict)
    status: dict[str, Status] = field(default_factory=dict)
    entries: list[RecorderEntry] = field(default_factory=list)
    #: What the entries call their groups.
    described: dict[str, str] = field(default_factory=dict)
    #: The number of the group among the Gloo groups of this process.
    numbers: dict[str, int] = field(default_factory=dict)
    #: What NVIDIA's resiliency extension found broken when it wrote the dump (gpu, nic), and what it said of it.
    broken: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read(data: bytes) -> Dump:
    """Return the dump in a file. Raises NotPlainError for anything else."""
    if data.startswith(b"\x80"):
        document = loads(data)
    elif data.count(b"[") + data.count(b"{") > MAX_CONTAINERS:
        raise NotPlainError(f"more than {MAX_CONTAINERS} lists and tables")
    else:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise NotPlainError("no JSON") from error
    if not isinstance(document, Mapping) or not isinstance(document.get("entries"), (list, tuple)):
        raise NotPlainError("not a flight recorder dump")
    return _dump(document)


def _dump(document: Mapping[str, Any]) -> Dump:
    found = Dump(
        text_of(document.get("version"), 20) or "?",
        text_of(document.get("comm_lib_version") or document.get("nccl_version"), 40),
    )
    if found.version not in KNOWN:
        found.problems.append(f"unknown flight recorder version {found.version}; read as far as it resembles 2.10")
    entries = document["entries"]
    if len(entries) > MAX_ENTRIES:
        found.problems.append(f"only the last {MAX_ENTRIES} of {len(entries)} entries were read")
    names: dict[str, str] = {}
    reader = Reader()
    for raw in entries[-MAX_ENTRIES:]:
        if isinstance(raw, Mapping):
            entry = reader.entry(raw)
            names.setdefault(text_of(raw.get("pg_id")), entry.group)
            found.described.setdefault(entry.group, entry.desc)
            if entry.backend == "gloo" and (number := number_of(raw.get("pg_id"))) is not None:
                found.numbers.setdefault(entry.group, number)
            found.entries.append(entry)
    found.entries.sort(key=lambda entry: entry.record)
    for name, raw in _items(document.get("pg_config")):
        desc = text_of(raw.get("desc"))
        members, mark = _members(raw.get("ranks"))
        if name or members:  # Gloo leaves the names out, and the members on most ranks
            found.groups[text_of(name)] = DumpGroup(text_of(raw.get("name")) or text_of(name), desc, members, mark)
    for part, raw in _items(document.get("health_check_results")):
        if part in PARTS and raw.get("status") == "Failed":
            found.broken[part] = text_of(raw.get("output"))
    for key, raw in _items(document.get("pg_status")):
        # The key is the number of the group in this process (pg_id), not its name.
        counters = (number_of(raw.get(f"last_{what}_collective")) for what in ("enqueued", "started", "completed"))
        known = names.get(key) or (key if key in found.groups else None)
        if known is not None:
            found.status[known] = Status(*(-1 if value is None else value for value in counters))
    return found


def _items(table: object) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if isinstance(table, Mapping):
        for key, value in list(table.items())[:MAX_GROUPS]:
            if isinstance(value, Mapping):
                yield str(key)[:MAX_TEXT], value


def _members(value: object) -> tuple[tuple[int, ...], str]:
    """Return the members of a group, which the recorder writes as text (``[0, 1, 2]``), and a digest of them."""
    if isinstance(value, (list, tuple)):
        value = str([number for number in value[:MAX_RANK] if type(number) is int and 0 <= number < MAX_RANK])
    return _members_in(value[: 8 * MAX_RANK]) if isinstance(value, str) else ((), "")


@lru_cache(maxsize=256)
def _members_in(text: str) -> tuple[tuple[int, ...], str]:
    # The dumps of a job repeat it: in all of them the world is the same text, of a hundred thousand characters.
    members = tuple(sorted({number for one in _RANKS.findall(text) if (number := int(one)) < MAX_RANK}))
    return members, f"{zlib.crc32(repr(members).encode()):08x}" if members else ""


def _way_of(entry: RecorderEntry) -> Way:
    """Return how an operation was called."""
    return Way(entry.op, entry.inputs, entry.outputs, entry.input_types, entry.output_types)


class TableBuilder:
    """Builds the table of one dump from its records."""

    def __init__(self, dump: Dump, rank: int, source: str, header: str) -> None:
        self.table = RecorderTable()
        self._dump, self._rank, self._source = dump, rank, source
        self._bit = 1 << rank
        entries = dump.entries
        created = max((entry.created or 0 for entry in entries), default=0)
        self._stamp = (created, source)
        self._cut = bool(entries) and entries[0].record > 0
        self.table.dumps[(rank,)] = RankDump(
            self._stamp,
            dump.version,
            dump.library,
            len(entries),
            self._cut,
            RecorderLine(source, 1, rank, header, created),
        )
        self._keys: dict[tuple[str, str], GroupKey] = {}
        self._ways: dict[Way, Way] = {}
        self._arrivals: dict[GroupKey, list[Arrival]] = {}
        for group in dump.groups.values():
            if group.name:
                self._key(group.name, group.desc)
            else:
                self.table.groups[GroupKey("", "", "")] = group.ranks
        for name, status in dump.status.items():
            standing = self._standing(self._key(name, ""))
            standing.enqueued, standing.completed = status.enqueued, status.completed

    def _key(self, name: str, desc: str) -> GroupKey:
        known = self._keys.get((name, ""))
        if known is None:
            group = self._dump.groups.get(name)
            members = group.ranks if group is not None else ()
            mark = group.mark if group is not None else ""
            desc = desc or (group.desc if group is not None else "") or self._dump.described.get(name, "")
            known = self._keys[(name, "")] = GroupKey(name, desc, mark)
            if members:
                self.table.groups[known] = members
        return known

    def _standing(self, key: GroupKey) -> GroupProgress:
        found = self.table.standings.get((key, self._rank))
        if found is None:
            found = self.table.standings[(key, self._rank)] = GroupProgress(self._stamp)
        return found

    def note(self, part: str, number: int, text: str) -> None:
        """Note a broken component, and its line in the text."""
        dump = self.table.dumps[(self._rank,)]
        dump.broken += ((part, RecorderLine(self._source, number, self._rank, text, self._stamp[0])),)

    def add(self, entry: RecorderEntry, number: int, text: str) -> None:
        """Add one record, with its line in the text."""
        key = self._key(entry.group, entry.desc)
        standing = self._standing(key)
        line = RecorderLine(self._source, number, self._rank, text, entry.created or 0)
        way = _way_of(entry)
        way = self._ways.setdefault(way, way)
        standing.backend = entry.backend
        standing.number = self._dump.numbers.get(entry.group, -1)
        standing.last = line
        if standing.open is None:
            standing.frames = entry.frames
        if not entry.done and standing.open is None:
            standing.open, standing.open_seq, standing.open_way = line, entry.seq, way
            standing.failed, standing.timeout_ms = entry.failed, entry.timeout_ms
        if entry.p2p:
            if entry.src is not None and entry.dst is not None:
                self._pair((key, entry.src, entry.dst, entry.op), entry, way, line)
            standing.p2p += 1
            return
        seq = entry.seq
        standing.first_seq = seq if standing.first_seq < 0 else min(standing.first_seq, seq)
        standing.last_seq = max(standing.last_seq, seq)
        standing.counts_all |= entry.backend == "gloo" and entry.op_id != seq
        if entry.done:
            standing.done_seq = max(standing.done_seq, seq)
        if entry.created:
            ran = -1 if entry.ran_us is None else entry.ran_us
            self._arrivals.setdefault(key, []).append(Arrival(seq, entry.created, ran))
        moment = (entry.created or 0, self._rank)
        callers = Callers(
            self._bit, self._bit if entry.done else 0, self._bit if entry.failed else 0, line, moment, moment
        )
        cell = self.table.calls.setdefault(key, {}).setdefault(seq, Cell())
        present = cell.ways.get(way)
        if present is None:
            cell.ways[way] = callers
        else:
            present.absorb(callers)

    def _pair(self, place: PairKey, entry: RecorderEntry, way: Way, line: RecorderLine) -> None:
        end = self.table.pairs.get(place)
        if end is None:
            end = self.table.pairs[place] = End(self._stamp, self._rank, self._cut)
        end.total += 1
        end.done += entry.done
        if not entry.done and len(end.open) < MAX_OPEN:
            end.open += ((way, line),)

    def finish(self) -> RecorderTable:
        """Return the table, within its bounds."""
        for key, arrivals in self._arrivals.items():
            self._standing(key).arrivals = pack(arrivals)
        self.table.thin()
        return self.table
