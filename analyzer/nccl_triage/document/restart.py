"""Whether the job may be started again: as it is, after a repair, or without a host.

A cause says it by the shared steps that it names for the first minutes (``rules/steps``): what is restarted from a
checkpoint there can be restarted as it is, and what is restarted without a host needs another host. Every other cause is
repaired first, since the same settings fail again. A cause that is only possible decides nothing.
"""

from __future__ import annotations

from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.findings import Candidate, Findings
from nccl_triage.document.evidence import pair
from nccl_triage.document.line_values import listed

#: Shared step of a cause -> the decision that it stands for.
DECIDING_STEPS = {"restart-without-host": "exclude_then_restart", "restart-from-checkpoint": "restart"}

_NOTHING_BROKE = {
    "en": "Nothing has to be repaired: resume from the last complete checkpoint.",
    "zh": "没有需要修复的问题：从最近一个完整的检查点恢复即可。",
}
_WITHOUT = {
    "en": "Leave out {hosts}, then resume from the last complete checkpoint.",
    "zh": "排除 {hosts}，然后从最近一个完整的检查点恢复。",
}
_FIND_HOST = {
    "en": "The log does not name the host at fault: find it and leave it out, then resume.",
    "zh": "日志没有指出故障主机：先找到并排除该主机，再恢复作业。",
}
_REPAIR = {
    "en": "With the same settings it would fail again.",
    "zh": "用同样的设置重启会再次失败。",
}
_OPEN = {
    "en": "The cause is not established: a restart may fail the same way.",
    "zh": "原因尚未确定：重启可能会以同样的方式失败。",
}


def describe(diagnosis: Findings) -> dict[str, Any] | None:
    """Return the decision, the hosts to leave out and the reason in both languages; None where nothing failed."""
    if diagnosis.verdict == "healthy" or diagnosis.case.story.outcome.state in ("none", "running", "finished"):
        return None
    best = diagnosis.candidates[0] if diagnosis.verdict == "diagnosed" and diagnosis.candidates else None
    if best is None or best.status == "possible":
        return _decision("undecided", _OPEN)
    decided = next(
        (
            DECIDING_STEPS[step.use]
            for step in best.weighed.cause.stages.get("now", ())
            if step.use is not None and step.use in DECIDING_STEPS
        ),
        "fix_first",
    )
    if decided == "restart":
        return _decision(decided, _NOTHING_BROKE)
    if decided == "exclude_then_restart":
        hosts = _hosts(best, diagnosis.case)
        if hosts:
            told = {language: text.format(hosts=listed(hosts, language)) for language, text in _WITHOUT.items()}
            return _decision(decided, told, hosts)
        return _decision("fix_first", _FIND_HOST)
    return _decision("fix_first", _REPAIR)


def _decision(word: str, why: dict[str, str], exclude: list[str] | None = None) -> dict[str, Any]:
    return {"decision": word, "exclude": exclude or [], **pair("why", why)}


def _hosts(best: Candidate, case: Case) -> list[str]:
    """Return the hosts of the culprits by name, in order; an address alone is no name that a scheduler knows."""
    found = [
        one.host or (case.identity.ranks[one.rank].host if one.rank in case.identity.ranks else None)
        for one in best.culprits
    ]
    return list(dict.fromkeys(host for host in found if host))
