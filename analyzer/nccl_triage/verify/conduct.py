"""Carry out a plan: hosts' facts, probe, controls, treatments, bisection; then the verdict on every suspect."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import RuleSet, Treatment
from nccl_triage.verify import own_logs, reachability, runner
from nccl_triage.verify.assess import View, assess
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.decide import Facts, Row, State, decide
from nccl_triage.verify.interfaces import for_gloo
from nccl_triage.verify.model import Deadlines, Finding, Run, RunResult
from nccl_triage.verify.narrow import narrow
from nccl_triage.verify.paths import interface_findings, path_findings
from nccl_triage.verify.plan import REPEATS, Plan, Planned, words
from nccl_triage.verify.reachability import Matrix
from nccl_triage.verify.treatments import Known, make, without

#: Runs after which a control that failed once of twice counts as flaky.
FLAKY_RUNS = 5
#: Seconds that agents get to answer and to import torch.
GREETING, IMPORT = 20.0, 120.0
Say = Callable[[str], None]


@dataclass(slots=True)
class Trial:
    """One run with what it shows; it fails when the run did, or when something stands out in it."""

    result: RunResult
    finding: Finding | None

    @property
    def fails(self) -> bool:
        """Whether anything was wrong."""
        return not self.result.passed or self.finding is not None


@dataclass(slots=True)
class Outcome:
    """The verdict on one suspect with everything that it rests on."""

    planned: Planned
    row: Row
    facts: Facts
    controls: list[Trial] = field(default_factory=list)
    treatments: list[tuple[Treatment, list[Trial]]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    why_not: dict[str, str] | None = None
    narrowed: dict[str, Any] | None = None


@dataclass(slots=True)
class Report:
    """What a session came to."""

    plan: Plan
    outcomes: list[Outcome] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    matrix: Matrix = field(default_factory=Matrix)
    hosts: list[dict[str, Any]] = field(default_factory=list)
    problems: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0


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
        timeout: float | None = None,
    ) -> None:
        self.cluster, self.plan, self.rules, self.folder, self.say = cluster, plan, rules, folder, say
        self.faults = faults or {}
        self.timeout = timeout
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
        if any(entry.control is not None for entry in self.plan.experiments):
            self._prepare()
        for planned in self.plan.experiments:
            self.report.outcomes.append(self._experiment(planned))
        self.report.seconds = time.monotonic() - started
        return self.report

    # what is known before anything runs

    def _prepare(self) -> None:
        self.say("asking the hosts")
        self.cluster.greet(GREETING)
        self.report.hosts = self.cluster.facts
        if any(entry.control and entry.control.backend == "nccl" for entry in self.plan.experiments):
            self.method = "spawn"  # CUDA must not be initialised before a fork
        else:
            broken = self.cluster.preload(min(IMPORT, max(1.0, self.left())))
            for place, error in broken.items():
                text = f"torch cannot be imported on {self.cluster.name(place)}: {error}"
                self.report.problems.append({"en": text, "zh": text})
        if self.plan.probes:
            self.say(f"probing {len(self.names)} hosts for reachability")
            self.report.matrix = reachability.measure(self.cluster)

    def _realised(self, run: Run) -> Run:
        """Fill in what only the session knows: addresses, interfaces for Gloo, time-outs."""
        env: dict[int, dict[str, str]] = {rank: dict(found) for rank, found in run.per_rank_env.items()}
        if run.backend == "gloo":
            for rank, slot in enumerate(run.slots):
                own = env.get(rank, {})
                if "GLOO_SOCKET_IFNAME" in own:
                    continue
                found = for_gloo(self.cluster.facts[slot.place], run.env)
                if len(run.places) == 1 and not any(name.endswith("SOCKET_IFNAME") for name in run.env):
                    found = {"GLOO_SOCKET_IFNAME": "lo"}  # one host: nothing leaves it
                if found:
                    env[rank] = {**own, **found}
        return replace(
            run,
            per_rank_env=env,
            store_address=run.store_address or self._store_address(run),
            faults=self.faults,
            timeout=run.timeout if run.timeout is not None else self.timeout,
        )

    def _store_address(self, run: Run) -> str:
        first = run.slots[0].place
        if len(run.places) == 1:
            return "127.0.0.1"
        reached = self.report.matrix.reached_by_all(self.names[first], [self.names[place] for place in run.places])
        facts = self.cluster.facts[first]
        own = [entry["address"] for entry in facts["interfaces"] if entry["up"] and not entry["loopback"]]
        place = self.cluster.places[first]
        return next(
            (a for a in (place.address, *reached, *facts["own_addresses"], *own) if a and a != "127.0.0.1"), "127.0.0.1"
        )

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
                self._deadlines(realised, planned),
                method=self.method,
                budget=self.left(),
            )
            trial = Trial(result, self._assess(result))
            known.append(trial)
            self.report.trials.append(trial)
        return known[index]

    def _deadlines(self, run: Run, planned: Planned) -> Deadlines:
        limits = planned.deadlines
        if run.timeout is not None and run.timeout > limits.first / 2:
            return replace(limits, first=run.timeout + limits.first / 2)
        return limits

    def _assess(self, result: RunResult) -> Finding | None:
        env = {**result.run.env, **result.run.per_rank_env.get(0, {})}
        return assess(
            View(result, self.names, tuple(self._findings(result.run.backend, env)), own_logs.read(result, self.rules))
        )

    def _findings(self, backend: str, env: dict[str, str]) -> list[Finding]:
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
        kind, passing = planned.experiment.kind, planned.experiment.passing
        if planned.control is None:
            facts = Facts(kind, ran=False, passing=passing)
            return Outcome(planned, decide(facts), facts, why_not=planned.why_not)
        control = replace(planned.control, changed="")
        controls = self._controls(control, planned)
        outcome = Outcome(planned, decide(Facts(kind, ran=False)), Facts(kind, ran=False), controls)
        state = _state(controls)
        diagnosed = state == "fails" and self._as_diagnosed(planned, controls)
        if state == "fails":
            self._treat(planned, control, outcome)
        outcome.findings = list(dict.fromkeys(t.finding for t in controls if t.finding is not None))
        fact = self._fact(planned, control)
        treated: State = "none"
        if outcome.treatments:
            states = [_state(trials) for _, trials in outcome.treatments]
            treated = "passes" if "passes" in states else states[0]
        outcome.facts = Facts(
            kind=kind,
            ran=bool(controls) or fact != "none",
            control=state,
            diagnosed=diagnosed,
            treatment=treated,
            found=any(finding.cause and not self._predicted(planned, finding) for finding in outcome.findings),
            fact=fact,
            complete=planned.complete,
            passing=passing,
            brief=self._brief(planned, controls),
        )
        outcome.row = decide(outcome.facts)
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

    def _predicted(self, planned: Planned, finding: Finding) -> bool:
        wanted = planned.experiment.predicts or (planned.suspect.cause,)
        return finding.cause in wanted or finding.kind in wanted or finding.cause == planned.suspect.cause

    def _as_diagnosed(self, planned: Planned, controls: list[Trial]) -> bool:
        """Tell whether every failing control failed in a predicted way, and at the same ranks."""
        findings = [trial.finding for trial in controls if trial.fails]
        if not all(finding is not None and self._predicted(planned, finding) for finding in findings):
            return False
        return len({(finding.ranks, finding.hosts) for finding in findings if finding is not None}) == 1

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
                changed = replace(run, changed=words(treatment)["en"])
                trials = []
                for index in range(REPEATS):
                    trial = self.trial(changed, index, planned)
                    if trial is not None:
                        trials.append(trial)
                    if trial is None or trial.fails:
                        break
                if trials:
                    outcome.treatments.append((treatment, trials))
                if _state(trials) == "passes":
                    return
        if first is None or not (first.ranks or first.hosts):
            self._bisect(planned, control, outcome)

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
            return trial is not None and trial.fails

        found = narrow(units, fails)
        key = "hosts" if by_place else "ranks"
        shown: list[Any] = [self.names[unit] for unit in found.units] if by_place else list(found.units)
        outcome.narrowed = {key: shown, "kind": found.kind, "runs": found.tests}

    def _fact(self, planned: Planned, control: Run) -> Any:
        """Return what checks without a collective show of the predicted cause."""
        if planned.experiment.kind == "versions":
            return self._versions(control)
        if planned.experiment.kind == "store" and planned.suspect.cause == "port-in-use" and control.port:
            return self._port_taken(control)
        realised = self._realised(control)
        found = self._findings(control.backend, {**control.env, **realised.per_rank_env.get(0, {})})
        if any(self._predicted(planned, finding) for finding in found):
            return "shows"
        return "clean" if self.report.matrix.paths else "none"

    def _versions(self, control: Run) -> Any:
        told: dict[str, set[str]] = {}
        for trial in self.report.trials:
            for trace in trial.result.ranks.values():
                for name in ("torch", "nccl"):
                    value = trace.details.get("imported", {}).get(name)
                    if value:
                        told.setdefault(name, set()).add(str(value))
        if not told or (control.backend == "nccl" and "nccl" not in told):
            return "none"
        return "shows" if any(len(values) > 1 for values in told.values()) else "clean"

    def _port_taken(self, control: Run) -> Any:
        place = control.slots[0].place
        answers = []
        for _ in range(REPEATS):
            answer = self.cluster.ask("check_port", [place], 5.0, {place: {"port": control.port}}).get(place)
            answers.append(bool(answer and answer["taken"]))
        return "shows" if all(answers) else "clean"

    def _brief(self, planned: Planned, controls: list[Trial]) -> bool:
        limit = self.plan.question.timeout
        if limit is None or not any(item.variable == "timeout" for item in planned.experiment.vary):
            return False
        medians = [_median(trial.result) for trial in controls if trial.result.passed]
        return bool(medians) and all(value is not None and value < 0.01 * limit for value in medians)


def _state(trials: list[Trial]) -> State:
    """Return what runs of one setting come to; less runs than a verdict needs prove nothing."""
    failed = sum(trial.fails for trial in trials)
    if len(trials) < REPEATS:
        return "mixed" if trials else "none"
    if failed == len(trials) or (len(trials) >= FLAKY_RUNS and failed >= len(trials) - 1):
        return "fails"
    return "passes" if failed == 0 else "mixed"


def _median(result: RunResult) -> float | None:
    values = [trace.details["done"].get("median") for trace in result.ranks.values() if trace.done]
    return max((value for value in values if value is not None), default=None)
