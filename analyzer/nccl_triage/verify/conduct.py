"""Carry out a plan: hosts' facts, probe, controls, treatments, bisection; then the verdict on every suspect."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import RuleSet, Treatment
from nccl_triage.verify import reachability, runner
from nccl_triage.verify.cluster import Cluster
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
    trial_of,
)
from nccl_triage.verify.model import Finding, Run, RunResult
from nccl_triage.verify.narrow import narrow
from nccl_triage.verify.paths import interface_findings, path_findings
from nccl_triage.verify.plan import REPEATS, Plan, Planned
from nccl_triage.verify.realise import Ground, realise
from nccl_triage.verify.treatments import Known, make, without, words

__all__ = ["Outcome", "Report", "Session", "Trial"]

#: Seconds that agents get to answer and to import torch.
GREETING, IMPORT = 20.0, 120.0
Say = Callable[[str], None]


class Session:
    """Runs experiments on an open cluster within a budget and keeps what it learns."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        rules: RuleSet,
        folder: Path,
        *,
        say: Say = lambda text: None,
        faults: dict[str, Any] | None = None,
    ) -> None:
        self.cluster, self.plan, self.rules, self.folder, self.say = cluster, plan, rules, folder, say
        self.faults = faults or {}
        self.report = Report(plan)
        self.end = time.monotonic() + plan.wishes.budget
        self.method = "fork"
        self._count = 0
        self._cache: dict[str, list[Trial]] = {}
        self._paths: dict[str, list[Finding]] = {}

    @property
    def names(self) -> list[str]:
        """The hosts' names."""
        return [place.name for place in self.cluster.places]

    def left(self) -> float:
        """Return the seconds of the budget that are left."""
        return self.end - time.monotonic()

    def carry_out(self) -> Report:
        """Do everything; the result of a part that fails is what it showed."""
        started = time.monotonic()
        backends = [entry.control.backend for entry in self.plan.experiments if entry.control is not None]
        if backends:
            self.prepare(backends[0], self.plan.probes)
        for planned in self.plan.experiments:
            self.report.outcomes.append(self._experiment(planned))
        self.report.seconds = time.monotonic() - started
        return self.report

    # what is known before anything runs

    def prepare(self, backend: str, probes: bool) -> None:
        """Ask the hosts who they are, import torch or look at the GPUs, and probe the ways between them."""
        self.say("asking the hosts")
        self.cluster.greet(GREETING)
        self.report.hosts = self.cluster.facts
        if backend == "nccl":
            self.method = "spawn"  # CUDA must not be initialised before a fork
            self._look_at_gpus()
        else:
            self._import_torch()
        if probes and not self.report.problems:
            self.say(f"probing {len(self.names)} hosts for reachability")
            self.report.matrix = reachability.measure(self.cluster, also=self.plan.question.port)

    def _import_torch(self) -> None:
        broken = self.cluster.preload(min(IMPORT, max(1.0, self.left())))
        for place, error in broken.items():
            name = self.cluster.name(place)
            self._problem(f"torch cannot be imported on {name}: {error}", f"{name} 上无法导入 torch：{error}")

    def _look_at_gpus(self) -> None:
        """Refuse other hosts' GPUs that are in use; those of this host were looked at when the plan was made."""
        remote = [index for index, place in enumerate(self.cluster.places) if place.command]
        answers = self.cluster.ask("gpus", remote, GREETING) if remote else {}
        for place in remote:
            name, gpus = self.cluster.name(place), answers.get(place, {}).get("gpus", [])
            busy = [
                gpu
                for gpu in gpus
                if gpu["processes"] or gpu["percent"] > 5 or gpu["used"] > max(1 << 30, 0.03 * gpu["total"])
            ]
            if not gpus:
                self._problem(f"{name} shows no NVIDIA GPU", f"{name} 上看不到 NVIDIA GPU")
            elif busy and not self.plan.wishes.allow_busy:
                which = ", ".join(str(gpu["index"]) for gpu in busy)
                self._problem(
                    f"GPU {which} of {name} is in use (--allow-busy uses it all the same)",
                    f"{name} 的 GPU {which} 正在被使用（--allow-busy 可强制使用）",
                )

    def _problem(self, en: str, zh: str) -> None:
        self.report.problems.append({"en": en, "zh": zh})

    def _realised(self, run: Run) -> Run:
        ground = Ground(self.cluster.places, self.cluster.facts, self.report.matrix)
        return realise(run, ground, self.faults)

    # one run

    def trial(self, run: Run, index: int, planned: Planned) -> Trial | None:
        """Return the ``index``-th run of a setting, made or remembered; None when the budget is spent."""
        realised = self._realised(run)
        key = repr(replace(realised, label="", changed=""))
        known = self._cache.setdefault(key, [])
        while len(known) <= index:
            if self.left() < 3.0:
                return None
            self._count += 1
            label = f"run-{self._count:02d}"
            self.say(
                f"{label}: {run.message.op} on {run.world} ranks, {run.backend}{f', {run.changed}' if run.changed else ''}"
            )
            result = runner.execute(
                self.cluster,
                replace(realised, label=label),
                self.folder / label,
                planned.limits(realised),
                method=self.method,
                budget=self.left(),
            )
            trial = self._assess(result)
            known.append(trial)
            self.report.trials.append(trial)
        return known[index]

    def _assess(self, result: RunResult) -> Trial:
        env = {**result.run.env, **result.run.per_rank_env.get(0, {})}
        return trial_of(result, self.names, self.findings(result.run.backend, env), self.rules)

    def findings(self, backend: str, env: dict[str, str]) -> list[Finding]:
        """Return what facts and matrix show for a backend with these variables."""
        key = f"{backend} {sorted(env.items())}"
        if key not in self._paths:
            facts = self.cluster.facts
            found = interface_findings(self.names, facts, backend, env)
            if len(self.names) > 1:
                found += path_findings(self.names, facts, self.report.matrix, backend, env)
            self._paths[key] = found
        return self._paths[key]

    # one suspect

    def _experiment(self, planned: Planned) -> Outcome:
        if planned.control is None:
            return outcome_without(planned)
        if self.report.problems:
            outcome = outcome_without(planned)
            outcome.why_not = {lang: "; ".join(item[lang] for item in self.report.problems) for lang in ("en", "zh")}
            return outcome
        control = replace(planned.control, changed="")
        outcome = outcome_without(planned, self._controls(control, planned))
        if state_of(outcome.controls) == "fails":
            self._treat(planned, control, outcome)
        settle(outcome, self._fact(planned, control), self.plan.question.timeout)
        return outcome

    def _controls(self, control: Run, planned: Planned) -> list[Trial]:
        trials: list[Trial] = []
        wanted = REPEATS
        while len(trials) < wanted:
            trial = self.trial(control, len(trials), planned)
            if trial is None:
                break
            trials.append(trial)
            if len({found.fails for found in trials}) > 1:
                wanted = FLAKY_RUNS
        return trials

    def _treat(self, planned: Planned, control: Run, outcome: Outcome) -> None:
        first = outcome.controls[0].finding
        known = Known(
            names=self.names,
            facts=self.cluster.facts,
            matrix=self.report.matrix,
            deadlines=planned.deadlines,
            gpus=self.plan.means.gpus,
            odd_slots=first.ranks if first is not None and len(first.ranks) < control.world else (),
            odd_hosts=first.hosts if first is not None else planned.suspect.hosts,
            suspect_variables=planned.suspect.variables,
        )
        realised = self._realised(control)
        for treatment in planned.experiment.vary:
            for run in make(treatment, realised, known):
                self._try(treatment, replace(run, changed=words(treatment)["en"]), planned, outcome)
        if first is None or not (first.ranks or first.hosts):
            self._bisect(planned, control, outcome)

    def _try(self, treatment: Treatment, run: Run, planned: Planned, outcome: Outcome) -> None:
        """Run a treatment as often as a verdict needs, or until it fails."""
        trials: list[Trial] = []
        while len(trials) < REPEATS and not any(trial.fails for trial in trials):
            trial = self.trial(run, len(trials), planned)
            if trial is None:
                break
            trials.append(treated(trial, treatment))
        if trials:
            outcome.treatments.append((treatment, trials))

    def _bisect(self, planned: Planned, control: Run, outcome: Outcome) -> None:
        """Find the host, the rank or the pair without which the control passes."""
        by_place = len(control.places) > 1
        units = list(control.places) if by_place else [slot.number for slot in control.slots]
        if len(units) < 3:
            if by_place:
                outcome.narrowed = {"hosts": [self.names[place] for place in control.places], "kind": "pair", "runs": 0}
            return

        def fails(group: tuple[int, ...]) -> bool:
            others = [unit for unit in units if unit not in group]
            run = without(control, **({"places": others} if by_place else {"slots": others}))
            if run is None:
                return False
            trial = self.trial(
                replace(run, changed=f"only {'hosts' if by_place else 'ranks'} {list(group)}"), 0, planned
            )
            unknown.extend([] if trial is not None else [group])
            return trial is not None and trial.fails

        unknown: list[tuple[int, ...]] = []
        found = narrow(units, fails)
        if unknown:
            return  # the time was over before everybody was asked: nobody is cleared, nobody is blamed
        key = "hosts" if by_place else "ranks"
        shown: list[Any] = [self.names[unit] for unit in found.units] if by_place else list(found.units)
        outcome.narrowed = {key: shown, "kind": found.kind, "runs": found.tests}
        if found.kind == "group":
            return
        # Of a pair that fails together either one may go.
        rest = without(control, **({"places": found.units[:1]} if by_place else {"slots": found.units[:1]}))
        if rest is not None:
            left_out = Treatment("members", "without-culprit")
            self._try(left_out, replace(rest, changed=words(left_out)["en"]), planned, outcome)

    def _fact(self, planned: Planned, control: Run) -> Fact:
        """Return what checks without a collective show of the predicted cause."""
        if planned.suspect.cause == "nccl-version-conflict":
            return fact_of_versions(self.report.trials, control)
        if planned.experiment.kind == "store" and planned.suspect.cause == "port-in-use" and control.port:
            return self._port_taken(control)
        if planned.suspect.cause == "duplicate-gpu":
            return self._crowded()
        if planned.experiment.kind == "single":
            return "shows" if self.plan.means.gpu_faults else "clean"
        realised = self._realised(control)
        found = self.findings(control.backend, {**control.env, **realised.per_rank_env.get(0, {})})
        return fact_of_findings(planned, found, bool(self.report.matrix.paths))

    def _crowded(self) -> Fact:
        """Tell whether the log has more ranks on a host than GPUs are visible there."""
        most = max((len(ranks) for ranks in self.plan.question.ranks_of.values()), default=0)
        return ("shows" if most > self.plan.means.gpus else "clean") if most else "none"

    def _port_taken(self, control: Run) -> Fact:
        place = control.slots[0].place
        answers = []
        for _ in range(REPEATS):
            answer = self.cluster.ask("check_port", [place], 5.0, {place: {"port": control.port}}).get(place)
            answers.append(bool(answer and answer["taken"]))
        return "shows" if all(answers) else "clean"
