"""The story as plain data: the keys ``outcome`` and ``runs`` of a report document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.observations.event import Event
from nccl_triage.parsers import times
from nccl_triage.story.model import Outcome, Run

#: Runs listed one by one: the last ones, and characters kept of a line.
LISTED, TEXT = 20, 160

_SAYS: dict[str, tuple[str, str]] = {
    "finished": ("The job came to its end in good order", "作业正常结束"),
    "running": ("The job goes on to the end of the input", "直到输入结束作业仍在运行"),
    "stopped": ("The job was told to stop", "作业被要求停止"),
    "failed": ("The job failed", "作业失败"),
    "hung": ("The job hung", "作业卡住了"),
    "cut": ("The input ends before the job did", "输入在作业结束之前就中断了"),
    "none": ("Nothing of a distributed job is recognised in this input", "输入中没有识别出分布式作业的内容"),
}
#: What the last known line of a run that was cut tells of how far it came.
_PHASES: tuple[tuple[tuple[str, ...], tuple[str, str]], ...] = (
    (("task.started",), ("in a long task", "处于一项耗时任务中")),
    (("communicator.ready", "collective.entered"), ("behind its set-up, before any step", "准备已完成，尚未开始任何步骤")),
    (("job.launched", "job.restarted", "setup", "communicator.starting", "interface.chosen", "transport.chosen"),
     ("in its set-up", "处于准备阶段")),
)  # fmt: skip


def outcome(case: Case) -> dict[str, Any]:
    """Return how the run ended that the verdict is about: state, since when, in words, and the line that says so."""
    return _outcome(case.story.outcome)


def says(found: Outcome) -> dict[str, str]:
    """Return an outcome in words, in every language."""
    en, zh = _SAYS[found.state]
    if found.state == "cut" and found.event is not None:
        phase = next((words for kinds, words in _PHASES if found.event.kind in kinds), None)
        if phase is not None:
            en, zh = f"{en}, {phase[0]}", f"{zh}，{phase[1]}"
    return {"en": f"{en}.", "zh": f"{zh}。"}


def _outcome(found: Outcome) -> dict[str, Any]:
    event, words = found.event, says(found)
    return {
        "state": found.state,
        "since": _time(event),
        "says": words["en"],
        "says_zh": words["zh"],
        "line": None if event is None else {"path": event.source, "line": event.line},
    }


def runs(case: Case) -> list[dict[str, Any]]:
    """Return the runs of the input in order, the last ones of very many; ``told`` marks the one of the verdict."""
    found = list(enumerate(case.story.runs, 1))[-LISTED:]
    return [_run(number, run, run is case.story.told) for number, run in found]


def _run(number: int, run: Run, told: bool) -> dict[str, Any]:
    first, last = run.opened_by or run.printed[0] if run.printed else None, run.printed[-1] if run.printed else None
    fault = next((event for event in run.events if event.is_failure), None) if run.outcome.is_bad else None
    return {
        "number": number,
        "told": told,
        **_outcome(run.outcome),
        "from": None if first is None else {"path": first.source, "line": first.line},
        "to": None if last is None else {"path": last.source, "line": last.line},
        "started": _earliest(run.printed),
        "opened_by": None if run.opened_by is None else run.opened_by.text[:TEXT],
        "fault": None if fault is None else fault.text[:TEXT],
    }


def _time(event: Event | None) -> str | None:
    return None if event is None or event.context.time is None else times.show(event.context.time)


def _earliest(events: Sequence[Event]) -> str | None:
    return next((times.show(e.context.time) for e in events if e.context.time is not None), None)
