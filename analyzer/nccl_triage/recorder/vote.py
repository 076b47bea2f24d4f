"""Whether the ranks of a call agree, and who does not: the majority is believed, whichever rank comes first.

What must be equal follows from the operation (torch ``distributed_c10d.py``): the root of a scatter has other sizes than
the rest, an all-to-all may be uneven. The number of elements counts, not the shape: [4,2] and [8] are equal. Sequence
numbers of sends and receives do not match between ranks (each rank counts all its peers together), so their ends are
paired in order: by their count where nothing was overwritten, otherwise by what is still open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from nccl_triage.observations.recorder_table import Cell, End, GroupKey, RecorderLine, RecorderTable, Way
from nccl_triage.recorder.lines import group_name

#: The most lines of a finding.
MAX_LINES = 6


@dataclass(slots=True)
class RecorderFinding:
    """Something wrong with one call of one group. ``ranks`` are those in the wrong, none where that cannot be told.

    ``kind``: operation, size, dtype (ranks disagree), missing (ranks did not come), ahead (ranks came to what the rest
    did not), lagging (ranks did not complete what others did), unfinished (the same by the counters of ranks that went on
    issuing), early (ranks completed what the rest did not), state (some
    came out of an operation with a root: who is wrong cannot be told), unmet (a send without receive or the other way round), entered (all came, nobody completed), others (all who are known to
    belong to it came, nobody completed: it may wait for ``ranks``).
    """

    kind: str
    group: str
    seq: int
    op: str
    ranks: tuple[int, ...]
    others: tuple[int, ...]
    lines: tuple[RecorderLine, ...]
    #: Whether the recorder itself says that it was waited for until a timeout.
    given_up: bool = False
    #: skipped, inserted or exchanged, with the number of calls.
    order: tuple[str, int] = ("", 0)
    #: That ``ranks`` belong to the group is derived, not recorded.
    derived: bool = False


#: Operations of which ranks may bring (or get) different amounts.
_FREE_INPUT = ("scatter", "all_to_all", "alltoall")
_FREE_OUTPUT = ("gather", "all_to_all", "alltoall")
_GATHERS = ("all_gather", "_all_gather_base", "all_gather_base", "all_gather_into_tensor_coalesced")
_SCATTERS = ("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced")
_SAME = ("all_reduce", "allreduce_coalesced")

Signature = tuple[str, tuple[int, ...] | None, tuple[int, ...] | None, tuple[str, ...]]


def ranks_of(bits: int) -> list[int]:
    """Return the ranks of a bit set."""
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def bits_of(ranks: Iterable[int]) -> int:
    """Return ranks as a bit set."""
    bits = 0
    for rank in ranks:
        bits |= 1 << rank
    return bits


def _is(op: str, names: tuple[str, ...]) -> bool:
    return op in names or (op.startswith(("all_to_all", "alltoall")) and "all_to_all" in names)


def elements(shape: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """Return the number of elements of each tensor."""
    return tuple(prod(tensor) for tensor in shape)


def signature(way: Way) -> Signature:
    """Return what must be equal on all ranks."""
    inputs = None if _is(way.op, _FREE_INPUT) else elements(way.inputs)
    outputs = None if _is(way.op, _FREE_OUTPUT) else elements(way.outputs)
    # A rank that only gives or only takes has no types on the other side.
    types = way.input_types if inputs is not None and way.input_types else way.output_types
    return (way.op, inputs, outputs, tuple(sorted(types)))


def malformed(way: Way, size: int) -> bool:
    """Tell whether a call is wrong by itself in a group of this size (0 if unknown)."""
    given, taken = sum(elements(way.inputs)), sum(elements(way.outputs))
    if not way.inputs or not way.outputs:
        return False
    if way.op in _SAME:
        return given != taken
    if size < 2:
        return False
    if way.op in _GATHERS:
        return taken != given * size
    return way.op in _SCATTERS and given != taken * size


@dataclass(slots=True)
class Verdict:
    """A call on which ranks disagree. ``odd`` are the ranks in the wrong; none where there is no majority."""

    kind: str
    odd: tuple[int, ...]
    common: tuple[int, ...]
    odd_line: RecorderLine
    common_line: RecorderLine


def _sides(cell: Cell) -> dict[tuple[Signature, ...], int]:
    """Return the ranks by everything that they issued under one number, which a batch of operations shares."""
    ways = [(signature(way), callers.ranks) for way, callers in cell.ways.items()]
    overlap = 0
    seen = 0
    for _, bits in ways:
        overlap |= seen & bits
        seen |= bits
    found: dict[tuple[Signature, ...], int] = {}
    for one, bits in ways:
        alone = bits & ~overlap
        if alone:
            found[(one,)] = found.get((one,), 0) | alone
    for rank in ranks_of(overlap):
        key = tuple(sorted((one for one, bits in ways if bits >> rank & 1), key=repr))
        found[key] = found.get(key, 0) | 1 << rank
    return found


def _kind(one: tuple[Signature, ...], two: tuple[Signature, ...]) -> str:
    if [part[0] for part in one] != [part[0] for part in two]:
        return "operation"
    return "size" if [part[1:3] for part in one] != [part[1:3] for part in two] else "dtype"


def line_of(cell: Cell, rank: int) -> RecorderLine | None:
    """Return a line that shows how a rank (or one that did the same) made a call."""
    found = [callers.example for callers in cell.ways.values() if callers.ranks >> rank & 1]
    own = [line for line in found if line.rank == rank]
    return min(own or found, default=None)


def disagreement(cell: Cell, size: int) -> Verdict | None:
    """Return the disagreement on a call, None where all agree. ``size`` is that of the group, 0 if unknown."""
    if len({callers.ranks for callers in cell.ways.values()}) < 2:
        return None  # one way, or a batch that all made alike
    sides = _sides(cell)
    if len(sides) < 2:
        return _unbalanced(cell, size)
    ordered = sorted(sides.items(), key=lambda side: (-side[1].bit_count(), repr(side[0])))
    common, bits = ordered[0]
    if 2 * bits.bit_count() > sum(side.bit_count() for side in sides.values()):
        wrong = bits_of(rank for _, side in ordered[1:] for rank in ranks_of(side))
    else:
        wrong = _wrong_by_itself(cell, size)
        common, bits = next(((one, side) for one, side in ordered if not side & wrong), ordered[0])
    other, other_bits = next((one, side) for one, side in ordered if (side & wrong if wrong else one != common))
    odd_line, common_line = line_of(cell, ranks_of(other_bits)[0]), line_of(cell, ranks_of(bits)[0])
    if odd_line is None or common_line is None:
        return None
    return Verdict(_kind(common, other), tuple(ranks_of(wrong)), tuple(ranks_of(bits)), odd_line, common_line)


def _unbalanced(cell: Cell, size: int) -> Verdict | None:
    """Return the disagreement on an uneven all-to-all of which more or less is sent than received.

    Each rank may bring and get amounts of its own, but what all of them bring is what all of them get. Where all but
    one bring as much as they get, and as much as each other, that one is in the wrong; else nobody can tell who.
    """
    amounts: dict[int, tuple[int, int]] = {}
    for way, callers in cell.ways.items():
        if not way.op.startswith(("all_to_all", "alltoall")):
            return None
        for rank in ranks_of(callers.ranks):
            if rank in amounts:
                return None  # several calls under one number
            amounts[rank] = (sum(elements(way.inputs)), sum(elements(way.outputs)))
    if len(amounts) != size:
        return None  # not all are known
    if sum(given for given, _ in amounts.values()) == sum(taken for _, taken in amounts.values()):
        return None
    usual, often = Counter(amounts.values()).most_common(1)[0]
    odd = [rank for rank, amount in amounts.items() if amount != usual]
    if usual[0] != usual[1] or often < size - 1 or size < 3:
        odd = []
    common = [rank for rank in amounts if rank not in odd]
    lines = line_of(cell, (odd or common)[0]), line_of(cell, common[-1])
    return Verdict("size", tuple(odd), tuple(common), lines[0], lines[1]) if lines[0] and lines[1] else None


def _wrong_by_itself(cell: Cell, size: int) -> int:
    """Return the ranks (as bits) whose call is wrong by itself, where those of others are not."""
    wrong = right = 0
    for way, callers in cell.ways.items():
        if malformed(way, size):
            wrong |= callers.ranks
        else:
            right |= callers.ranks
    return wrong & ~right if right & ~wrong else 0


def unmet_pairs(table: RecorderTable, members: Mapping[GroupKey, tuple[int, ...]]) -> list[RecorderFinding]:
    """Return the sends and receives that never met."""
    found: list[RecorderFinding] = []
    for key, source, target in sorted({place[:3] for place in table.pairs}):
        send = table.pairs.get((key, source, target, "send"))
        receive = table.pairs.get((key, source, target, "recv"))
        waiting = next((end for end in (send, receive) if end is not None and end.open), None)
        if waiting is None:
            continue
        name = group_name(key.name, key.desc)
        if send is not None and receive is not None and send.open and receive.open:
            wrong = _differ(send, receive)
            if wrong:
                ends = (send.open[0][1], receive.open[0][1])
                found.append(
                    RecorderFinding(wrong, name, -1, f"send {source}->{target}", (), (send.rank, receive.rank), ends)
                )
            continue
        other = receive if waiting is send else send
        peer = _global(members.get(key), target if waiting is send else source)
        if peer is None or (peer,) not in table.dumps or _may_have(waiting, other):
            continue
        op, side = waiting.open[0][0].op, waiting.open[0][1]
        lines = [side, *_last(table, key, peer)]
        found.append(
            RecorderFinding("unmet", name, -1, f"{op} {source}->{target}", (peer,), (waiting.rank,), tuple(lines))
        )
    return found


def _global(members: tuple[int, ...] | None, rank: int) -> int | None:
    """Return the global rank of a rank in a group; the same number where the members are unknown."""
    if members is None:
        return rank
    return members[rank] if rank < len(members) else None


def _may_have(waiting: End, other: End | None) -> bool:
    """Tell whether the counterpart may have been issued after all."""
    if other is not None:
        return not (waiting.cut or other.cut) and other.total >= waiting.total
    return False


def _differ(send: End, receive: End) -> str:
    """Return how the first open ends of both sides differ."""
    given, taken = send.open[0][0], receive.open[0][0]
    if not (send.cut or receive.cut) and send.done != receive.done:
        return ""
    if elements(given.inputs or given.outputs) != elements(taken.outputs or taken.inputs):
        return "size"
    one, two = given.input_types or given.output_types, taken.output_types or taken.input_types
    return "dtype" if one and two and one != two else ""


def _last(table: RecorderTable, key: GroupKey, rank: int) -> list[RecorderLine]:
    standing = table.standings.get((key, rank))
    line = (standing.open or standing.last) if standing is not None else None
    return [line] if line is not None else []
