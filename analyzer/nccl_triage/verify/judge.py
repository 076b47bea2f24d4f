"""From trials to a verdict: combines the runs of each setting and selects a row of the decision table.

Live sessions and results that were collected from files are judged here in the same way. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nccl_triage.engine.schema import RuleSet, Text, Treatment
from nccl_triage.verify.assess import assess, diagnose_own_logs
from nccl_triage.verify.assessed_run import AssessedRun
from nccl_triage.verify.collective_run import CollectiveRun, RunFinding, RunResult
from nccl_triage.verify.decide import DecisionRow, Fact, Facts, State, decide
from nccl_triage.verify.plan import REPEATS, Plan, Planned
from nccl_triage.verify.previous import Previous
from nccl_triage.verify.reachability import ReachabilityMatrix
from nccl_triage.verify.same_world import SameWorld

#: Runs after which a control that failed once of twice counts as flaky.
FLAKY_RUNS = 5


@dataclass(slots=True)
class Trial:
    """One assessed run; it fails when the run did, or when there is a finding."""

    result: RunResult
    finding: RunFinding | None
    tolerated: tuple[str, ...] = ()

    @property
    def fails(self) -> bool:
        """Whether anything was wrong, but for the kinds of findings that are ``tolerated``."""
        return not self.result.passed or (self.finding is not None and self.finding.kind not in self.tolerated)


def treated(trial: Trial, treatment: Treatment) -> Trial:
    """Return a treatment's run: with a longer timeout it may come late what came too late before."""
    return replace(trial, tolerated=("late", "slow")) if treatment.variable == "timeout" else trial


@dataclass(slots=True)
class ExperimentOutcome:
    """The verdict on one suspected cause, with its evidence."""

    planned: Planned
    row: DecisionRow
    facts: Facts
    controls: list[Trial] = field(default_factory=list)
    treatments: list[tuple[Treatment, list[Trial]]] = field(default_factory=list)
    findings: list[RunFinding] = field(default_factory=list)
    why_not: dict[str, str] | None = None
    gates: tuple[Trial, ...] = ()
    narrowed: dict[str, Any] | None = None


@dataclass(slots=True)
class Report:
    """The results of a session."""

    plan: Plan
    outcomes: list[ExperimentOutcome] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    matrix: ReachabilityMatrix = field(default_factory=ReachabilityMatrix)
    hosts: list[dict[str, Any]] = field(default_factory=list)
    problems: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0
    previous: Previous = field(default_factory=dict)


def trial_of(result: RunResult, names: Sequence[str], paths: Iterable[RunFinding], rules: RuleSet) -> Trial:
    """Return a run with what it shows; ``paths`` are what facts and probe show for its backend and variables."""
    return Trial(result, assess(AssessedRun(result, names, tuple(paths), diagnose_own_logs(result, rules))))


def outcome_without(planned: Planned, controls: Sequence[Trial] = ()) -> ExperimentOutcome:
    """Return the outcome of a suspect before anything is concluded from its runs, or when none can be made."""
    facts = Facts(planned.experiment.kind, ran=False, passing=planned.experiment.passing)
    return ExperimentOutcome(planned, decide(facts), facts, list(controls), why_not=planned.why_not)


def settle(
    outcome: ExperimentOutcome,
    fact: Fact,
    limit: float | None,
    world: SameWorld,
    trivial_fails: bool = False,
    seen: Sequence[RunFinding] = (),
) -> None:
    """Conclude from an outcome's controls and treatments: its findings, facts and row.

    ``seen`` are findings of hosts and paths, which are told whatever the runs come to. ``fact`` is what checks without a collective show, ``limit`` the log's timeout in seconds, ``world`` how the hosts,
    GPUs and variables of the runs compare with those of the failure, ``trivial_fails`` whether a trivial all-reduce failed before the control.
    """
    planned, controls = outcome.planned, outcome.controls
    why_not = own_failure(controls)
    if why_not is not None:
        outcome.why_not, outcome.findings = why_not, list(seen)
        return
    shown = [trial.finding for trial in controls if trial.finding is not None]
    outcome.findings = list(dict.fromkeys([*shown, *seen]))
    state = state_of(controls)
    if state == "passes" and trivial_fails:
        state = "mixed"  # the ranks could not do less, and then did more
    best: State = "none"
    if outcome.treatments:
        states = [state_of(trials) for _, trials in outcome.treatments]
        best = "passes" if "passes" in states else states[0]
    outcome.facts = Facts(
        kind=planned.experiment.kind,
        ran=bool(controls) or fact != "none",
        control=state,
        diagnosed=state == "fails" and as_diagnosed(planned, controls),
        treatment=best,
        found=any(finding.cause and not predicted(planned, finding) for finding in outcome.findings),
        fact=fact,
        complete=planned.complete,
        passing=planned.experiment.passing,
        brief=is_brief(planned, controls, limit),
        proven=planned.suspect.proven,
        hosts=world.hosts,
        gpu=world.gpu,
        variables=world.variables,
    )
    outcome.row = decide(outcome.facts)


def own_failure(trials: Iterable[Trial]) -> Text | None:
    """Return why runs say nothing of the job, where the verifier itself failed in one of them; else None."""
    return next((why for trial in trials if (why := trial.result.own_failure) is not None), None)


def state_of(trials: Sequence[Trial]) -> State:
    """Return the combined state of the runs of one setting; fewer runs than a verdict needs prove nothing."""
    failed = sum(trial.fails for trial in trials)
    if len(trials) < REPEATS:
        return "none"
    if failed == len(trials) or (len(trials) >= FLAKY_RUNS and failed >= len(trials) - 1):
        return "fails"
    return "passes" if failed == 0 else "mixed"


def predicted(planned: Planned, finding: RunFinding) -> bool:
    """Tell whether a finding is what the suspected cause predicts."""
    wanted = planned.experiment.predicts or (planned.suspect.cause,)
    return finding.cause in wanted or finding.kind in wanted or finding.cause == planned.suspect.cause


def as_diagnosed(planned: Planned, controls: Iterable[Trial]) -> bool:
    """Tell whether every failing control failed in a predicted way, and at the same ranks."""
    findings = [trial.finding for trial in controls if trial.fails]
    if not all(finding is not None and predicted(planned, finding) for finding in findings):
        return False
    return len({(finding.ranks, finding.hosts) for finding in findings if finding is not None}) == 1


def is_brief(planned: Planned, controls: Iterable[Trial], limit: float | None) -> bool:
    """Tell whether the collective takes less than 1 % of the log's timeout, for a cause that blames the timeout."""
    if limit is None or not any(item.variable == "timeout" for item in planned.experiment.vary):
        return False
    medians = [trial.result.median for trial in controls if trial.result.passed]
    return bool(medians) and all(value is not None and value < 0.01 * limit for value in medians)


def fact_of_findings(planned: Planned, findings: Iterable[RunFinding], probed: bool) -> Fact:
    """Return whether facts of the hosts, or the probe if there was one, show the suspected cause itself, or another."""
    causes = {finding.cause for finding in findings}
    if planned.suspect.cause in causes:
        return "shows"
    return "other" if causes else "clean" if probed else "none"


def fact_of_versions(trials: Iterable[Trial], control: CollectiveRun) -> Fact:
    """Return whether the ranks told different versions of torch or NCCL."""
    told: dict[str, set[str]] = {}
    for trial in trials:
        for trace in trial.result.ranks.values():
            for name in ("torch", "nccl"):
                value = trace.details.get("imported", {}).get(name)
                if value:
                    told.setdefault(name, set()).add(str(value))
    if not told or (control.backend == "nccl" and "nccl" not in told):
        return "none"
    return "shows" if any(len(values) > 1 for values in told.values()) else "clean"
