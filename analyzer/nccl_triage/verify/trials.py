"""Runs trials on an open cluster within a budget, and records what each showed and what the hosts reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.hosts.interfaces import for_gloo
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify import meeting, reachability, runner
from nccl_triage.verify.cluster import GREETING, IMPORT, Cluster
from nccl_triage.verify.collective_run import CollectiveRun, RunFinding, RunResult
from nccl_triage.verify.gpus import Refusal
from nccl_triage.verify.health import Health, health_of
from nccl_triage.verify.judge import Report, Trial, trial_of
from nccl_triage.verify.means import host_means
from nccl_triage.verify.network_findings import interface_findings, path_findings
from nccl_triage.verify.placement import Request
from nccl_triage.verify.plan import Plan, Planned
from nccl_triage.verify.reachability import ReachabilityMatrix
from nccl_triage.verify.together import together


@dataclass(frozen=True, slots=True)
class SessionHosts:
    """The hosts of a session, their facts, the reachability between them, and the backend of the job, if known."""

    places: Sequence[HostPlace]
    facts: Sequence[Mapping[str, Any]]
    matrix: ReachabilityMatrix
    job_backend: str | None = None


def fill_in(run: CollectiveRun, ground: SessionHosts, faults: Mapping[str, Any]) -> CollectiveRun:
    """Return a run as it can be started on these hosts."""
    return replace(
        run,
        per_rank_env=_interfaces(run, ground),
        store_address=run.store_address or store_address(run, ground),
        faults=dict(faults),
    )


def _interfaces(run: CollectiveRun, ground: SessionHosts) -> dict[int, dict[str, str]]:
    """Return the variables of each rank, so that Gloo takes the interface that NCCL would take."""
    env = {rank: dict(found) for rank, found in run.per_rank_env.items()}
    asked = any(name.endswith("SOCKET_IFNAME") for name in run.env)
    # A job of Gloo between hosts took what Gloo takes unasked: the address of a host's own name, be it the loopback.
    if run.backend != "gloo" or (ground.job_backend == "gloo" and len(run.places) > 1 and not asked):
        return env
    for rank, slot in enumerate(run.slots):
        own = env.get(rank, {})
        if "GLOO_SOCKET_IFNAME" in own:
            continue
        found = for_gloo(ground.facts[slot.place], run.env)
        if len(run.places) == 1 and not asked:
            found = {"GLOO_SOCKET_IFNAME": "lo"}  # one host: nothing leaves it
        if found:
            env[rank] = {**own, **found}
    return env


def store_address(run: CollectiveRun, ground: SessionHosts) -> str:
    """Return an address of rank 0's host that the others reach."""
    if len(run.places) == 1:
        return "127.0.0.1"
    first = run.slots[0].place
    names = [ground.places[place].name for place in run.places]
    reached = ground.matrix.reached_by_all(ground.places[first].name, names)
    facts = ground.facts[first]
    own = [entry["address"] for entry in facts["interfaces"] if entry["up"] and not entry["loopback"]]
    known = (ground.places[first].address, *reached, *facts["own_addresses"], *own)
    return next((address for address in known if address and address != "127.0.0.1"), "127.0.0.1")


#: Seconds below which no further run is begun.
LEAST = 3.0
#: Takes a line of progress in both languages.
Say = Callable[[Mapping[str, str]], None]


class Session:
    """The open cluster with a plan, the remaining time since ``started`` (default: now), and the report so far."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        rules: RuleSet,
        folder: Path,
        *,
        say: Say = lambda text: None,
        faults: dict[str, Any] | None = None,
        started: float | None = None,
    ) -> None:
        self.cluster, self.plan, self.rules, self.folder, self.say = cluster, plan, rules, folder, say
        self.faults = faults or {}
        self.report = Report(plan)
        self.end = (time.monotonic() if started is None else started) + plan.options.budget
        self._count = 0
        self._cache: dict[str, list[Trial]] = {}
        self._paths: dict[str, list[RunFinding]] = {}
        self._faults: list[tuple[int, Refusal]] | None = None

    @property
    def names(self) -> list[str]:
        """The hosts' names."""
        return [place.name for place in self.cluster.places]

    def left(self) -> float:
        """Return the seconds of the budget that are left."""
        return self.end - time.monotonic()

    # what is known before anything runs

    def prepare(self, backends: Collection[str], probes: bool) -> None:
        """Import torch for ranks on processors, and probe the paths between the hosts."""
        self.meet()
        if "gloo" in backends:
            self._import_torch()
        if probes and not self.report.problems:
            count = len(self.names)
            self.say({"en": f"probing {count} hosts for reachability", "zh": f"正在探测 {count} 台主机之间的可达性"})
            self.report.matrix = reachability.measure(self.cluster, also=self._port_of_job())

    def _port_of_job(self) -> int | None:
        """Return the port of the log, None where these hosts are not the job's: it means nothing there."""
        question = self.plan.question
        hosts = zip(self.cluster.places, self.cluster.facts, strict=True)
        return question.port if all(meeting.is_of_job(question, place, facts) for place, facts in hosts) else None

    def at_hand(self, planned: Planned) -> Planned:
        """Return an experiment without an address and a port of the log that are not these hosts' own."""
        return meeting.at_hand(planned, self.plan.question, self.cluster.places, self.cluster.facts)

    def meet(self) -> None:
        """Know the hosts' facts."""
        if not self.cluster.facts:
            self.say({"en": "asking the hosts", "zh": "正在询问各主机"})
            self.cluster.greet(GREETING)
        self.report.hosts = self.cluster.facts

    def _import_torch(self) -> None:
        broken = self.cluster.preload(min(IMPORT, max(1.0, self.left())))
        for place, error in broken.items():
            name = self.cluster.name(place)
            self._problem(f"torch cannot be imported on {name}: {error}", f"{name} 上无法导入 torch：{error}")

    def health(self, planned: Planned) -> Health:
        """Return what the drivers say for a suspect's GPUs: only what they say twice, at the beginning and now."""
        means = self.plan.means
        if self._faults is None:
            first = list(means.faults)
            again = self.cluster.gpus(sorted({place for place, _ in first}), imports=False) if first else {}
            now = {place: host_means(answer).faults for place, answer in again.items()}
            self._faults = [
                (place, fault)
                for place, fault in first
                if any((one.rule, one.gpu.index) == (fault.rule, fault.gpu.index) for one in now.get(place, ()))
            ]
        request = Request(self.plan.question, planned.suspect, planned.experiment)
        return health_of(request, means, self._faults)

    def _problem(self, en: str, zh: str) -> None:
        self.report.problems.append({"en": en, "zh": zh})

    # runs

    def realised(self, run: CollectiveRun) -> CollectiveRun:
        """Return a run with what the hosts' facts and the probe decide: interfaces, the store's address, faults."""
        job = self.plan.question.backend
        ground = SessionHosts(self.cluster.places, self.cluster.facts, self.report.matrix, job)
        return fill_in(run, ground, self.faults)

    def trial(self, run: CollectiveRun, index: int, planned: Planned) -> Trial | None:
        """Return the ``index``-th run of a setting, made or remembered; None when the budget is spent."""
        realised = self.realised(run)
        key = repr(replace(realised, label="", changed=""))
        known = self._cache.setdefault(key, [])
        while len(known) <= index:
            if self.left() < LEAST:
                return None
            trial = self._run(realised, planned)
            known.append(trial)
            self.report.trials.append(trial)
        return known[index]

    def together(self, runs: Sequence[CollectiveRun], planned: Planned) -> list[Trial]:
        """Make runs on different hosts at the same time; none when the budget is spent."""
        if self.left() < LEAST:
            return []
        named = [self._named(self.realised(run)) for run in runs]
        works = [(run.places, partial(self._execute, run, planned)) for run in named]
        trials = [self._assess(result) for result in together(self.cluster, works)]
        self.report.trials += trials
        return trials

    def _run(self, run: CollectiveRun, planned: Planned) -> Trial:
        return self._assess(self._execute(self._named(run), planned, self.cluster))

    def _named(self, run: CollectiveRun) -> CollectiveRun:
        """Return a run with a label of its own, and say that it begins."""
        self._count += 1
        label = f"run-{self._count:02d}"
        how = run.backend + (f", {run.changed}" if run.changed else "")
        self.say(
            {
                "en": f"{label}: {run.message.op} on {run.world} ranks, {how}",
                "zh": f"{label}：{run.message.op}，{run.world} 个 rank，{how}",
            }
        )
        return replace(run, label=label)

    def _execute(self, run: CollectiveRun, planned: Planned, cluster: Cluster) -> RunResult:
        return runner.execute(
            cluster,
            run,
            self.folder / run.label,
            planned.limits(run),
            method="spawn" if run.backend == "nccl" else "fork",  # CUDA must not be initialised before a fork
            budget=self.left(),
        )

    def _assess(self, result: RunResult) -> Trial:
        return trial_of(result, self.names, self.findings(result.run), self.rules)

    def findings(self, run: CollectiveRun) -> list[RunFinding]:
        """Return what facts and matrix show for the hosts, backend and variables of a realised run."""
        env = [run.env_of(run.first_rank(place)) for place in run.places]
        key = f"{run.backend} {run.places} {[sorted(own.items()) for own in env]}"
        if key not in self._paths:
            names = [self.names[place] for place in run.places]
            facts = [self.cluster.facts[place] for place in run.places]
            found = interface_findings(names, facts, run.backend, env)
            if len(names) > 1:
                found += path_findings(names, facts, self.report.matrix, run.backend, env)
            self._paths[key] = found
        return self._paths[key]
