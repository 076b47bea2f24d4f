"""The ledger of collectives: which operations each rank has entered and completed, from all sources.

Lines of watchdogs, counters ("last enqueued, last completed"), dump signals and reports of NCCL's RAS fill one table.
Monitored barriers, reports of desync and stall checks name the ranks that are absent. Sequence numbers and counters are
per process group. A rank whose last enqueued number is below the stuck one never entered. A rank that timed out arrived
early and is a victim. The clock of an operation starts when the CPU enqueues it, so the time of the line minus the time
that the operation ran is the moment of arrival (PyTorch ``ProcessGroupNCCL.cpp``).

A report of NCCL's RAS names single ranks on one line, and groups of ranks by a heading and a line each. Its ranks are
those of a communicator; the process, host and GPU beside them join them to the ranks of the job. That all ranks
launched equally many operations says nothing: a collective in which all are stuck looks like that, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from nccl_triage.observations.event import Event
from nccl_triage.story import absences
from nccl_triage.story.differences import minority
from nccl_triage.story.view import View

#: Numbers above this in old counter lines are uninitialised memory (torch 2.3).
_GARBAGE = 1 << 31
#: How far a rank can run ahead of another one that takes another path: sizes that do not match fit NCCL's buffers a few
#: times. Who waits further back waits in another group, or its GPU has not finished what the others finished.
_RUNS_AHEAD = 256
#: Operations that end at different times on different ranks, and how far a sender may be ahead of a receiver.
_ONE_SIDED = ("BROADCAST", "REDUCE", "SEND", "RECV", "GATHER", "SCATTER", "COALESCED")
_AHEAD = 64
#: A watchdog looks every few seconds: one that sees an operation this many times its timeout old did not run.
_OVERRAN = 2
#: Messages between two ranks are numbered apart from the collectives of their group.
_MESSAGES = ("SEND", "RECV", "COALESCED")
#: Collectives in which each rank may pass its own sizes.
_OWN_SIZES = ("ALLTOALL", "GATHER", "SCATTER")


@dataclass(slots=True)
class Standing:
    """How far one rank got in a process group, and what it says about the operation in which it is stuck."""

    rank: int | None
    event: Event
    seq: int | None = None
    op: str | None = None
    numel_in: int | None = None
    numel_out: int | None = None
    timeout_ms: int | None = None
    elapsed_ms: int | None = None
    enqueued: int | None = None
    completed: int | None = None
    group: str | None = None
    #: Whether it gave up waiting itself; otherwise it only printed its counters when another rank did.
    gave_up: bool = True

    @property
    def arrival(self) -> float | None:
        """When the rank enqueued the operation, in seconds of its own clock."""
        time = self.event.context.time
        return None if time is None or self.elapsed_ms is None else time - self.elapsed_ms / 1000

    @property
    def shape(self) -> tuple[object, ...]:
        """What must be equal on all ranks of a collective: the operation and, for most, the sizes."""
        return (self.op,) if (self.op or "").startswith(_OWN_SIZES) else (self.op, self.numel_in, self.numel_out)

    @property
    def call(self) -> str:
        """The operation with its number of elements, as ``ALLREDUCE(1024)``."""
        return f"{self.op}({self.numel_in})" if self.numel_in is not None else str(self.op)

    @property
    def has_work(self) -> bool | None:
        """Whether it has enqueued work that is not completed; None without counters."""
        if self.enqueued is None or self.completed is None:
            return None
        return self.enqueued > self.completed


@dataclass(slots=True)
class Group:
    """The standings of one process group."""

    name: str | None
    standings: list[Standing] = field(default_factory=list)

    def ahead(self) -> list[Standing]:
        """Return the minority that went on, if all others have completed everything that they enqueued."""
        busy = [one for one in self.standings if one.has_work]
        idle = [one for one in self.standings if one.has_work is False]
        if not busy or len(busy) >= len(idle):
            return []
        last = max(one.enqueued or 0 for one in idle)
        return [one for one in busy if one.completed is not None and one.completed <= last < (one.enqueued or 0)]

    def behind(self) -> list[Standing]:
        """Return the minority that never enqueued the operation in which the others are stuck."""
        stuck = [one.seq for one in self.standings if one.seq is not None and one.gave_up]
        if not stuck:
            return []
        found = [one for one in self.standings if one.enqueued is not None and one.enqueued < min(stuck)]
        return found if len(found) <= max(1, len(self.standings) - len(found)) else []


class Ledger:
    """The table of one run, with the comparisons that follow from it."""

    def __init__(self, view: View) -> None:
        self._view = view

    @cached_property
    def standings(self) -> list[Standing]:
        """One record for each rank that gave up waiting, joined with its counters."""
        return [one for one in self._all if one.gave_up]

    @cached_property
    def groups(self) -> list[Group]:
        """The standings by process group; where no second group is named, all belong to one."""
        names = {one.group for one in self._all if one.group}
        found: dict[str | None, Group] = {}
        for one in self._all:
            name = one.group if len(names) > 1 else None
            found.setdefault(name, Group(name)).standings.append(one)
        return list(found.values())

    @cached_property
    def _all(self) -> list[Standing]:
        found: dict[object, Standing] = {}
        for event in watchdogs(self._view):
            key = self._key(event)
            if key in found and found[key].op is not None:
                continue
            found[key] = Standing(
                rank=self._view.rank(event),
                event=event,
                seq=_integer(event, "seq"),
                op=event.fields.get("op") or event.fields.get("op_type"),
                numel_in=_integer(event, "numel_in"),
                numel_out=_integer(event, "numel_out"),
                timeout_ms=_integer(event, "timeout_ms"),
                elapsed_ms=_integer(event, "elapsed_ms", "ran_ms"),
            )
        for event in self._view.having("collective.counters", "enqueued"):
            record = found.setdefault(
                self._key(event), Standing(rank=self._view.rank(event), event=event, seq=_integer(event, "seq"))
            )
            if record.seq is None or record.seq == _integer(event, "seq"):
                _count(record, event)
        for event in self._view.having("collective.notified", "enqueued"):
            # Another rank, whose watchdog gave up, signalled this one; it prints its own counters.
            record = found.setdefault(
                self._key(event), Standing(rank=self._view.rank(event), event=event, gave_up="local" in event.fields)
            )
            if record.enqueued is None:
                _count(record, event)
        return list(found.values())

    def _key(self, event: Event) -> object:
        rank = self._view.rank(event)
        return rank if rank is not None else ("?", event.context.process_key())

    def ahead(self) -> list[Standing]:
        """Return the ranks that went on alone, of the first group in which some did."""
        return next((found for group in self.groups if (found := group.ahead())), [])

    def behind(self) -> list[Standing]:
        """Return the ranks that never entered: of the first group in which some did not, else those that RAS counts so."""
        counted = next((found for group in self.groups if (found := group.behind())), [])
        return counted or [
            Standing(rank, event, enqueued=number, gave_up=False)
            for rank, (number, event) in sorted(_lagging_by_ras(self._view).items())
        ]

    @cached_property
    def absent(self) -> absences.Named | None:
        """The ranks of the job that are named as not arrived, with the lines that name them."""
        return absences.absent(self._view)

    def unanswered(self) -> dict[int, Event]:
        """Return the ranks that gave NCCL's RAS no data, with the lines that say so."""
        return _silent_by_ras(self._view)

    def spread(self) -> tuple[int, list[Standing]] | None:
        """Return by how much ranks of one group that gave up differ in their sequence number; None where they do not."""
        found = [one for one in self.standings if one.seq is not None]
        numbers = {one.seq for one in found if one.seq is not None}
        groups = {one.group for one in found if one.group}
        if len(groups) > 1 or len(numbers) < 2:
            return None
        apart = max(numbers) - min(numbers)
        if apart > _RUNS_AHEAD:
            return None
        if apart <= _AHEAD and all(_is_one_sided(one.op) for one in found):
            return None
        return apart, found

    def overran(self) -> list[Standing]:
        """Return the standings whose watchdog looked only long after the timeout: their process itself stood still."""
        return [
            one
            for one in self.standings
            if one.timeout_ms and one.elapsed_ms is not None and one.elapsed_ms > _OVERRAN * one.timeout_ms
        ]

    def waiting_since(self) -> float | None:
        """Return when the first rank that gave up began to wait, in seconds."""
        return min((one.arrival for one in self.standings if one.arrival is not None), default=None)

    @property
    def names_groups(self) -> bool:
        """Whether every rank that gave up names its process group; numbers of different groups cannot be compared."""
        return all(one.group for one in self.standings if one.seq is not None)

    def shapes_differ(self) -> bool:
        """Tell whether ranks at different sequence numbers of one group, which all of them name, run different operations."""
        return self.names_groups and len({one.shape for one in self.standings if one.seq is not None}) > 1

    def unfinished(self) -> tuple[list[Standing], Standing] | None:
        """Return the minority of a group that never finished what the others did long ago, and the furthest of these.

        An operation that others completed had all of its members, so that no program took another path.
        """
        for group in self.groups:
            found = [one for one in group.standings if one.seq is not None and one.group and one.rank is not None]
            furthest = max(found, key=lambda one: one.seq or 0, default=None)
            top = 0 if furthest is None else furthest.seq or 0
            behind = [one for one in found if top - (one.seq or 0) > _RUNS_AHEAD and not _is_one_sided(one.op)]
            if furthest is not None and behind and 2 * len(behind) <= len(found):
                return behind, furthest
        return None

    def divided(self) -> dict[str, list[Standing]]:
        """Return host -> standings where all ranks of each host gave up at one number, and other hosts at another.

        What the ranks of a host have in common is its path to the other hosts.
        """
        found: dict[str, list[Standing]] = {}
        for one in self.standings:
            host = None if one.rank is None else self._view.host(one.event) or self._host(one.rank)
            if host is not None and one.seq is not None:
                found.setdefault(host, []).append(one)
        alike = all(len(own) > 1 and len({one.seq for one in own}) == 1 for own in found.values())
        numbers = {own[0].seq for own in found.values()}
        return found if alike and len(found) > 1 and len(numbers) > 1 else {}

    def _host(self, rank: int) -> str | None:
        info = self._view.identity.ranks.get(rank)
        return None if info is None else info.host

    def all_entered(self) -> list[Standing]:
        """Return the standings where every rank of the group entered one operation with the same shape, else nothing."""
        found = [one for one in self.standings if one.rank is not None and one.seq is not None]
        size = self.group_size() or self._view.identity.world_size
        if not found or not size or size < 2:
            return []
        same = {(one.seq, one.shape) for one in found}
        return found if len(same) == 1 and len({one.rank for one in found}) >= size else []

    def group_size(self) -> int | None:
        """Return the size of the group as far as sizes of gathers and scatters tell it."""
        for one in self.standings:
            if one.op and one.numel_in and one.numel_out:
                if "GATHER" in one.op:
                    return one.numel_out // one.numel_in
                if "REDUCE_SCATTER" in one.op:
                    return one.numel_in // one.numel_out
        return None

    def odd_shapes(self, unheard: int = 0) -> list[tuple[list[Standing], list[Standing]]]:
        """Return the minority and the rest for each place at which shapes differ; without a majority all are apart."""
        places: dict[tuple[str | None, int], list[Standing]] = {}
        one_group = len({one.group for one in self.standings if one.group}) <= 1
        for one in self.standings:
            if one.seq is not None and one.op is not None and not one.op.startswith(_MESSAGES):
                places.setdefault((None if one_group else one.group, one.seq), []).append(one)
        found: list[tuple[list[Standing], list[Standing]]] = []
        for records in places.values():
            apart = minority({number: one.shape for number, one in enumerate(records)}, unheard)
            if apart:
                odd = [records[number] for number in apart]
                found.append((odd, [one for one in records if one not in odd]))
        return found


def watchdogs(view: View) -> list[Event]:
    """Return the lines by which the watchdog of a backend, or a wait that blocks, gave up an operation that it numbers."""
    return view.having("collective.timeout", by="watchdog")


def _integer(event: Event, *names: str) -> int | None:
    for name in names:
        value = event.number(name)
        if value is not None:
            return int(value)
    return None


def _count(record: Standing, event: Event) -> None:
    enqueued = _integer(event, "enqueued", "last_enqueued")
    completed = _integer(event, "completed", "last_completed")
    record.enqueued = enqueued if enqueued is not None and enqueued < _GARBAGE else None
    record.completed = completed if completed is not None and completed < _GARBAGE else None
    record.group = event.fields.get("pg_guid") or event.fields.get("pg_uid") or record.group


def _is_one_sided(op: str | None) -> bool:
    name = (op or "").upper()
    return name.startswith(_ONE_SIDED) and "REDUCE_SCATTER" not in name and "ALL" not in name


def _rank_in_report(view: View, event: Event) -> int | None:
    """Return the job's rank of a rank that the report names."""
    pid, number = event.number("pid"), event.number("rank")
    host = event.fields.get("host")
    if pid is not None:
        named = view.identity.host_of_address(host) if host else None
        found = view.identity.rank_of_pid(int(pid), named or host)
        if found is not None:
            return found
    return int(number) if number is not None else None


def _ras_lines(view: View) -> list[Event]:
    """Return the lines of RAS reports; their field ``ras`` says which part of a report a line is."""
    return sorted(
        (e for e in view.of("collective.counters", "collective.absent") if "ras" in e.fields),
        key=lambda event: (event.source, event.line),
    )


def _lagging_by_ras(view: View) -> dict[int, tuple[int, Event]]:
    """Return the ranks that launched fewer operations than the most: how many, and the line that says so."""
    found: dict[int, tuple[int, Event]] = {}
    groups: list[tuple[float, list[Event]]] = []
    members: list[Event] | None = None
    for event in [*_ras_lines(view), None]:
        part = event.fields["ras"] if event is not None else "end"
        if event is None or part == "operation":
            _note_lagging(view, groups, found)
            groups, members = [], None
        elif part == "heading":
            members = []
            groups.append((event.number("seq") or 0.0, members))
        elif part == "single":
            groups.append((event.number("seq") or 0.0, [event]))
            members = None
        elif part == "member" and members is not None:
            members.append(event)
        else:
            members = None
    return found


def _note_lagging(view: View, groups: list[tuple[float, list[Event]]], found: dict[int, tuple[int, Event]]) -> None:
    """Record who is behind in one kind of operation: the named ranks of the groups below the highest number."""
    top = max((number for number, _ in groups), default=0.0)
    for number, members in groups:
        if number < top:
            for event in members:
                rank = _rank_in_report(view, event)
                if rank is not None:
                    found.setdefault(rank, (int(number), event))


def _silent_by_ras(view: View) -> dict[int, Event]:
    """Return the ranks of a communicator that gave no data, and the lines that say so: dead, stuck or stopped."""
    found: dict[int, Event] = {}
    inside = False
    for event in _ras_lines(view):
        if event.fields["ras"] == "member" and inside:
            rank = _rank_in_report(view, event)
            if rank is not None:
                found.setdefault(rank, event)
        else:
            inside = event.fields["ras"] == "silent"
    return found
