"""Flight recorder dumps: which ranks called another operation, never came to one, or did not complete it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.observations.event import Context, Event, Role
from nccl_triage.observations.recorder_table import RecorderLine
from nccl_triage.recorder.compare import RecorderComparison, compare
from nccl_triage.recorder.lines import RECORD
from nccl_triage.recorder.vote import RecorderFinding


def comparison(case: Case) -> RecorderComparison:
    """Return the comparison of all dumps. It is empty if there are none."""
    found = case.value("recorder.comparison")
    return found if isinstance(found, RecorderComparison) else RecorderComparison()


def event(line: RecorderLine, role: Role = "context") -> Event:
    """Return a line of a dump as an event."""
    time = line.created / 1e9 if line.created else None
    message = line.text.split("]: ", 1)[-1]
    return Event(RECORD, line.source, line.line, message, Context(rank=line.rank, time=time), role)


def events(findings: Iterable[RecorderFinding], role: Role = "context") -> list[Event]:
    """Return the lines of findings as events, those of the blamed ranks first."""
    return [event(line, role) for line in _lines(findings)]


def _lines(findings: Iterable[RecorderFinding]) -> Iterator[RecorderLine]:
    for finding in findings:
        yield from sorted(finding.lines, key=lambda line: line.rank not in finding.ranks)


_DISAGREE = ("operation", "size", "dtype")


@fact("recorder.comparison", "everything that the flight recorder dumps show together")
def _comparison(case: Case) -> Fact | None:
    table = case.observations.recorder
    return Fact(compare(table)) if table else None


def _ranks(case: Case, *kinds: str, role: Role = "context") -> Fact | None:
    """Return the ranks that findings of the given kinds blame."""
    found = [finding for finding in comparison(case).of(*kinds) if finding.ranks]
    ranks = sorted({rank for finding in found for rank in finding.ranks})
    return Fact(ranks, events(found, role)[:8]) if ranks else None


def _named_call(finding: RecorderFinding) -> str:
    """Return the operation of a finding with its number, where it has one, and group."""
    number = f" {finding.seq}" if finding.seq >= 0 else ""
    return f"{finding.op}{number} of group {finding.group}"


def _first(case: Case) -> RecorderFinding | None:
    """Return the most important disagreement: one with somebody to blame, and of operations rather than sizes."""
    found = comparison(case).of(*_DISAGREE)
    return min(found, key=lambda one: (not one.ranks, _DISAGREE.index(one.kind), one.group, one.seq), default=None)


@fact("recorder.dumps", "how many ranks left a flight recorder dump")
def _dumps(case: Case) -> Fact | None:
    dumped = comparison(case).dumped
    headers = [dump.header for dump in case.observations.recorder.dumps.values()]
    return Fact(len(dumped), [event(line) for line in sorted(headers)[:2]]) if dumped else None


def _broken(case: Case, part: str) -> Fact | None:
    found = [
        (rank, line)
        for (rank,), dump in case.observations.recorder.dumps.items()
        for what, line in dump.broken
        if what == part
    ]
    return Fact(sorted({rank for rank, _ in found}), [event(line) for _, line in sorted(found)[:4]]) if found else None


@fact(
    "recorder.broken_gpu_ranks",
    "ranks whose GPU failed a health check made when their flight recorder was dumped",
    blames=(
        "its GPU failed the health check of the flight recorder dump",
        "导出 flight recorder 时其 GPU 未通过健康检查",
    ),
)
def _broken_gpus(case: Case) -> Fact | None:
    return _broken(case, "gpu")


@fact(
    "recorder.broken_nic_ranks",
    "ranks whose network card failed such a health check",
    blames=(
        "its network card failed the health check of the flight recorder dump",
        "导出 flight recorder 时其网卡未通过健康检查",
    ),
)
def _broken_nics(case: Case) -> Fact | None:
    return _broken(case, "nic")


@fact(
    "recorder.mismatch_ranks",
    "according to the flight recorders, the minority that called another operation, size or type; [-1] without a majority",
    blames=("its flight recorder differs from the majority", "它的 flight recorder 与多数 rank 不同"),
)
def _mismatch(case: Case) -> Fact | None:
    finding = _first(case)
    return Fact(list(finding.ranks) or [-1], events([finding], "root")) if finding is not None else None


@fact("recorder.mismatch_kind", "in what the calls differ: operation, size or dtype")
def _kind(case: Case) -> Fact | None:
    finding = _first(case)
    return Fact(finding.kind, events([finding], "root")) if finding is not None else None


@fact("recorder.mismatch_call", "the first call on which the dumps disagree: its number and group")
def _call(case: Case) -> Fact | None:
    finding = _first(case)
    if finding is None:
        return None
    number = f"operation {finding.seq}" if finding.seq >= 0 else finding.op
    return Fact(f"{number} of group {finding.group}", events([finding], "root"))


@fact("recorder.order", "how the call order differs: skipped, inserted or exchanged, and how many calls")
def _order(case: Case) -> Fact | None:
    finding = _first(case)
    if finding is None or not finding.order[0]:
        return None
    return Fact(f"{finding.order[0]} {finding.order[1]}", events([finding], "root"))


@fact(
    "recorder.missing_ranks",
    "ranks whose dump shows that they never issued the operation in which others wait, and that wait nowhere else",
    blames=(
        "its flight recorder shows a different path than the waiting ranks",
        "其 flight recorder 显示它与等待中的 rank 走了不同的路径",
    ),
)
def _missing(case: Case) -> Fact | None:
    return _ranks(case, "missing")


@fact(
    "recorder.ahead_ranks",
    "the few ranks that issued an operation that the majority never reached",
    blames=(
        "its flight recorder shows a different path than the waiting ranks",
        "其 flight recorder 显示它与等待中的 rank 走了不同的路径",
    ),
)
def _ahead(case: Case) -> Fact | None:
    return _ranks(case, "ahead")


@fact(
    "recorder.lagging_ranks",
    "ranks that issued as much as the others but completed less, or completed alone",
    blames=(
        "its flight recorder shows fewer completed operations than the others",
        "其 flight recorder 显示它完成的操作比其他 rank 少",
    ),
)
def _lagging(case: Case) -> Fact | None:
    return _ranks(case, "lagging", "early")


@fact(
    "recorder.unfinished_ranks",
    "ranks that went on issuing operations while an earlier one, which others of its group completed, never ended on them",
    blames=(
        "its flight recorder has an operation open that the others of its group completed",
        "其 flight recorder 中有一个操作仍未完成，而同组的其他 rank 已完成",
    ),
)
def _unfinished(case: Case) -> Fact | None:
    return _ranks(case, "unfinished", role="root")


@fact(
    "recorder.unfinished_call",
    "the first of these operations, with its number and group",
)
def _unfinished_call(case: Case) -> Fact | None:
    found = comparison(case).of("unfinished")
    return Fact(_named_call(found[0]), events(found)[:2]) if found else None


@fact(
    "recorder.state",
    "an operation with a root that some ranks completed while others hang in it, according to the dumps",
)
def _state(case: Case) -> Fact | None:
    found = comparison(case).of("state")
    if not found:
        return None
    return Fact(_named_call(found[0]), events(found)[:4])


@fact(
    "recorder.unmet_ranks",
    "ranks that never matched a send or receive in which another rank waits",
    blames=(
        "its flight recorder shows a different path than the waiting ranks",
        "其 flight recorder 显示它与等待中的 rank 走了不同的路径",
    ),
)
def _unmet(case: Case) -> Fact | None:
    return _ranks(case, "unmet")


@fact(
    "recorder.circle_ranks",
    "ranks that wait for each other in a cycle of process groups or of sends and receives",
    blames=(
        "deadlocked with others, according to the flight recorders",
        "flight recorder 显示它与其他 rank 互相等待而死锁",
    ),
)
def _circle(case: Case) -> Fact | None:
    return _ranks(case, "circle", role="root")


@fact(
    "recorder.circle_derived",
    "the process groups of such a cycle whose members no dump lists, derived from the waiting ranks and the group numbers",
)
def _circle_derived(case: Case) -> Fact | None:
    found = [finding for finding in comparison(case).of("circle") if finding.derived]
    return Fact(sorted({finding.group for finding in found}), events(found)[:4]) if found else None


@fact(
    "recorder.all_entered",
    "every member issued the same operation, none completed it and the wait timed out: the operation itself hangs",
)
def _entered(case: Case) -> Fact | None:
    found = comparison(case)
    entered = found.of("entered")
    if not entered or found.of(*_DISAGREE, "missing", "ahead", "unmet", "circle", "unfinished") or found.absent:
        return None
    given_up = any(finding.given_up for finding in entered) or bool(case.value("collective.timeouts"))
    return Fact(True, events(entered)[:4]) if given_up else None


@fact(
    "recorder.waits_in",
    "the operation in which ranks wait according to the flight recorders, with its number and group",
)
def _waits_in(case: Case) -> Fact | None:
    found = comparison(case).of("missing", "unmet", "circle", "entered", "lagging", "operation", "size", "dtype")
    if not found:
        return None
    return Fact(_named_call(found[0]), events(found[:1])[:2])
