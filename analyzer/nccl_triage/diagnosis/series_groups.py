"""The numbers that programs printed, by metric, rank and source: what the curves of a report are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field

from nccl_triage.diagnosis.case import Case
from nccl_triage.observations.curves import NOT_KNOWN, CurveProcess, CurveRow
from nccl_triage.observations.event import Context, Event

#: Points of one curve, and numbers of one rank up to which all ranks are drawn as one.
MAX_POINTS, FEW = 240, 3


@dataclass(slots=True)
class Group:
    """The numbers of one metric by one rank in one source; rank None and source None for all together."""

    rank: int | None
    source: str | None
    #: Row -> its number, in the order in which the rows are to be drawn when there is no room for all.
    values: dict[CurveRow, float] = field(default_factory=dict)
    strange: dict[CurveRow, str] = field(default_factory=dict)
    strange_count: int = 0
    #: How many numbers the program printed, and whether that is an estimate.
    printed: float = 0.0
    sampled: bool = False

    @property
    def count(self) -> int:
        """How many numbers there are to draw."""
        return len(self.values) + len(self.strange)

    def ends(self) -> list[CurveRow]:
        """Return the first, last, lowest and highest row."""
        if not self.values:
            return []
        low = min(self.values, key=lambda row: (self.values[row], row))
        high = max(self.values, key=lambda row: (self.values[row], row))
        return [min(self.values), max(self.values), low, high]

    def chosen(self) -> list[CurveRow]:
        """Return the rows to draw, in order: the extremes, and as many others as there is room for."""
        ends = dict.fromkeys(self.ends())
        others = [row for row in self.values if row not in ends and row not in self.strange]
        room = MAX_POINTS - len(ends) - len(self.strange)
        return sorted({*ends, *others[:room], *self.strange})

    def absorb(self, other: Group) -> None:
        """Take over the numbers of another group."""
        self.values.update(other.values)
        self.strange.update(other.strange)
        self.strange_count += other.strange_count
        self.printed += other.printed
        self.sampled = self.sampled or other.sampled


def rank_of(case: Case, process: CurveProcess) -> int | None:
    """Return the global rank of who printed a line, or None."""
    context = Context(
        rank=_known(process.rank),
        local_rank=_known(process.local_rank),
        group_rank=_known(process.group_rank),
        host=process.host or None,
        pid=_known(process.pid),
    )
    return case.rank(Event("", process.source, 0, "", context))


def _known(number: int) -> int | None:
    return None if number == NOT_KNOWN else number


def collect(case: Case) -> dict[str, list[Group]]:
    """Return the groups of each metric: by rank and source, or all together where each has too few numbers."""
    table = case.observations.curves
    shares = {kind: sample.share() for kind, sample in table.samples.items()}
    ranks: dict[CurveProcess, int | None] = {}
    groups: dict[str, dict[tuple[int | None, str], Group]] = {}

    def group(metric: str, row: CurveRow) -> Group:
        if row.process not in ranks:
            ranks[row.process] = rank_of(case, row.process)
        key = (ranks[row.process], row.source)
        return groups.setdefault(metric, {}).setdefault(key, Group(*key))

    for _, kind, row in table.sampled():
        for metric, value in row.values:
            found = group(metric, row)
            found.values[row] = value
            found.printed += 1 / shares[kind]
            found.sampled = found.sampled or shares[kind] < 1
    for row in table.outermost():
        for metric, value in row.values:
            group(metric, row).values.setdefault(row, value)
    for metric, (rows, number) in sorted(table.strange.items()):
        for row in rows:
            found = group(metric, row)
            found.strange[row] = dict(row.strange)[metric]
            found.strange_count = number if len(rows) < number else len(found.strange)
    return {metric: _together(list(found.values())) for metric, found in groups.items()}


def _together(groups: list[Group]) -> list[Group]:
    """Return the groups, or one of all of them where each has too few numbers for a curve."""
    if len(groups) < 2 or max(group.count for group in groups) > FEW or sum(group.count for group in groups) <= FEW:
        return groups
    sources = {group.source for group in groups}
    whole = Group(None, sources.pop() if len(sources) == 1 else None)
    for group in groups:
        whole.absorb(group)
    return [whole]
