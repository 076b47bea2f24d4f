"""What the flight recorders of a job show, beside its log: one comparison a case, and its lines as events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.observations.event import Context, Event, Role
from nccl_triage.observations.recorder_table import GroupProgress, RecorderLine, Way
from nccl_triage.recorder.compare import RecorderComparison
from nccl_triage.recorder.lines import RECORD, spans
from nccl_triage.recorder.vote import RecorderFinding, elements


def comparison(case: Case) -> RecorderComparison:
    """Return what the dumps show together; empty without any."""
    found = case.value("recorder.comparison")
    return found if isinstance(found, RecorderComparison) else RecorderComparison()


def event(line: RecorderLine, role: Role = "context") -> Event:
    """Return a line of a dump as an event."""
    time = line.created / 1e9 if line.created else None
    message = line.text.split("]: ", 1)[-1]
    return Event(RECORD, line.source, line.line, message, Context(rank=line.rank, time=time), role)


def events(findings: Iterable[RecorderFinding], role: Role = "context") -> list[Event]:
    """Return the lines of findings as events, those of the ranks in the wrong first."""
    return [event(line, role) for line in _lines(findings)]


def _lines(findings: Iterable[RecorderFinding]) -> Iterator[RecorderLine]:
    for finding in findings:
        yield from sorted(finding.lines, key=lambda line: line.rank not in finding.ranks)


#: Types as the recorder calls them (c10 ``ScalarType``), in the words of torch's Python.
_TYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Byte": "uint8", "Char": "int8",
    "Short": "int16", "Int": "int32", "Long": "int64", "Bool": "bool",
}  # fmt: skip


def op_type(op: str) -> str:
    """Return an operation as the logs of torch call it (``OpType``): ALLREDUCE for all_reduce."""
    return op.upper().replace("ALL_TO_ALL", "ALLTOALL").replace("ALL_", "ALL")


def stuck_call(case: Case) -> dict[str, Any] | None:
    """Return the operation in which most ranks wait by their dumps: what a report says of a collective."""
    table = case.observations.recorder
    waiting = [(key, standing) for (key, _), standing in table.standings.items() if standing.open_way is not None]
    if not waiting:
        return None
    votes: dict[tuple[Any, ...], list[GroupProgress]] = {}
    for key, standing in waiting:
        votes.setdefault((key, standing.open_seq, standing.open_way), []).append(standing)
    (key, seq, way), standings = max(votes.items(), key=lambda vote: (len(vote[1]), repr(vote[0])))
    assert isinstance(way, Way)
    named = next(iter((*way.input_types, *way.output_types)), "")
    return {
        "op": op_type(way.op),
        "seq": seq if seq > 0 else None,
        "numel_in": sum(elements(way.inputs)) or None,
        "numel_out": sum(elements(way.outputs)) or None,
        "dtype": _TYPES.get(named, named) if named else None,
        "process_group": key.name,
        "world_size": len(table.groups.get(key, ())) or None,
        "timeout_ms": next((standing.timeout_ms for standing in standings if standing.timeout_ms), None),
    }


def _of_ranks(ranks: Iterable[int]) -> str:
    found = list(ranks)
    return f"{'rank' if len(found) == 1 else 'ranks'} {spans(found)}"


def notes(case: Case) -> list[dict[str, str]]:
    """Return what readers must know of the dumps: whether they agree with the log, and what they cannot show."""
    found = comparison(case)
    made: list[dict[str, str]] = []
    agrees, differs = case.value("recorder.agrees_with_log"), case.value("recorder.disagrees_with_log")
    if agrees:
        made.append(
            {
                "en": f"The flight recorder and the log agree: both point at {_of_ranks(agrees)}.",
                "zh": f"flight recorder 与日志一致：都指向 rank {spans(agrees)}。",
            }
        )
    elif differs:
        made.append(
            {
                "en": f"The flight recorder and the log disagree: the dumps point at {_of_ranks(differs)}, the log at others. "
                "The dumps show what was issued, the log what was felt; look at both.",
                "zh": f"flight recorder 与日志不一致：转储指向 rank {spans(differs)}，日志指向其他 rank。转储显示发起了什么，日志显示表现如何，两者都要看。",
            }
        )
    slow = case.value("recorder.slow_ranks")
    if slow:
        by = case.value("recorder.slow_by")
        made.append(
            {
                "en": f"By the times in the flight recorder dumps {_of_ranks(slow)} came later than the rest again and again: {by}.",
                "zh": f"flight recorder 转储中的时间显示 rank {spans(slow)} 一次又一次地晚于其余 rank：{by}。",
            }
        )
    if found.absent:
        made.append(
            {
                "en": f"No flight recorder dump of {_of_ranks(found.absent)}: the dumps can neither blame nor clear them.",
                "zh": f"缺少 rank {spans(found.absent)} 的 flight recorder 转储：无法据此归咎或排除它们。",
            }
        )
    if len(found.versions) > 1:
        versions = ", ".join(found.versions)
        made.append(
            {
                "en": f"The flight recorder dumps are of different versions ({versions}): what all of them have was compared.",
                "zh": f"flight recorder 转储的版本不同（{versions}）：只比较了共有的内容。",
            }
        )
    if found.cut:
        made.append(
            {
                "en": "There were too many process groups to keep all of their calls: only the last ones of each were compared.",
                "zh": "进程组过多，无法保留全部调用：每个进程组只比较了最后的若干次。",
            }
        )
    return made
