"""Compares the dumps of all ranks: who disagrees, who is missing, which sends were never received, and who only waits.

Only calls that all dumps cover are compared: a ring buffer that overwrote its beginning tells nothing of it, and a rank
without a dump is not blamed. Of each group only the first wrong call counts, since later ones may be wrong because of
it. A rank that is missing in one group while it waits in another is a victim itself, so the waits are followed to the
ranks that wait for nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nccl_triage.observations.recorder_table import GroupProgress, RecorderLine, RecorderTable
from nccl_triage.recorder import groups, vote
from nccl_triage.recorder.groups import GroupView, comparable
from nccl_triage.recorder.lines import group_name
from nccl_triage.recorder.vote import MAX_LINES, RecorderFinding, bits_of, ranks_of

#: The most waits that are followed from rank to rank.
MAX_FOLLOWED = 1024
#: Operations by which a rank must be behind another of its group: a dump may be written while one more completes.
_BEHIND = 2
#: Operations that end at different times on different ranks, and whose root no record shows.
_ONE_SIDED = ("broadcast", "gather", "scatter", "_broadcast")


@dataclass(slots=True)
class RecorderComparison:
    """The findings of all dumps of a job."""

    world: int = 0
    dumped: tuple[int, ...] = ()
    empty: tuple[int, ...] = ()
    #: Members of a group without a dump.
    absent: tuple[int, ...] = ()
    versions: tuple[str, ...] = ()
    findings: list[RecorderFinding] = field(default_factory=list)
    #: Ranks that wait in a call that does not complete.
    waiting: dict[int, RecorderLine] = field(default_factory=dict)
    cut: bool = False

    def of(self, *kinds: str) -> list[RecorderFinding]:
        """Return the findings of these kinds."""
        return [finding for finding in self.findings if finding.kind in kinds]


def compare(table: RecorderTable) -> RecorderComparison:
    """Compare all dumps."""
    found = RecorderComparison(cut=table.cut)
    found.dumped = tuple(sorted(rank for (rank,) in table.dumps))
    found.empty = tuple(sorted(rank for (rank,), dump in table.dumps.items() if not dump.entries))
    members = {rank for ranks in table.groups.values() for rank in ranks}
    found.world = len(max(table.groups.values(), key=len, default=())) or len(found.dumped)
    found.absent = tuple(sorted(members - set(found.dumped)))
    found.versions = tuple(sorted({dump.version for dump in table.dumps.values()}))
    everything = list(groups.views(table))
    stands: dict[int, set[str]] = {}
    for view in everything:
        finding = _first(view)
        if finding is not None:
            found.findings.append(finding)
        for rank, standing in view.standings.items():
            if standing.open is not None:
                stands.setdefault(rank, set()).add(group_name(view.key.name, view.key.desc))
                found.waiting[rank] = min(
                    standing.open, found.waiting.get(rank, standing.open), key=lambda line: (line.created, line)
                )
    found.findings += vote.unmet_pairs(table, {view.key: view.members for view in everything if view.stated})
    _follow(found, stands)
    found.findings += _unfinished(everything, len(found.dumped))
    return found


def _unfinished(everything: list[GroupView], dumps: int) -> list[RecorderFinding]:
    """Return the ranks whose GPU has not finished what it had issued, and what others of its group finished.

    An operation that others completed had all of its members, so that no program took another path: the GPU, its kernel
    or the transport of these ranks stands still. Their hosts may run ahead, and then every operation is entered.
    """
    furthest: dict[int, tuple[int, int]] = {}
    for index, view in enumerate(everything):
        known = _counted(view) if view.stated else {}
        top = max((one.completed for one in known.values()), default=0)
        for rank, one in known.items():
            behind = top - one.completed
            collective = one.open_way is not None and not _is_one_sided(one.open_way.op)
            if one.open is not None and collective and one.open_seq <= top and behind >= _BEHIND:
                furthest[rank] = max(furthest.get(rank, (0, 0)), (behind, -index))
    if 2 * len(furthest) >= dumps:
        return []
    found = []
    for index in sorted({-index for _, index in furthest.values()}):
        view = everything[index]
        ranks = sorted(rank for rank, (_, at) in furthest.items() if at == -index)
        seq = min(view.standings[rank].open_seq for rank in ranks)
        others = [rank for rank, one in sorted(view.standings.items()) if one.completed >= seq and rank not in ranks]
        standings = [view.standings[rank] for rank in (*ranks[:4], *others[:2])]
        lines = [line for one in standings if (line := one.open or one.last) is not None]
        found.append(_finding(view, seq, "unfinished", tuple(ranks), tuple(others), lines))
    return found


def _first(view: GroupView) -> RecorderFinding | None:
    """Return what is wrong with the first wrong call of a group."""
    for seq in view.seqs():
        cell = view.cells[seq]
        verdict = vote.disagreement(cell, view.size)
        if verdict is not None and not _harmless(view, seq):
            odd = verdict.odd or tuple(ranks_of(cell.ranks))
            how = groups.order_of_calls(view, seq, odd[0], verdict.common[0]) if verdict.odd else ("", 0)
            return _finding(
                view, seq, verdict.kind, verdict.odd, verdict.common, (verdict.odd_line, verdict.common_line), how
            )
        missing = view.absent_from(seq)
        if missing and cell.ranks & view.expected:
            return _missing(view, seq, missing)
    return _incomplete(view)


def _harmless(view: GroupView, seq: int) -> bool:
    """Tell whether all ranks completed a call; Gloo's recorder does not say so."""
    cell = view.cells[seq]
    done = 0
    for callers in cell.ways.values():
        done |= callers.done
    gloo = any(standing.backend == "gloo" for standing in view.standings.values())
    return not gloo and done == cell.ranks


def _missing(view: GroupView, seq: int, missing: int) -> RecorderFinding | None:
    there = ranks_of(view.cells[seq].ranks)
    gone = ranks_of(missing)
    line = vote.line_of(view.cells[seq], there[0])
    own = [standing.last for rank in gone[:4] if (standing := view.standings.get(rank)) is not None and standing.last]
    if len(gone) <= len(there):
        lines = [one for one in (line, *own) if one is not None]
        return _finding(view, seq, "missing", tuple(gone), tuple(there), lines)
    lines = [one for rank in there[:3] if (one := vote.line_of(view.cells[seq], rank)) is not None]
    return _finding(view, seq, "ahead", tuple(there), tuple(gone), [*lines, *own[:2]])


def _incomplete(view: GroupView) -> RecorderFinding | None:
    """Return the finding for the first call that all ranks made alike and not all completed."""
    for seq in view.seqs():
        cell = view.cells[seq]
        done = failed = 0
        for callers in cell.ways.values():
            done |= callers.done
            failed |= callers.failed
        waiting = cell.ranks & ~done
        if not waiting:
            continue
        lagging = bits_of(rank for rank in ranks_of(waiting) if not _completed(view, rank, seq))
        ahead = cell.ranks & ~lagging
        if not lagging:
            continue
        lines = [one for rank in ranks_of(lagging)[:3] if (one := vote.line_of(cell, rank)) is not None]
        if not ahead:
            if view.expected & ~cell.ranks:
                return None
            if not view.stated:
                possible = tuple(sorted(view.possible))
                return _finding(view, seq, "others", possible, tuple(ranks_of(lagging)), lines) if possible else None
            return _finding(view, seq, "entered", (), tuple(ranks_of(lagging)), lines, given_up=bool(failed))
        if _one_sided(view, seq):
            lines += [one for rank in ranks_of(ahead)[:2] if (one := vote.line_of(cell, rank)) is not None]
            return _finding(view, seq, "state", (), tuple(ranks_of(lagging)), lines, given_up=bool(failed))
        if lagging.bit_count() <= ahead.bit_count():
            odd, rest, kind = lagging, ahead, "lagging"
        else:
            odd, rest, kind = ahead, lagging, "early"
        lines += [one for rank in ranks_of(ahead)[:2] if (one := vote.line_of(cell, rank)) is not None]
        return _finding(view, seq, kind, tuple(ranks_of(odd)), tuple(ranks_of(rest)), lines, given_up=bool(failed))
    return _by_counters(view)


def _one_sided(view: GroupView, seq: int) -> bool:
    return any(_is_one_sided(way.op) for way in view.cells[seq].ways)


def _is_one_sided(op: str) -> bool:
    return op.startswith(_ONE_SIDED) or op == "reduce"


def _completed(view: GroupView, rank: int, seq: int) -> bool:
    standing = view.standings[rank]
    return standing.done_seq >= seq or (comparable(standing) and standing.completed >= seq)


def _counted(view: GroupView) -> dict[int, GroupProgress]:
    """Return the standings whose counters tell how many collectives were completed; none of Gloo, which never says so."""
    known = {rank: one for rank, one in view.standings.items() if comparable(one) and one.completed >= 0}
    return {} if any(one.backend == "gloo" for one in known.values()) else known


def _by_counters(view: GroupView) -> RecorderFinding | None:
    """Return the ranks that lag by their last completed call, where all ranks count alike and issued the same calls."""
    known = _counted(view)
    if len(known) < 3 or len(known) < len(view.standings):
        return None
    top = max(standing.completed for standing in known.values())
    if top in view.cells and _one_sided(view, top):
        return None
    behind = sorted(rank for rank, standing in known.items() if standing.completed < top)
    if not behind or 2 * len(behind) > len(known):
        return None
    lines = [line for rank in behind[:4] if (line := known[rank].open or known[rank].last) is not None]
    return (
        _finding(view, top, "lagging", tuple(behind), tuple(sorted(set(known) - set(behind))), lines) if lines else None
    )


def _finding(
    view: GroupView, seq: int, kind: str, ranks: tuple[int, ...], others: tuple[int, ...],
    lines: tuple[RecorderLine, ...] | list[RecorderLine], how: tuple[str, int] = ("", 0), given_up: bool = False,
) -> RecorderFinding:  # fmt: skip
    cell = view.cells.get(seq)
    op = min((way.op for way in cell.ways), default="") if cell is not None else ""
    if not given_up and cell is not None:
        given_up = any(callers.failed for callers in cell.ways.values())
    name = group_name(view.key.name, view.key.desc)
    shown, derived = tuple(dict.fromkeys(lines))[:MAX_LINES], view.guessed(ranks)
    return RecorderFinding(kind, name, seq, op, ranks, others, shown, given_up, how, derived)


def _follow(found: RecorderComparison, stands: Mapping[int, set[str]]) -> None:
    """Clear the ranks that are missing because they wait in another group; where all do, their order of calls differs.

    ``stands``: the groups in which each rank has issued a call that did not complete.
    """
    blocked = found.of("missing", "unmet", "others")[:MAX_FOLLOWED]
    stuck_in: dict[int, list[int]] = {}
    for index, finding in enumerate(blocked):
        for rank in finding.others:
            stuck_in.setdefault(rank, []).append(index)
    for index, finding in enumerate(blocked):
        free = [rank for rank in finding.ranks if not stands.get(rank, set()) - {finding.group}]
        if finding.kind == "others":
            # Some of them belong to the group: only where none is free it does not matter who.
            finding.kind = "others" if free or _leads_out(blocked, stuck_in, index) else "circle"
        elif free:
            finding.ranks = tuple(free)
        elif _leads_out(blocked, stuck_in, index):
            finding.kind = "waits"
        else:
            finding.kind = "circle"
    found.findings = [finding for finding in found.findings if finding.kind != "others"]


def _leads_out(blocked: list[RecorderFinding], stuck_in: dict[int, list[int]], start: int) -> bool:
    """Tell whether following the waits from a call reaches a rank whose own wait is unknown."""
    seen, queue = {start}, [start]
    while queue:
        for rank in blocked[queue.pop()].ranks:
            nexts = stuck_in.get(rank, [])
            if not nexts:
                return True
            queue += [index for index in nexts if index not in seen]
            seen.update(nexts)
    return False
