"""A summary of the job for readers: launcher, frameworks, the state of every rank, one sentence on what happened."""

from __future__ import annotations

from typing import Any

from nccl_triage.diagnosis import interruption, told
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.model import Findings
from nccl_triage.observations.event import Event

#: Ranks listed at most; a report says what it cut.
MAX_RANKS = 4096


def _first_errors(case: Case) -> dict[int, Event]:
    found: dict[int, Event] = {}
    for event in case.events:
        rank = case.rank(event)
        if rank is not None and event.is_failure and not event.signature.startswith("torchelastic."):
            found.setdefault(rank, event)
    return found


def rank_states(diagnosis: Findings) -> list[dict[str, Any]]:
    """Return every rank with its state in the failure: root, missing, behind, dead, entered, error, ok or unknown."""
    case = diagnosis.case
    world = case.identity.world_size
    ranks = sorted(set(case.identity.ranks) | (set(range(world)) if world and world <= MAX_RANKS else set()))[
        :MAX_RANKS
    ]
    culprits = {c.rank for candidate in diagnosis.candidates[:1] for c in candidate.culprits if c.rank is not None}
    stuck = {record.rank: record for record in case.value("collective.stuck") or []}
    exits = {found.rank: found for found in case.value("process.exits") or []}
    behind = set(case.value("collective.behind_ranks") or [])
    missing = set(case.value("progress.missing_ranks") or []) | set(case.value("progress.init_missing_ranks") or [])
    errors = _first_errors(case)
    states = []
    for rank in ranks:
        info, record, ended, error = case.identity.ranks.get(rank), stuck.get(rank), exits.get(rank), errors.get(rank)
        if rank in culprits:
            state = "root"
        elif rank in missing:
            state = "missing"
        elif rank in behind:
            state = "behind"
        elif record is not None:
            state = "entered"
        elif ended is not None and ended.signal in (6, 7, 8, 9, 11):
            state = "dead"
        elif error is not None:
            state = "error"
        elif diagnosis.verdict == "healthy":
            state = "ok"
        else:
            state = "unknown"
        states.append(
            {
                "rank": rank,
                "host": info.host if info else None,
                "local_rank": info.local_rank if info else None,
                "pid": next(iter(info.pids)) if info and len(info.pids) == 1 else None,
                "gpu": info.gpu if info else None,
                "address": info.address if info else None,
                "state": state,
                "last_enqueued": record.enqueued if record else None,
                "last_completed": record.completed if record else None,
                "exit": str(ended.code) if ended else None,
                "first_error": {
                    "path": error.source,
                    "line": error.line,
                    "signature": error.signature,
                    "text": error.text[:200],
                }
                if error
                else None,
            }
        )
    return states


def _who(diagnosis: Findings, language: str) -> str:
    culprits = diagnosis.candidates[0].culprits if diagnosis.candidates else []
    ranks = [str(c.rank) for c in culprits if c.rank is not None]
    hosts = list(dict.fromkeys(c.host or c.address for c in culprits if c.host or c.address))
    if ranks:
        word = ("rank" if len(ranks) == 1 else "ranks") if language == "en" else "rank"
        where = (f" on {hosts[0]}" if language == "en" else f"（{hosts[0]}）") if len(hosts) == 1 else ""
        return f"{word} {', '.join(ranks[:4])}{where}"
    pids = [f"pid {c.pid}" for c in culprits if c.pid is not None and not hosts]
    return ", ".join([*(str(host) for host in hosts[:3]), *pids[:3]])


#: How a headline says the status of its cause, in English and Chinese.
HEDGES = {"established": ("", ""), "supported": ("Probably: ", "很可能："), "possible": ("Possibly: ", "可能：")}


def _well(case: Case) -> dict[str, str]:
    finished = case.story.outcome.state == "finished"
    found = (
        {"en": "No failure: the job finished", "zh": "没有故障：作业已正常结束"}
        if finished
        else {"en": "No failure: the job goes on", "zh": "没有故障：作业仍在运行"}
    )
    earlier = [run for run in case.story.runs if run is not case.story.told and run.outcome.is_bad]
    if earlier:
        found["en"] += f" (of {len(case.story.runs)} runs in this input {len(earlier)} earlier failed)"
        found["zh"] += f"（输入含 {len(case.story.runs)} 次运行，其中较早的 {len(earlier)} 次失败）"
    elif any(event.is_failure for event, _ in case.aside):
        found["en"] += " after the warnings in this log"
        found["zh"] += "，日志中的警告未造成影响"
    return {"en": f"{found['en']}.", "zh": f"{found['zh']}。"}


def _unknown(case: Case) -> dict[str, str]:
    state = case.story.outcome.state
    if state in ("cut", "none"):
        words = told.says(case.story.outcome)
        if state == "cut":
            return {
                "en": f"{words['en'][:-1]}; nothing in it speaks of a failure.",
                "zh": f"{words['zh'][:-1]}；其中没有故障信息。",
            }
        return words
    if case.value("stacks.dumped") and not case.failures:
        return {"en": "The job hung, and its stacks do not show why.", "zh": "作业卡住了，但其调用栈没有显示原因。"}
    if state == "hung" and not case.failures:
        return {
            "en": "No failure is reported, but the job does not go on, and this log does not show why.",
            "zh": "没有报告故障，但作业没有继续，这份日志没有显示原因。",
        }
    if not case.failures:
        return {
            "en": "Lines of this log sound like trouble, and none is known to tell what it is.",
            "zh": "日志中有些内容像是出了问题，但没有一行能说明是什么问题。",
        }
    if state == "hung":
        return {"en": "The job hung, and this log does not show why.", "zh": "作业卡住了，但这份日志没有显示原因。"}
    if state == "stopped":
        return {
            "en": "The job was told to stop, and this log does not show why.",
            "zh": "作业被要求停止，但这份日志没有显示原因。",
        }
    return {"en": "The job failed, and this log does not show why.", "zh": "任务失败了，但这份日志没有显示原因。"}


def headline(diagnosis: Findings) -> dict[str, str]:
    """Return one sentence on what happened, in both languages."""
    case = diagnosis.case
    if diagnosis.verdict == "healthy":
        return _well(case)
    if diagnosis.verdict == "unknown" and interruption.partial(case) and not case.failures:
        return {"en": "No failure in what was read.", "zh": "已读部分中没有故障。"}
    if diagnosis.verdict == "unknown" or not diagnosis.candidates:
        return _unknown(case)
    best = diagnosis.candidates[0]
    title = best.weighed.cause.title
    hedge = HEDGES[best.status]
    op, timeouts = case.value("collective.op"), case.value("collective.timeouts")
    effect_en = (
        f"; {timeouts} process{'' if timeouts == 1 else 'es'} then waited in {op} until the time-out"
        if op and timeouts
        else ""
    )
    effect_zh = f"；随后 {timeouts} 个进程在 {op} 中等待直至超时" if op and timeouts else ""
    who_en, who_zh = _who(diagnosis, "en"), _who(diagnosis, "zh")
    return {
        "en": f"{hedge[0]}{title['en']}{f' ({who_en})' if who_en else ''}{effect_en}.",
        "zh": f"{hedge[1]}{title['zh']}{f'（{who_zh}）' if who_zh else ''}{effect_zh}。",
    }
