"""Numbers for curves, and connections between ranks, that lines state.

Both go into tables of their own beside the events (``Observations.curves`` and ``links``). They show a reader what happened
and prove nothing, so neither rules nor the classifier see them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import NamedTuple

from nccl_triage.observations import links
from nccl_triage.observations.curves import NOT_KNOWN, CurveProcess, CurveRow, CurveTable, kind_of, mark_of, seed_of
from nccl_triage.observations.event import Context
from nccl_triage.observations.links import LinkSighting, LinkTable
from nccl_triage.parsers.series import SeriesReader, SeriesReading, may_be_strange, stated_rank
from nccl_triage.parsers.wrappers import Peeled

#: Signature of the lines that name a connection.
LINK = "nccl.channel_via_net"
#: Stands among the formats of a line that has a literal of a number that is not finite.
NOT_FINITE = "not-finite"
#: Last lines of numbers, by kind and process, that are remembered until the end of the source.
MAX_WAITING = 4096


def literals(reader: SeriesReader) -> dict[str, tuple[str, ...]]:
    """Return what a prefilter looks for: the literals of each format, and of numbers that are not finite."""
    return {**reader.literals, NOT_FINITE: ("nan", "NaN", "NAN", "inf", "Inf")}


class _Kind(NamedTuple):
    """What a line's literals say before it is read: the formats that may read it, and whether a number may be nan."""

    number: int
    formats: tuple[str, ...]
    suspicious: bool


@lru_cache(maxsize=4096)
def _kind(formats: tuple[str, ...]) -> _Kind:
    among = tuple(name for name in formats if name != NOT_FINITE)
    return _Kind(kind_of(among), among, NOT_FINITE in formats)


def states_numbers(formats: tuple[str, ...]) -> bool:
    """Tell whether a line with literals of these formats may state numbers of a curve."""
    return bool(_kind(formats).formats)


class CurveSampler:
    """Takes the numbers of one source: all of them of a short log, a sample of the lines of a long one."""

    def __init__(self, reader: SeriesReader, source: str, into: CurveTable) -> None:
        self._reader = reader
        self._source = source
        self._seed = seed_of(source)
        self._table = into
        self._waiting: dict[tuple[int, CurveProcess], tuple[Peeled, int, _Kind]] = {}
        self._processes: dict[tuple[object, ...], CurveProcess] = {}

    def wanted(self, formats: tuple[str, ...], line: int) -> bool:
        """Tell whether a line with literals of these formats may have to be read."""
        kind = _kind(formats)
        return bool(kind.formats) and (kind.suspicious or self._table.wants(kind.number, mark_of(self._seed, line)))

    def sampled(self, formats: tuple[str, ...], line: int) -> bool:
        """Tell whether the place of a line may put it into the sample."""
        kind = _kind(formats)
        return bool(kind.formats) and self._table.wants(kind.number, mark_of(self._seed, line))

    def reads(self, peeled: Peeled, formats: tuple[str, ...]) -> bool:
        """Tell whether a line with literals of these formats states numbers of a curve."""
        return self._reading(peeled, _kind(formats)) is not None

    def process_of(self, peeled: Peeled, formats: tuple[str, ...]) -> Hashable | None:
        """Return whose curve a line continues; None if each such line must be read."""
        kind = _kind(formats)
        if not kind.formats:
            return ()
        return None if kind.suspicious and may_be_strange(peeled.text) else self._process(peeled)

    def take(self, peeled: Peeled, line: int, formats: tuple[str, ...], advances: bool) -> None:
        """Read a line, or remember it as the last one of its process; ``advances``: it shows that the job goes on."""
        kind = _kind(formats)
        if not kind.formats:
            return
        wanted = self._table.wants(kind.number, mark_of(self._seed, line))
        if wanted or (kind.suspicious and may_be_strange(peeled.text)):
            self._read(peeled, line, kind, self._process(peeled), advances)
        elif advances:
            process = self._process(peeled)
            if not self._table.follows(kind.number, process):
                return
            key = (kind.number, process)
            # Whoever waits has a first row, or will never have one.
            if key not in self._waiting and self._table.lacks(kind.number, process):
                self._read(peeled, line, kind, process, advances)
            elif key in self._waiting:
                if line > self._waiting[key][1]:
                    self._waiting[key] = (peeled, line, kind)
            elif len(self._waiting) < MAX_WAITING:
                self._waiting[key] = (peeled, line, kind)

    def finish(self) -> None:
        """Read the last line of each process."""
        for (_, process), (peeled, line, kind) in self._waiting.items():
            self._read(peeled, line, kind, process, True)

    def _read(self, peeled: Peeled, line: int, kind: _Kind, process: CurveProcess, advances: bool) -> None:
        found = self._reading(peeled, kind)
        if found is not None:
            row = _row(found, self._source, line, peeled.context, process)
            self._table.add(kind.number, mark_of(self._seed, line), row, advances)

    def _reading(self, peeled: Peeled, kind: _Kind) -> SeriesReading | None:
        return self._reader.read(peeled.text, kind.formats) if " NCCL " not in peeled.text else None

    def _process(self, peeled: Peeled) -> CurveProcess:
        """Return who printed a line, one object for all its lines."""
        context = peeled.context
        rank = context.rank
        if rank is None and context.group_rank is None and "ank" in peeled.text:
            rank = stated_rank(peeled.text)
        key = (rank, context.local_rank, context.group_rank, context.host, context.place, context.pid, context.writer)
        known = self._processes.get(key)
        if known is None:
            # What looked like the head of an NCCL line in a line that is none was a time of day ("14:22:01 - INFO -").
            host, pid = (None, None) if context.program == "nccl" else (context.host, context.pid)
            numbers = (_known(rank), _known(context.local_rank), _known(context.group_rank))
            known = self._processes[key] = CurveProcess(
                *numbers, host or "", _known(pid), self._source, context.place or "", _known(context.writer)
            )
        return known


def _known(number: int | None) -> int:
    return NOT_KNOWN if number is None else number


def _row(found: SeriesReading, source: str, line: int, context: Context, process: CurveProcess) -> CurveRow:
    return CurveRow(
        source,
        line,
        found.step,
        found.epoch,
        -1.0 if context.time is None else context.time,
        process,
        tuple((metric, value) for metric, value in found.values if math.isfinite(value)),
        tuple((metric, _word(value)) for metric, value in found.values if not math.isfinite(value)),
    )


def _word(value: float) -> str:
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


class LinkCollector:
    """Takes the connections that one source names; their lines repeat for every channel."""

    def __init__(self, source: str, into: LinkTable) -> None:
        self._source = source
        self._table = into
        self._known: dict[tuple[object, ...], LinkSighting] = {}

    @property
    def count(self) -> int:
        """Lines that named a connection."""
        return self._table.lines

    @count.setter
    def count(self, number: int) -> None:
        self._table.lines = number

    @staticmethod
    def key(fields: Mapping[str, str], context: Context) -> tuple[object, ...]:
        """Return what tells connections apart."""
        get = fields.get
        return (
            context.host, context.place, context.pid, get("src"), get("src_dev"), get("dst"), get("dst_dev"), get("dir"),
            get("transport"), get("detail"),
        )  # fmt: skip

    def take(self, fields: Mapping[str, str], context: Context, line: int) -> bool:
        """Note the connection that an event of ``LINK`` names; returns whether it is a new one that was looked for."""
        key = self.key(fields, context)
        seen = self._known.get(key)
        new = seen is None
        if seen is None:
            found = links.read(fields, context.host, context.pid)
            if found is None:
                return False
            if len(self._known) >= links.MAX_LINKS:
                self._known.clear()
            seen = self._known[key] = self._table.seen(found, self._source, line)
        self._table.lines += 1
        seen.channels |= links.channel_bit(fields["channel"])
        enough = len(self._table.links) > self._table.wanted
        self._table.cut = self._table.cut or enough
        return new and not enough
