"""What happened, in words: the headline, and how each run in the input ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.findings import Candidate, Findings
from nccl_triage.document.finding import finding, strongest_line, who
from nccl_triage.document.line_values import capital, cut
from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import VERY_LIKELY
from nccl_triage.observations.event import Event
from nccl_triage.parsers import times
from nccl_triage.story.other_programs import instead_of_log
from nccl_triage.story.outcome import Outcome
from nccl_triage.story.story import Run

#: Maximum number of runs listed (the last ones), and of characters kept of a line.
LISTED, TEXT = 20, 160
#: Characters of a headline to which what the others did is not added.
LONG = 110
#: Seconds after which what happens since a wait began did not lead to it.
LATER = 60

#: What a finding says that tells of the wait already.
_WAITS = lazily(r"\bwait|gave up|time(?:d )?out")

_SAYS: dict[str, tuple[str, str]] = {
    "finished": ("The job finished", "作业正常结束"),
    "running": ("The job was still running at the end of the input", "直到输入结束作业仍在运行"),
    "stopped": ("The job was told to stop", "作业被要求停止"),
    "failed": ("The job failed", "作业失败"),
    "hung": ("The job hung", "作业卡住了"),
    "cut": ("The input ends before the job does", "输入在作业结束之前就中断了"),
    "none": ("No distributed job recognised in this input", "输入中没有识别出分布式作业的内容"),
}
#: How far a truncated run came, by the kind of its last known line.
_PHASES: tuple[tuple[tuple[str, ...], tuple[str, str]], ...] = (
    (("task.started",), ("in a long task", "处于一项耗时任务中")),
    (("communicator.ready", "collective.entered"), ("set up, before the first step", "准备已完成，尚未开始任何步骤")),
    (("job.launched", "job.restarted", "setup", "communicator.starting", "interface.chosen", "transport.chosen"),
     ("during setup", "处于准备阶段")),
)  # fmt: skip


def outcome(case: Case) -> dict[str, Any]:
    """Return how the diagnosed run ended: its state, since when, a sentence, and the line that says so."""
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
    """Return the last ``LISTED`` runs of the input in order; ``told`` marks the diagnosed one."""
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
        "opened_by": None if run.opened_by is None else cut(run.opened_by.text, TEXT),
        "fault": None if fault is None else cut(fault.text, TEXT),
    }


def _time(event: Event | None) -> str | None:
    return None if event is None or event.context.time is None else times.show(event.context.time)


def _earliest(events: Sequence[Event]) -> str | None:
    return next((times.show(e.context.time) for e in events if e.context.time is not None), None)


#: How a headline says the status of its cause, in English and Chinese.
HEDGES = {
    "established": ("", ""),
    "very-likely": ("Very likely: ", "极可能："),
    "supported": ("Likely: ", "很可能："),
    "possible": ("Possibly: ", "可能："),
}


def hedges(status: str, confidence: float) -> tuple[str, str]:
    """Return what a headline begins with in English and Chinese: the words that stand beside the number."""
    return HEDGES["very-likely" if status == "supported" and confidence >= VERY_LIKELY else status]


def _well(case: Case) -> dict[str, str]:
    finished = case.story.outcome.state == "finished"
    found = (
        {"en": "No failure: the job finished", "zh": "没有故障：作业已正常结束"}
        if finished
        else {"en": "No failure: the job is still running", "zh": "没有故障：作业仍在运行"}
    )
    earlier = [run for run in case.story.runs if run is not case.story.told and run.outcome.is_bad]
    if earlier:
        found["en"] += f" ({len(earlier)} of {len(case.story.runs)} runs in this input failed earlier)"
        found["zh"] += f"（输入含 {len(case.story.runs)} 次运行，其中较早的 {len(earlier)} 次失败）"
    elif any(event.is_failure for event, _ in case.aside):
        found["en"] += " despite the warnings in this log"
        found["zh"] += "，日志中的警告未造成影响"
    return {"en": f"{found['en']}.", "zh": f"{found['zh']}。"}


def _unknown(case: Case) -> dict[str, str]:
    state = case.story.outcome.state
    what = instead_of_log(case.observations)
    if what is not None:
        return {"en": f"This input is {what['en']}, not a log.", "zh": f"输入的内容：{what['zh']}，而不是日志。"}
    if state in ("cut", "none"):
        words = says(case.story.outcome)
        if state == "cut":
            return {
                "en": f"{words['en'][:-1]}; it shows no failure.",
                "zh": f"{words['zh'][:-1]}；其中没有故障信息。",
            }
        return words
    if case.value("stacks.dumped") and not case.failures:
        return {"en": "The job hung; its stacks do not show why.", "zh": "作业卡住了，但其调用栈没有显示原因。"}
    if state == "hung" and not case.failures:
        return {
            "en": "No failure is reported, but the job made no further progress; this log does not show why.",
            "zh": "没有报告故障，但作业没有继续，这份日志没有显示原因。",
        }
    if not case.failures:
        return {
            "en": "Some lines look like errors, but none identifies the problem.",
            "zh": "日志中有些内容像是出了问题，但没有一行能说明是什么问题。",
        }
    if state == "hung":
        return {"en": "The job hung; this log does not show why.", "zh": "作业卡住了，但这份日志没有显示原因。"}
    if state == "stopped":
        return {
            "en": "The job was told to stop; this log does not show why.",
            "zh": "作业被要求停止，但这份日志没有显示原因。",
        }
    return {"en": "The job failed; this log does not show why.", "zh": "作业失败了，但这份日志没有显示原因。"}


def headline(diagnosis: Findings) -> dict[str, str]:
    """Return one sentence on what happened, in both languages."""
    case = diagnosis.case
    if diagnosis.verdict == "healthy":
        return _well(case)
    if diagnosis.verdict == "unknown" and case.observations.interruption is not None and not case.failures:
        return {"en": "No failure in what was read.", "zh": "已读部分中没有故障。"}
    if diagnosis.verdict == "unknown" or not diagnosis.candidates:
        return _unknown(case)
    best = diagnosis.candidates[0]
    found = finding(best, case)
    if found is None:
        found = _title(best, case)
    hedge = hedges(best.status, round(best.confidence, 3))
    op, timeouts = case.value("collective.op"), case.value("collective.timeouts")
    if op and timeouts and len(found["en"]) < LONG and not _WAITS.search(found["en"]):
        others = f"{timeouts} process{'' if timeouts == 1 else 'es'}"
        told = (
            (f"{others} had waited in {op} before that", f"在此之前 {timeouts} 个进程已在 {op} 中等待")
            if _waited_before(best, case)
            else (f"{others} then waited in {op} until the timeout", f"随后 {timeouts} 个进程在 {op} 中等待直至超时")
        )
        found = {"en": f"{found['en']}; {told[0]}", "zh": f"{found['zh']}；{told[1]}"}
    return {
        "en": f"{hedge[0]}{capital(found['en'])}{_end(found['en'], '.')}",
        "zh": f"{hedge[1]}{found['zh']}{_end(found['zh'], '。')}",
    }


def _waited_before(best: Candidate, case: Case) -> bool:
    """Tell whether a rank had begun to wait long before the evidence of a cause: then the wait is no effect of it."""
    began = case.ledger.waiting_since()
    roots = [event for item in best.weighed.rule_items for event in item.events if event.role == "root"]
    first = min((event.context.time for event in roots if event.context.time is not None), default=None)
    if began is None or first is None or times.has_year(began) != times.has_year(first):
        return False
    return first - began > LATER


def _end(text: str, mark: str) -> str:
    """Return what ends a sentence: nothing behind a mark that ends it already, as a quoted message may bring one."""
    return "" if text.endswith((".", "。", "…", "!", "?", "！", "？")) else mark


def _title(best: Candidate, case: Case) -> dict[str, str]:
    """Return the title of a cause with its culprits and the strongest line of its evidence."""
    title, line = best.weighed.cause.title, strongest_line(best, case)
    who_en, who_zh = who(best.culprits, "en"), who(best.culprits, "zh")
    told = f": {line}" if line else ""
    return {
        "en": f"{title['en']}{f' ({who_en})' if who_en else ''}{told}",
        "zh": f"{title.get('zh', title['en'])}{f'（{who_zh}）' if who_zh else ''}{told}",
    }
