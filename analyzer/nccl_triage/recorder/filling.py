"""The records of one dump, put into a table of its own."""

from __future__ import annotations

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
from nccl_triage.recorder.dump import Dump
from nccl_triage.recorder.entry import Entry


def _way_of(entry: Entry) -> Way:
    """Return how an operation was called."""
    return Way(entry.op, entry.inputs, entry.outputs, entry.input_types, entry.output_types)


class Filling:
    """Puts the records of one dump into a table of its own."""

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
        """Take what was found broken, which stands on a line of the text."""
        dump = self.table.dumps[(self._rank,)]
        dump.broken += ((part, RecorderLine(self._source, number, self._rank, text, self._stamp[0])),)

    def add(self, entry: Entry, number: int, text: str) -> None:
        """Take one record, which stands on a line of the text."""
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

    def _pair(self, place: PairKey, entry: Entry, way: Way, line: RecorderLine) -> None:
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
