"""Whether the job may be started again: as it is, after a repair, or without a host.

A cause says it by the shared steps that it names for the first minutes (``rules/steps``), of which those count whose
condition holds: what is restarted from a checkpoint there can be restarted as it is, and what is restarted without a
host needs another host; what ended a process for an unknown reason is looked for first. Every other cause is repaired first, since the same settings fail again. A cause that is only
possible decides nothing, and neither does a restart that has not helped before: the history informs this decision, and
never the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.diagnosis.facts import software
from nccl_triage.diagnosis.findings import Candidate, Findings
from nccl_triage.diagnosis.scheduler_names import node_of_pod, scheduler_name
from nccl_triage.document.evidence import pair
from nccl_triage.document.line_values import listed
from nccl_triage.engine.schema import LANGUAGES, SCHEDULERS, Step, Text
from nccl_triage.history.signatures import CAUSE
from nccl_triage.numbers import whole
from nccl_triage.story import explain
from nccl_triage.story.decisions import ITSELF, Decision, Grounds, Table

#: The shared step that leaves out the hosts of the culprits.
WITHOUT_HOST = "restart-without-host"
#: The shared step that looks for what ended a process.
FIND_FIRST = "find-what-ended-it"
#: Shared step of a cause -> the decision that it stands for.
DECIDING_STEPS = {
    WITHOUT_HOST: "exclude_then_restart",
    "restart-from-checkpoint": "restart",
    FIND_FIRST: "fix_first",
}

#: So many hosts are several.
_SEVERAL = 2

_ONCE: Text = {
    "en": "The same cause ended this job once in the {days} days before.",
    "zh": "此前 {days} 天内，同一原因已使该作业失败 1 次。",
}
_OFTEN: Text = {
    "en": "The same cause ended this job {times} times in the {days} days before.",
    "zh": "此前 {days} 天内，同一原因已使该作业失败 {times} 次。",
}


@dataclass
class _Restart:
    """A failed job of which is asked whether it may be started again."""

    case: Case
    #: The cause, None where it is not established.
    best: Candidate | None
    #: What the cause by itself decides, once that is known, and what the history knows of it.
    decided: str | None = None
    repeats: dict[str, Any] | None = None

    @cached_property
    def platform(self) -> frozenset[str]:
        """Where the job runs."""
        return frozenset(software.platform(self.case))

    @cached_property
    def alone(self) -> bool:
        """Whether the job has one host, and no scheduler that has others."""
        return "one-host" in self.platform and self.platform.isdisjoint({*SCHEDULERS} - {"ray"})

    @cached_property
    def steps(self) -> list[Step]:
        """The shared steps of the first minutes that decide."""
        stages = self.best.weighed.cause.stages if self.best is not None else {}
        return [step for step in stages.get("now", ()) if step.use in DECIDING_STEPS]

    @cached_property
    def elsewhere(self) -> Conditions:
        """Conditions as if there were other hosts."""
        # Of hosts that the log does not tell of, a scheduler has others.
        return Conditions(self.case, platform=self.platform | {"several-hosts"})

    @cached_property
    def step(self) -> str | None:
        """The first step that holds."""
        conditions = Conditions(self.case) if self.alone else self.elsewhere
        return next((step.use for step in self.steps if step.when is None or conditions.holds(step.when)[0]), None)

    @cached_property
    def named(self) -> list[str]:
        """The hosts of the culprits as the log names them."""
        return _named(self.best, self.case) if self.best is not None else []

    @cached_property
    def hosts(self) -> list[str]:
        """The hosts of the culprits by their names in the scheduler, in order; an address alone is none."""
        names = [scheduler_name(self.case, host) for host in self.named]
        return list(dict.fromkeys(name for name in names if name))


RULES: Table[_Restart] = Table("restart")


@RULES.condition("not-established")
def _not_established(asked: _Restart) -> Grounds | None:
    return ITSELF if asked.best is None else None


@RULES.condition("nothing-broke")
def _nothing_broke(asked: _Restart) -> Grounds | None:
    return ITSELF if asked.step == "restart-from-checkpoint" else None


@RULES.condition("ended-by-something-unknown")
def _ended_by_something_unknown(asked: _Restart) -> Grounds | None:
    return ITSELF if asked.step == FIND_FIRST else None


@RULES.condition("every-host")
def _every_host(asked: _Restart) -> Grounds | None:
    accused = asked.best is not None and accuses_every_host(asked.best, asked.case)
    return ITSELF if accused and asked.step == WITHOUT_HOST else None


@RULES.condition("without-node-of-pods")
def _without_node_of_pods(asked: _Restart) -> Grounds | None:
    pods = "kubernetes" in asked.platform and all(node_of_pod(asked.case, host) is None for host in asked.named)
    return _without(asked) if pods else None


@RULES.condition("without-hosts")
def _without_hosts(asked: _Restart) -> Grounds | None:
    return _without(asked)


def _without(asked: _Restart) -> Grounds | None:
    if asked.step != WITHOUT_HOST or not asked.hosts:
        return None
    return Grounds((), {"hosts": {language: listed(asked.hosts, language) for language in LANGUAGES}})


@RULES.condition("host-not-named")
def _host_not_named(asked: _Restart) -> Grounds | None:
    return ITSELF if asked.step == WITHOUT_HOST else None


@RULES.condition("only-host")
def _only_host(asked: _Restart) -> Grounds | None:
    elsewhere = asked.alone and any(step.when is None or asked.elsewhere.holds(step.when)[0] for step in asked.steps)
    return ITSELF if elsewhere else None


@RULES.condition("repair-first")
def _repair_first(asked: _Restart) -> Grounds | None:
    return ITSELF


def _came_back(asked: _Restart) -> bool:
    return asked.repeats is not None and asked.repeats["times"] >= RULES.limits["repeated"]


@RULES.condition("restarts-have-not-helped")
def _restarts_have_not_helped(asked: _Restart) -> Grounds | None:
    outcome = asked.case.story.outcome
    # A job that a scheduler or a person stopped goes on as often as that happens.
    cancelled = outcome.state == "stopped" and outcome.event is not None and outcome.event.kind == "job.cancelled"
    return ITSELF if _came_back(asked) and asked.decided == "restart" and not cancelled else None


@RULES.condition("was-on-other-hosts")
def _was_on_other_hosts(asked: _Restart) -> Grounds | None:
    if not _came_back(asked) or asked.decided != "exclude_then_restart":
        return None
    # A host that failed before is all the more left out.
    before = asked.repeats["hosts"] if asked.repeats is not None else []
    short = {host.partition(".")[0] for host in asked.hosts}
    return ITSELF if before and short.isdisjoint(host.partition(".")[0] for host in before) else None


class RestartDecision(NamedTuple):
    """Whether the job may be started again, without which hosts, and what the history knows of the cause."""

    decision: Decision
    exclude: list[str]
    repeats: dict[str, Any] | None


def decide(diagnosis: Findings) -> RestartDecision | None:
    """Return whether the job may be started again; None where nothing failed."""
    case = diagnosis.case
    if diagnosis.verdict == "healthy" or case.story.outcome.state in ("none", "running", "finished"):
        return None
    best = diagnosis.candidates[0] if diagnosis.verdict == "diagnosed" and diagnosis.candidates else None
    asked = _Restart(case, best if best is not None and best.status != "possible" else None)
    decision = RULES.settle(asked)
    if asked.best is None:
        return RestartDecision(decision, [], None)
    asked.decided, asked.repeats = decision.answer, _repeats(case, asked.best.id)
    doubt = RULES.overrule(asked)
    if doubt is not None:
        return RestartDecision(doubt, [], asked.repeats)
    return RestartDecision(decision, asked.hosts if decision.answer == "exclude_then_restart" else [], asked.repeats)


def describe(diagnosis: Findings) -> dict[str, Any] | None:
    """Return the decision, the hosts to leave out and the reason in both languages; None where nothing failed.

    ``exclude`` has the names that the scheduler's commands take. ``repeats`` is there where the history knows earlier
    failures of this job from the same cause.
    """
    found = decide(diagnosis)
    if found is None:
        return None
    why = explain.says(found.decision)
    if found.repeats is not None:
        told = {"en": found.repeats["says"], "zh": found.repeats["says_zh"]}
        why = _joined(told, why) if found.decision.answer == "undecided" else _joined(why, told)
    return {
        "decision": found.decision.answer,
        "exclude": found.exclude,
        **pair("why", why),
        **({"repeats": found.repeats} if found.repeats is not None else {}),
    }


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


def _joined(one: Text, two: Text) -> Text:
    return {"en": f"{one['en']} {two['en']}", "zh": f"{one['zh']}{two['zh']}"}


def accuses_every_host(candidate: Candidate, case: Case) -> bool:
    """Tell whether the culprits lie on all hosts of a job that has several: then none is left to restart it on."""
    named = _named(candidate, case)
    return len(named) >= _SEVERAL and {*case.identity.hosts} <= {*named}


def _named(best: Candidate, case: Case) -> list[str]:
    """Return the hosts of the culprits as the log names them."""
    found = [
        one.host or (case.identity.ranks[one.rank].host if one.rank in case.identity.ranks else None)
        for one in best.culprits
    ]
    return list(dict.fromkeys(host for host in found if host))
