"""Carry out a plan: put each suspect to the test by its control, treatments and bisection, and come to a verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nccl_triage.engine.schema import Treatment
from nccl_triage.verify.judge import (
    FLAKY_RUNS,
    Fact,
    Outcome,
    Report,
    Trial,
    fact_of_findings,
    fact_of_versions,
    outcome_without,
    settle,
    state_of,
    treated,
)
from nccl_triage.verify.model import Run
from nccl_triage.verify.narrow import narrow
from nccl_triage.verify.plan import REPEATS, Planned
from nccl_triage.verify.treatments import Known, make, without, words
from nccl_triage.verify.trials import Session


def carry_out(session: Session) -> Report:
    """Do everything that a session's plan asks for; the result of a part that fails is what it showed."""
    started, plan, report = time.monotonic(), session.plan, session.report
    backends = [entry.control.backend for entry in plan.experiments if entry.control is not None]
    if backends:
        session.prepare(backends[0], plan.probes)
    for planned in plan.experiments:
        report.outcomes.append(_outcome(session, planned))
    report.seconds = time.monotonic() - started
    return report


def _outcome(session: Session, planned: Planned) -> Outcome:
    if planned.control is None:
        return outcome_without(planned)
    problems = session.report.problems
    if problems:
        outcome = outcome_without(planned)
        outcome.why_not = {lang: "; ".join(item[lang] for item in problems) for lang in ("en", "zh")}
        return outcome
    return _Test(session, planned, replace(planned.control, changed="")).outcome()


class _Test:
    """One suspect put to the test in a session."""

    def __init__(self, session: Session, planned: Planned, control: Run) -> None:
        self.session, self.planned, self.control = session, planned, control

    def outcome(self) -> Outcome:
        """Run the control, what it takes to explain its failure, and conclude."""
        outcome = outcome_without(self.planned, self._controls())
        if state_of(outcome.controls) == "fails":
            self._treat(outcome)
        settle(outcome, self._fact(), self.session.plan.question.timeout)
        return outcome

    def _controls(self) -> list[Trial]:
        trials: list[Trial] = []
        wanted = REPEATS
        while len(trials) < wanted:
            trial = self.session.trial(self.control, len(trials), self.planned)
            if trial is None:
                break
            trials.append(trial)
            if len({found.fails for found in trials}) > 1:
                wanted = FLAKY_RUNS
        return trials

    def _treat(self, outcome: Outcome) -> None:
        session, planned, first = self.session, self.planned, outcome.controls[0].finding
        known = Known(
            names=session.names,
            facts=session.cluster.facts,
            matrix=session.report.matrix,
            deadlines=planned.deadlines,
            gpus=session.plan.means.gpus,
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

    def _try(self, treatment: Treatment, run: Run, outcome: Outcome) -> None:
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

    def _bisect(self, outcome: Outcome) -> None:
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

        found = narrow(units, fails)
        if unknown:
            return  # the time was over before everybody was asked: nobody is cleared, nobody is blamed
        shown: list[Any] = [names[unit] for unit in found.units] if by_place else list(found.units)
        outcome.narrowed = {"hosts" if by_place else "ranks": shown, "kind": found.kind, "runs": found.tests}
        if found.kind == "group":
            return
        # Of a pair that fails together either one may go.
        rest = self._without(found.units[:1], by_place)
        if rest is not None:
            self._try(Treatment("members", "without-culprit"), rest, outcome)

    def _without(self, units: Sequence[int], by_place: bool) -> Run | None:
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
            return "shows" if session.plan.means.gpu_faults else "clean"
        found = session.findings(control.backend, session.realised(control).env_of(0))
        return fact_of_findings(planned, found, bool(session.report.matrix.paths))

    def _crowded(self) -> Fact:
        """Tell whether the log has more ranks on a host than GPUs are visible there."""
        plan = self.session.plan
        most = max((len(ranks) for ranks in plan.question.ranks_of.values()), default=0)
        return ("shows" if most > plan.means.gpus else "clean") if most else "none"

    def _port_taken(self, place: int, port: int) -> Fact:
        answers = []
        for _ in range(REPEATS):
            answer = self.session.cluster.ask("check_port", [place], 5.0, {place: {"port": port}}).get(place)
            answers.append(bool(answer and answer["taken"]))
        return "shows" if all(answers) else "clean"
