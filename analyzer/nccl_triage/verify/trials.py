"""Runs trials on an open cluster within a budget, and records what each showed and what the hosts reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.verify import reachability, runner
from nccl_triage.verify.cluster import GREETING, IMPORT, Cluster
from nccl_triage.verify.collective_run import CollectiveRun, HostPlace, RunFinding, RunResult
from nccl_triage.verify.gpus import Refusal
from nccl_triage.verify.health import Health, health_of
from nccl_triage.verify.judge import Report, Trial, trial_of
from nccl_triage.verify.means import host_means
from nccl_triage.verify.placement import Request
from nccl_triage.verify.plan import Plan, Planned
from nccl_triage.verify.reachability import ReachabilityMatrix, for_gloo, interface_findings, path_findings


@dataclass(frozen=True, slots=True)
class SessionHosts:
    """The hosts of a session, their facts, and the reachability between them."""

    places: Sequence[HostPlace]
    facts: Sequence[Mapping[str, Any]]
    matrix: ReachabilityMatrix


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
    if run.backend != "gloo":
        return env
    for rank, slot in enumerate(run.slots):
        own = env.get(rank, {})
        if "GLOO_SOCKET_IFNAME" in own:
            continue
        found = for_gloo(ground.facts[slot.place], run.env)
        if len(run.places) == 1 and not any(name.endswith("SOCKET_IFNAME") for name in run.env):
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
            self.report.matrix = reachability.measure(self.cluster, also=self.plan.question.port)

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
        ground = SessionHosts(self.cluster.places, self.cluster.facts, self.report.matrix)
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

    def _run(self, run: CollectiveRun, planned: Planned) -> Trial:
        self._count += 1
        label = f"run-{self._count:02d}"
        how = run.backend + (f", {run.changed}" if run.changed else "")
        self.say(
            {
                "en": f"{label}: {run.message.op} on {run.world} ranks, {how}",
                "zh": f"{label}：{run.message.op}，{run.world} 个 rank，{how}",
            }
        )
        result = runner.execute(
            self.cluster,
            replace(run, label=label),
            self.folder / label,
            planned.limits(run),
            method="spawn" if run.backend == "nccl" else "fork",  # CUDA must not be initialised before a fork
            budget=self.left(),
        )
        return self._assess(result)

    def _assess(self, result: RunResult) -> Trial:
        found = self.findings(result.run.backend, result.run.env_of(0))
        return trial_of(result, self.names, found, self.rules)

    def findings(self, backend: str, env: dict[str, str]) -> list[RunFinding]:
        """Return what facts and matrix show for a backend with these variables."""
        key = f"{backend} {sorted(env.items())}"
        if key not in self._paths:
            facts = self.cluster.facts
            found = interface_findings(self.names, facts, backend, env)
            if len(self.names) > 1:
                found += path_findings(self.names, facts, self.report.matrix, backend, env)
            self._paths[key] = found
        return self._paths[key]
