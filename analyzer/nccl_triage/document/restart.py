"""Whether the job may be started again: as it is, after a repair, or without a host.

A cause says it by the shared steps that it names for the first minutes (``rules/steps``), of which those count whose
condition holds: what is restarted from a checkpoint there can be restarted as it is, and what is restarted without a
host needs another host. Every other cause is repaired first, since the same settings fail again. A cause that is only
possible decides nothing, and neither does a restart that has not helped before: the history informs this decision, and
never the verdict.
"""

from __future__ import annotations

from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.diagnosis.facts import software
from nccl_triage.diagnosis.findings import Candidate, Findings
from nccl_triage.diagnosis.scheduler_names import node_of_pod, scheduler_name
from nccl_triage.document.evidence import pair
from nccl_triage.document.line_values import listed
from nccl_triage.engine.schema import SCHEDULERS, Text
from nccl_triage.history.signatures import CAUSE
from nccl_triage.numbers import whole

#: Shared step of a cause -> the decision that it stands for.
DECIDING_STEPS = {"restart-without-host": "exclude_then_restart", "restart-from-checkpoint": "restart"}
#: So often the same cause ended the job before: another restart alone is not advised.
REPEATED = 2

_NOTHING_BROKE: Text = {
    "en": "The log shows nothing to repair: resume from the last complete checkpoint.",
    "zh": "日志中没有需要修复的问题：从最近一个完整的检查点恢复即可。",
}
_WITHOUT: Text = {
    "en": "Leave out {hosts}, then resume from the last complete checkpoint.",
    "zh": "排除 {hosts}，然后从最近一个完整的检查点恢复。",
}
_WITHOUT_NODE: Text = {
    "en": "Leave out the node of {hosts} (kubectl get pods -o wide names it), then resume from the last complete checkpoint.",
    "zh": "排除 {hosts} 所在的节点（见 kubectl get pods -o wide），然后从最近一个完整的检查点恢复。",
}
_FIND_HOST: Text = {
    "en": "The log does not name the host at fault: find it and leave it out, then resume.",
    "zh": "日志没有指出故障主机：先找到并排除该主机，再恢复作业。",
}
_ONLY_HOST: Text = {
    "en": "The job ran on one host only: repair what is wrong there, or start it elsewhere.",
    "zh": "作业只在一台主机上运行：先修复该主机上的问题，或换一台主机启动。",
}
_REPAIR: Text = {
    "en": "With the same settings it would fail again.",
    "zh": "用同样的设置重启会再次失败。",
}
_OPEN: Text = {
    "en": "The cause is not established: a restart may fail the same way.",
    "zh": "原因尚未确定：重启可能会以同样的方式失败。",
}
_NOT_HELPED: Text = {"en": "Restarts alone have not helped.", "zh": "仅靠重启没有解决问题。"}
_ELSEWHERE: Text = {
    "en": "It was on other hosts: leaving out a host has not helped.",
    "zh": "此前发生在其他主机上：排除主机没有解决问题。",
}
_ONCE: Text = {
    "en": "The same cause ended this job once in the {days} days before.",
    "zh": "此前 {days} 天内，同一原因已使该作业失败 1 次。",
}
_OFTEN: Text = {
    "en": "The same cause ended this job {times} times in the {days} days before.",
    "zh": "此前 {days} 天内，同一原因已使该作业失败 {times} 次。",
}


def describe(diagnosis: Findings) -> dict[str, Any] | None:
    """Return the decision, the hosts to leave out and the reason in both languages; None where nothing failed.

    ``exclude`` has the names that the scheduler's commands take. ``repeats`` is there where the history knows earlier
    failures of this job from the same cause.
    """
    case = diagnosis.case
    if diagnosis.verdict == "healthy" or case.story.outcome.state in ("none", "running", "finished"):
        return None
    best = diagnosis.candidates[0] if diagnosis.verdict == "diagnosed" and diagnosis.candidates else None
    if best is None or best.status == "possible":
        return _decision("undecided", _OPEN)
    word, why, hosts = _decided(best, case)
    repeats = _repeats(case, best.id)
    if repeats is None:
        return _decision(word, why, hosts)
    told = {"en": repeats["says"], "zh": repeats["says_zh"]}
    if repeats["times"] >= REPEATED and (reason := _in_doubt(word, case, hosts, repeats["hosts"])) is not None:
        return _decision("undecided", _joined(told, reason), repeats=repeats)
    return _decision(word, _joined(why, told), hosts, repeats)


def _decided(best: Candidate, case: Case) -> tuple[str, Text, list[str]]:
    """Return what the cause by itself decides, with the reason and the hosts to leave out."""
    steps = [step for step in best.weighed.cause.stages.get("now", ()) if step.use in DECIDING_STEPS]
    platform = software.platform(case)
    # Of hosts that the log does not tell of, a scheduler has others.
    elsewhere = Conditions(case, platform=platform | {"several-hosts"})
    alone = "one-host" in platform and platform.isdisjoint({*SCHEDULERS} - {"ray"})
    conditions = Conditions(case) if alone else elsewhere
    decided = next((step.use for step in steps if step.when is None or conditions.holds(step.when)[0]), None)
    if decided == "restart-from-checkpoint":
        return "restart", _NOTHING_BROKE, []
    if decided == "restart-without-host":
        hosts = _hosts(best, case)
        if hosts:
            pods = "kubernetes" in platform and all(node_of_pod(case, host) is None for host in _named(best, case))
            texts = _WITHOUT_NODE if pods else _WITHOUT
            why = {language: text.format(hosts=listed(hosts, language)) for language, text in texts.items()}
            return "exclude_then_restart", why, hosts
        return "fix_first", _FIND_HOST, []
    if alone and any(step.when is None or elsewhere.holds(step.when)[0] for step in steps):
        return "fix_first", _ONLY_HOST, []
    return "fix_first", _REPAIR, []


def _repeats(case: Case, cause: str) -> dict[str, Any] | None:
    """Return how often the same cause ended this job before, as far as the history knows."""
    event = next(
        (one for one in case.story.remembered if one.signature == CAUSE and one.fields["cause"] == cause), None
    )
    if event is None:
        return None
    fields = event.fields
    times = whole(fields["times"]) or 0
    says = {
        language: text.format(times=times, days=fields["days"])
        for language, text in (_ONCE if times == 1 else _OFTEN).items()
    }
    return {
        "times": times,
        "days": whole(fields["days"]),
        "first": fields["first"],
        "last": fields["last"],
        "hosts": fields["hosts"].split(),
        "incidents": [int(number) for number in fields["incidents"].split()],
        **pair("says", says),
    }


def _in_doubt(word: str, case: Case, hosts: list[str], before: list[str]) -> Text | None:
    """Return why the decision is not taken any more, now that the cause has come back; None where it is.

    A job that was told to stop goes on as often as that happens; a host that failed before is all the more left out.
    """
    if word == "restart" and case.story.outcome.state != "stopped":
        return _NOT_HELPED
    short = {host.partition(".")[0] for host in hosts}
    if word == "exclude_then_restart" and before and short.isdisjoint(host.partition(".")[0] for host in before):
        return _ELSEWHERE
    return None


def _joined(one: Text, two: Text) -> Text:
    return {"en": f"{one['en']} {two['en']}", "zh": f"{one['zh']}{two['zh']}"}


def _decision(
    word: str, why: Text, exclude: list[str] | None = None, repeats: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "decision": word,
        "exclude": exclude or [],
        **pair("why", why),
        **({"repeats": repeats} if repeats is not None else {}),
    }


def _named(best: Candidate, case: Case) -> list[str]:
    """Return the hosts of the culprits as the log names them."""
    found = [
        one.host or (case.identity.ranks[one.rank].host if one.rank in case.identity.ranks else None)
        for one in best.culprits
    ]
    return list(dict.fromkeys(host for host in found if host))


def _hosts(best: Candidate, case: Case) -> list[str]:
    """Return the hosts of the culprits by their names in the scheduler, in order; an address alone is none."""
    names = [scheduler_name(case, host) for host in _named(best, case)]
    return list(dict.fromkeys(name for name in names if name))
