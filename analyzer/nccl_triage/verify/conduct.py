"""Carries out a plan: tests each suspected cause by a control, treatments and bisection, and reaches a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from nccl_triage.engine.schema import Treatment
from nccl_triage.verify import gate
from nccl_triage.verify.collective_run import CollectiveRun, RunFinding, Slot
from nccl_triage.verify.decide import Fact
from nccl_triage.verify.judge import (
    FLAKY_RUNS,
    ExperimentOutcome,
    Report,
    Trial,
    fact_of_findings,
    fact_of_versions,
    outcome_without,
    own_failure,
    settle,
    state_of,
    treated,
)
from nccl_triage.verify.placement import Request, place_of
from nccl_triage.verify.plan import REPEATS, Planned, compared
from nccl_triage.verify.same_world import SameWorld, compare
from nccl_triage.verify.treatments import KnownHosts, make, without, words
from nccl_triage.verify.trials import Session

Unit = TypeVar("Unit")


@dataclass(frozen=True, slots=True)
class Bisection(Generic[Unit]):
    """The smallest failing group: one unit, a pair whose members pass with others, or a larger group."""

    units: tuple[Unit, ...]
    kind: Literal["one", "pair", "group"]
    tests: int


class _Search(Generic[Unit]):
    def __init__(self, units: Sequence[Unit], fails: Callable[[tuple[Unit, ...]], bool], limit: int) -> None:
        self.order = {unit: index for index, unit in enumerate(units)}
        self.fails, self.limit, self.tests = fails, limit, 0

    def bad(self, group: Sequence[Unit]) -> bool:
        """Run the collective on a group, unless the limit of runs is reached: then it counts as passing."""
        if len(group) < 2 or self.tests >= self.limit:
            return False
        self.tests += 1
        return self.fails(tuple(sorted(group, key=self.order.__getitem__)))

    def shrink(self, part: list[Unit], rest: list[Unit]) -> list[Unit]:
        """Halve ``part`` while it still fails together with ``rest``."""
        while len(part) > 1:
            half = len(part) // 2
            if self.bad(part[:half] + rest):
                part = part[:half]
            elif self.bad(part[half:] + rest):
                part = part[half:]
            else:
                break
        return part

    def smallest(self, group: list[Unit]) -> list[Unit]:
        """Return the smallest failing group that halving finds."""
        while len(group) > 2:
            half = len(group) // 2
            one, two = group[:half], group[half:]
            if self.bad(one):
                group = one
            elif self.bad(two):
                group = two
            else:
                # It takes both halves: shrink each beside the other.
                one = self.shrink(one, two)
                return one + self.shrink(two, one)
        return group


def bisect(units: Sequence[Unit], fails: Callable[[tuple[Unit, ...]], bool], *, limit: int = 24) -> Bisection[Unit]:
    """Bisect ``units``, which are known to fail together, in at most ``limit`` runs."""
    search: _Search[Unit] = _Search(units, fails, limit)
    group = search.smallest(list(units))
    others = [unit for unit in units if unit not in group][:2]
    # What the limit leaves untested counts as passing: nobody may be named, or acquitted, on that.
    if len(group) != 2 or search.tests + 2 * len(others) > limit:
        return Bisection(tuple(group), "group", search.tests)
    # One bystander might fail as well; two are more certain.
    verdicts = {unit: [search.bad([unit, other]) for other in others] for unit in group}
    guilty = [unit for unit in group if verdicts[unit] and all(verdicts[unit])]
    if len(guilty) == 1:
        return Bisection((guilty[0],), "one", search.tests)
    return Bisection(tuple(group), "group" if guilty else "pair", search.tests)


def carry_out(session: Session) -> Report:
    """Carry out the plan of a session; a part that fails keeps the results it has."""
    started, plan, report = time.monotonic(), session.plan, session.report
    backends = {entry.control.backend for entry in plan.experiments if entry.control is not None}
    if backends:
        session.prepare(backends, plan.probes)
    elif session.cluster.facts:
        session.meet()
    for planned in plan.experiments:
        report.outcomes.append(_outcome(session, session.at_hand(planned)))
    report.seconds = time.monotonic() - started
    return report


def _outcome(session: Session, planned: Planned) -> ExperimentOutcome:
    if planned.control is None:
        return _by_health(session, planned)
    problems = session.report.problems
    if problems:
        outcome = outcome_without(planned)
        outcome.why_not = {lang: "; ".join(item[lang] for item in problems) for lang in ("en", "zh")}
        return outcome
    return _Test(session, planned, replace(planned.control, changed="")).outcome()


def world_of(session: Session, planned: Planned, slots: Sequence[Slot], backend: str) -> SameWorld:
    """Return how the hosts, GPUs and variables of an experiment compare with those of the failure."""
    plan = session.plan
    request = Request(plan.question, planned.suspect, planned.experiment)
    return compare(request, plan.means, slots, backend, plan.options.job_hosts)


def _by_health(session: Session, planned: Planned) -> ExperimentOutcome:
    """Return the outcome of a suspect without runs: what the driver says of the accused GPU can settle it alone."""
    outcome = outcome_without(planned)
    if planned.experiment.kind == "single":
        health = session.health(planned)
        if health.accused:
            # No rank ran on the accused GPU, but its own driver has answered for it.
            world = replace(world_of(session, planned, (), "nccl"), gpu="accused")
            settle(outcome, health.fact, None, world)
            outcome.why_not = None
        outcome.findings = [*health.accused, *health.others]
    return outcome


class _Test:
    """The test of one suspected cause in a session."""

    def __init__(self, session: Session, planned: Planned, control: CollectiveRun) -> None:
        self.session, self.planned, self.control = session, planned, control

    def outcome(self) -> ExperimentOutcome:
        """Run the control, the treatments and the bisection of a failure, and conclude."""
        checked = gate.passed(self.session, self.planned, self.control)
        if checked.why_not is not None:
            outcome = outcome_without(self.planned)
            outcome.why_not, outcome.gates = dict(checked.why_not), checked.trials
            return outcome
        controls = self._controls()
        outcome = outcome_without(self._as_fitted(controls), controls)
        outcome.gates = checked.trials
        if state_of(outcome.controls) == "fails" and own_failure(outcome.controls) is None:
            self._treat(outcome)
        limit = self.session.plan.question.timeout
        settle(outcome, self._fact(), limit, self._world(), checked.trivial_fails, self._seen())
        if self.planned.experiment.kind == "single":
            health = self.session.health(self.planned)
            outcome.findings += [*health.accused, *health.others]
        return outcome

    def _world(self) -> SameWorld:
        """Return how the hosts, GPUs and variables of the control compare with those of the failure."""
        return world_of(self.session, self.planned, self.control.slots, self.control.backend)

    def _as_fitted(self, controls: Sequence[Trial]) -> Planned:
        """Return the experiment as its ranks had memory for it."""
        runs = [trial.result.run for trial in controls]
        smallest = min(runs, key=lambda run: run.message.numel, default=self.control)
        if smallest.message.numel >= self.control.message.numel:
            return self.planned
        plan = self.session.plan
        fitted = replace(self.planned, control=replace(self.control, message=smallest.message))
        return compared(fitted, plan.question, plan.means, plan.means.names_in_log(self.control.places, plan.question))

    def _controls(self) -> list[Trial]:
        trials: list[Trial] = []
        wanted = REPEATS
        while len(trials) < wanted:
            trial = self.session.trial(self.control, len(trials), self.planned)
            if trial is None:
                break
            trials.append(trial)
            if trial.result.own_failure is not None:
                break
            if len({found.fails for found in trials}) > 1:
                wanted = FLAKY_RUNS
        return trials

    def _treat(self, outcome: ExperimentOutcome) -> None:
        session, planned, first = self.session, self.planned, outcome.controls[0].finding
        known = KnownHosts(
            names=session.names,
            facts=session.cluster.facts,
            matrix=session.report.matrix,
            deadlines=planned.deadlines,
            means=session.plan.means,
            odd_slots=first.ranks if first is not None and len(first.ranks) < self.control.world else (),
            odd_hosts=first.hosts if first is not None else planned.suspect.hosts,
            suspect_variables=planned.suspect.variables,
        )
        realised = session.realised(self.control)
        for treatment in planned.experiment.vary:
            for run in make(treatment, realised, known):
                self._try(treatment, run, outcome)
        if first is None or not (first.ranks or first.hosts):
            self._bisect(outcome)

    def _try(self, treatment: Treatment, run: CollectiveRun, outcome: ExperimentOutcome) -> None:
        """Run a treatment as often as a verdict needs, or until it fails."""
        run = replace(run, changed=words(treatment)["en"])
        trials: list[Trial] = []
        while len(trials) < REPEATS and not any(trial.fails for trial in trials):
            trial = self.session.trial(run, len(trials), self.planned)
            if trial is None:
                break
            trials.append(treated(trial, treatment))
        if trials:
            outcome.treatments.append((treatment, trials))

    def _bisect(self, outcome: ExperimentOutcome) -> None:
        """Find the host, the rank or the pair without which the control passes."""
        control, names = self.control, self.session.names
        by_place = len(control.places) > 1
        units = list(control.places) if by_place else [slot.number for slot in control.slots]
        if len(units) < 3:
            if by_place:
                outcome.narrowed = {"hosts": [names[place] for place in control.places], "kind": "pair", "runs": 0}
            return
        unknown: list[tuple[int, ...]] = []

        def fails(group: tuple[int, ...]) -> bool:
            run = self._without([unit for unit in units if unit not in group], by_place)
            if run is None:
                return False
            run = replace(run, changed=f"only {'hosts' if by_place else 'ranks'} {list(group)}")
            trial = self.session.trial(run, 0, self.planned)
            unknown.extend([] if trial is not None else [group])
            return trial is not None and trial.fails

        found = bisect(units, fails)
        if unknown:
            return  # time ran out before everybody was asked: nobody is cleared, nobody is blamed
        shown: list[Any] = [names[unit] for unit in found.units] if by_place else list(found.units)
        outcome.narrowed = {"hosts" if by_place else "ranks": shown, "kind": found.kind, "runs": found.tests}
        if found.kind == "group":
            return
        # Of a pair that fails together either one may go.
        rest = self._without(found.units[:1], by_place)
        if rest is not None:
            self._try(Treatment("members", "without-culprit"), rest, outcome)

    def _without(self, units: Sequence[int], by_place: bool) -> CollectiveRun | None:
        return without(self.control, **({"places": units} if by_place else {"slots": units}))

    # what checks without a collective show of the predicted cause

    def _fact(self) -> Fact:
        session, planned, control = self.session, self.planned, self.control
        if planned.experiment.check == "nccl-versions":
            return fact_of_versions(session.report.trials, control)
        if planned.experiment.kind == "store" and planned.experiment.check == "port" and control.port:
            return self._port_taken(control.slots[0].place, control.port)
        if planned.experiment.check == "gpus":
            return self._crowded()
        if planned.experiment.kind == "single":
            return session.health(planned).fact
        return fact_of_findings(planned, self._seen(), bool(session.report.matrix.paths))

    def _seen(self) -> list[RunFinding]:
        """Return what facts and probe show of the hosts and paths of the control."""
        return self.session.findings(self.session.realised(self.control))

    def _crowded(self) -> Fact:
        """Tell whether the log has more ranks on one of the hosts than GPUs are visible there."""
        question, means = self.session.plan.question, self.session.plan.means
        known = {name: place for name in question.ranks_of if (place := place_of(name, question, means)) is not None}
        pairs = [(len(question.ranks_of[name]), means.hosts[place].present) for name, place in known.items()]
        pairs = [(ranks, present) for ranks, present in pairs if ranks]
        return ("shows" if any(ranks > present for ranks, present in pairs) else "clean") if pairs else "none"

    def _port_taken(self, place: int, port: int) -> Fact:
        answers = []
        for _ in range(REPEATS):
            answer = self.session.cluster.ask("check_port", [place], 5.0, {place: {"port": port}}).get(place)
            answers.append(bool(answer and answer["taken"]))
        return "shows" if all(answers) else "clean"
