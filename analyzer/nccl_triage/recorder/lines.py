"""A dump as lines of text: a few about the dump, and one for each record; the same dump gives the same lines.

What may matter alone (who wrote it, the counters, what never completed) begins with ``flight recorder:``, by which
signatures find it; the many records of completed operations do not, so that nothing reads them one by one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_triage.observations.kinds import Produced
from nccl_triage.observations.recorder_table import Shape

if TYPE_CHECKING:
    from nccl_triage.recorder.dump import Dump
    from nccl_triage.recorder.entry import RecorderEntry

#: Signature of a line that a finding across ranks rests on.
RECORD = "flight-recorder.record"
PRODUCES = {
    RECORD: Produced(
        "collective.counters", "A record of a flight recorder dump that matters in comparison with other ranks."
    )
}
#: Frames shown of a completed and of an open operation, and ranks of a group.
FRAMES_DONE, FRAMES_OPEN, MAX_SPANS = 2, 8, 40


def spans(ranks: Sequence[int]) -> str:
    """Return sorted ranks as ranges: ``0-3,7``."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    shown = ",".join("-".join(map(str, part)) for part in parts[:MAX_SPANS])
    return f"{shown},.." if len(parts) > MAX_SPANS else shown


def _sizes(shape: Shape, types: Sequence[str]) -> str:
    # Sizes in brackets, types behind them: [4096,128] BFloat16
    text = "".join(f"[{','.join(map(str, tensor))}]" for tensor in shape)
    return f"{text} {'/'.join(types)}" if types else text or "[]"


def group_name(name: str, desc: str) -> str:
    """Return the name of a process group in lines and texts."""
    return f"{name} ({desc})" if desc and desc != "undefined" else name or "?"


class Writer:
    """Writes the lines of one dump."""

    def __init__(self, dump: Dump, rank: int) -> None:
        self._dump = dump
        self._who = f"[rank{rank}]: "
        self._second, self._stamp = -1, ""
        self._sizes: dict[tuple[object, ...], str] = {}
        self._last = max((entry.created or 0 for entry in dump.entries), default=0)

    def _begin(self, created: int | None) -> str:
        if not created or not 0 < created < 1 << 62:
            return self._who
        second, rest = divmod(created, 1_000_000_000)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._stamp}.{rest // 1000:06d}Z {self._who}"

    def headers(self) -> Iterator[str]:
        """Yield the lines about the dump as a whole."""
        dump, begin = self._dump, self._begin(self._last)
        if not dump.entries:
            yield f"{begin}empty flight recorder, version {dump.version}: this rank has no recorded operation"
        else:
            world = max((len(g.ranks) for g in dump.groups.values()), default=0)
            size = f", world_size={world}" if world > 1 else ""
            library = f", library {dump.library}" if dump.library else ""
            first, last = dump.entries[0].record, dump.entries[-1].record
            yield (
                f"{begin}flight recorder: dump of version {dump.version}, {len(dump.entries)} entries, "
                f"records {first} to {last}{size}{library}"
            )
        for one in dump.groups.values():
            yield f"{begin}flight recorder: group {group_name(one.name, one.desc)} has ranks {spans(one.ranks)}"
        for name, status in dump.status.items():
            yield (
                f"{begin}flight recorder: counters of group {group_name(name, dump.described.get(name, ''))}: enqueued={status.enqueued} "
                f"started={status.started} completed={status.completed}"
            )

    def broken(self) -> Iterator[tuple[str, str]]:
        """Yield the components found broken when the dump was written, with their lines."""
        for part, said in self._dump.broken.items():
            yield (
                part,
                f"{self._begin(self._last)}flight recorder: health check of {part} failed{': ' if said else ''}{said}",
            )

    def _call(self, entry: RecorderEntry) -> str:
        """Return the operation with its number, sizes and types."""
        key = (entry.inputs, entry.input_types, entry.outputs, entry.output_types)
        sizes = self._sizes.get(key)
        if sizes is None:
            given, taken = _sizes(entry.inputs, entry.input_types), _sizes(entry.outputs, entry.output_types)
            sizes = self._sizes[key] = f"in={given} out={taken}"
        if entry.src is None:
            return f"{entry.op} seq={entry.seq} {sizes}"
        return f"{entry.op} {entry.src}->{entry.dst} p2p_seq={entry.p2p_seq} {sizes}"

    def record(self, entry: RecorderEntry) -> str:
        """Return the line of one record."""
        what = f"record {entry.record} of group {group_name(entry.group, entry.desc)}: {self._call(entry)}"
        frames = entry.frames
        if entry.done:
            where = " < ".join(frames[:FRAMES_DONE])
            state = entry.state if entry.state == "completed" else f"{entry.state}, retired"
            head = what
        else:
            where = " < ".join(frames[:FRAMES_OPEN])
            state = f"{entry.state} and given up" if entry.failed else f"{entry.state}, not completed"
            head = f"flight recorder: open {what}"
        limit = f" limit={entry.timeout_ms}ms" if entry.timeout_ms and not entry.done else ""
        return f"{self._begin(entry.created)}{head} {state}{limit}{f' at {where}' if where else ''}"
