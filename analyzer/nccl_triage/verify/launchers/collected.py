"""What ranks left in a folder, read back and judged like the runs of a session.

The files come from other hosts and may be cut, missing or from an earlier start: what cannot be read says nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import RuleSet, Text, Treatment
from nccl_triage.errors import UsageError
from nccl_triage.verify import plan
from nccl_triage.verify.interfaces import chosen, for_gloo
from nccl_triage.verify.judge import (
    Fact,
    Outcome,
    Report,
    Trial,
    fact_of_findings,
    fact_of_versions,
    outcome_without,
    settle,
    treated,
    trial_of,
)
from nccl_triage.verify.launchers import static
from nccl_triage.verify.launchers.results import RankFile, read_run, result_of
from nccl_triage.verify.model import Finding, Place, Run, Slot
from nccl_triage.verify.paths import interface_findings
from nccl_triage.verify.plan import Means, Planned
from nccl_triage.verify.question import Question


@dataclass(slots=True)
class Saved:
    """plan.json and the runs' files as they were written."""

    plan_id: str
    means: Means
    wishes: plan.Wishes
    runs: dict[str, Run]
    designs: dict[str, tuple[list[str], list[tuple[Treatment, list[str]]]]]


@dataclass(slots=True)
class Hosts:
    """The hosts on which ranks have run, in the order in which they are met, with their facts."""

    names: list[str] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)

    def index(self, name: str, facts: Mapping[str, Any] | None = None) -> int:
        """Return the index of a host, which is a new one when its name is."""
        if name not in self.names:
            self.names.append(name)
            self.facts.append(dict(facts) if facts else {"host": name, "interfaces": [], "own_addresses": []})
        return self.names.index(name)

    def findings(self, run: Run) -> list[Finding]:
        """Return what the hosts' interfaces show for a run."""
        seen = [place for place in run.places if self.facts[place]["interfaces"]]
        env = {**run.env, **run.per_rank_env.get(0, {})}
        names = [self.names[place] for place in seen]
        return interface_findings(names, [self.facts[place] for place in seen], run.backend, env)


def read_saved(folder: Path) -> Saved:
    """Read a folder's plan; raises UsageError when it holds none."""
    try:
        told = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        runs = {
            str(label): static.run_of(json.loads((folder / f"spec-{label}.json").read_text(encoding="utf-8")))
            for label in told["runs"]
        }
        places = tuple(Place(str(entry["name"]), slots=int(entry["slots"])) for entry in told["places"])
        if not all(0 <= slot.place < len(places) for run in runs.values() for slot in run.slots):
            raise ValueError("a rank on a host that is not in the plan")
        return Saved(
            plan_id=str(told["plan"]),
            means=Means(places, gpus=int(told["gpus"]), torch="unknown"),
            wishes=static.wishes_of(told["wishes"]),
            runs=runs,
            designs={str(entry["cause"]): _design(entry) for entry in told["experiments"]},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{folder} holds no plan of this version",
            cause=f"{type(error).__name__}: {error}",
            remedy="name the folder that was the --workdir of --launcher slurm or print",
        ) from None


def _design(entry: Mapping[str, Any]) -> tuple[list[str], list[tuple[Treatment, list[str]]]]:
    treatments = [
        (
            Treatment(str(item["variable"]), str(item["value"]), dict(item["env"])),
            [str(label) for label in item["runs"]],
        )
        for item in entry["treatments"]
    ]
    return [str(label) for label in entry["control"]], treatments


def report_of(question: Question, rules: RuleSet, folder: Path) -> Report:
    """Judge the results in a folder; raises UsageError when there is no plan or no result of it."""
    saved = read_saved(folder)
    files = {label: read_run(folder / "results" / label, run, saved.plan_id) for label, run in saved.runs.items()}
    if not any(files.values()):
        raise UsageError(
            f"{folder} holds no result of its plan",
            cause=f"no rank has written below {folder / 'results'}",
            remedy=f"start {folder / 'run.sh'} first, and look at what its launcher says",
        )
    hosts = _hosts(files)
    made = plan.build(question, rules.causes, saved.means, saved.wishes)
    report = Report(made)
    trials: dict[str, Trial] = {}
    for label, run in saved.runs.items():
        if not files[label]:
            continue
        where = _placed(run, files[label], hosts, saved)
        result = result_of(where, files[label], folder / "results" / label)
        trials[label] = trial_of(result, hosts.names, hosts.findings(where), rules)
        report.problems += _missing(where, files[label])
    report.trials = list(trials.values())
    report.seconds = sum(trial.result.seconds for trial in report.trials)
    report.outcomes = [_outcome(planned, saved, trials, hosts, question) for planned in made.experiments]
    report.hosts = hosts.facts
    report.plan = replace(made, means=replace(made.means, places=tuple(Place(name) for name in hosts.names)))
    return report


def _hosts(files: Mapping[str, Mapping[int, RankFile]]) -> Hosts:
    hosts = Hosts()
    for ranks in files.values():
        for _, entry in sorted(ranks.items()):
            hosts.index(entry.host, entry.facts)
    return hosts


def _placed(run: Run, files: Mapping[int, RankFile], hosts: Hosts, saved: Saved) -> Run:
    """Return a run with its ranks where they were, and with the variables that they had.

    A rank without a result was, as far as one can know, where the others of its planned host were.
    """
    known = {run.slots[rank].place: entry.host for rank, entry in sorted(files.items(), reverse=True)}
    slots = []
    for rank, slot in enumerate(run.slots):
        if rank in files:
            place = hosts.index(files[rank].host)
        else:
            place = hosts.index(known.get(slot.place, saved.means.places[slot.place].name))
        slots.append(Slot(slot.number, place))
    per_rank = {
        rank: {name: value for name, value in entry.env.items() if run.env.get(name) != value}
        for rank, entry in files.items()
    }
    return replace(run, slots=tuple(slots), per_rank_env={rank: env for rank, env in per_rank.items() if env})


def _missing(run: Run, files: Mapping[int, RankFile]) -> list[Text]:
    ranks = [str(rank) for rank in range(run.world) if rank not in files]
    if not ranks:
        return []
    shown = ", ".join(ranks[:8]) + (f" (+{len(ranks) - 8})" if len(ranks) > 8 else "")
    return [{"en": f"{run.label}: no result of rank {shown}", "zh": f"{run.label}：没有 rank {shown} 的结果"}]


def _outcome(planned: Planned, saved: Saved, trials: Mapping[str, Trial], hosts: Hosts, question: Question) -> Outcome:
    labels, treatments = saved.designs.get(planned.suspect.cause, ([], []))
    controls = [trials[label] for label in labels if label in trials]
    if planned.control is None or not controls:
        outcome = outcome_without(planned)
        if planned.control is not None:
            outcome.why_not = {"en": "Its runs left no result.", "zh": "其实验没有留下结果。"}
        return outcome
    planned = _as_it_ran(planned, controls[0], hosts, question, saved)
    outcome = outcome_without(planned, controls)
    for treatment, own in treatments:
        made = [trials[label] for label in own if label in trials]
        if made:
            outcome.treatments.append((treatment, [treated(trial, treatment) for trial in made]))
    settle(outcome, _fact(planned, controls[0], trials, hosts), question.timeout)
    return outcome


def _fact(planned: Planned, control: Trial, trials: Mapping[str, Trial], hosts: Hosts) -> Fact:
    if planned.suspect.cause == "nccl-version-conflict":
        return fact_of_versions(trials.values(), control.result.run)
    if planned.suspect.cause == "duplicate-gpu":
        gpus = _gpus(control)
        return ("shows" if len(set(gpus)) < len(gpus) else "clean") if gpus else "none"
    return fact_of_findings(planned, hosts.findings(control.result.run), probed=False)


def _as_it_ran(planned: Planned, control: Trial, hosts: Hosts, question: Question, saved: Saved) -> Planned:
    """Return an experiment as its ranks were really placed; where they fell short of the plan, a pass says less."""
    wanted, run = planned.control, control.result.run
    gpus = Counter(place for place, _ in set(_gpus(control)))
    means = replace(saved.means, gpus=min(gpus.values())) if gpus else saved.means
    names = tuple(_known_as(question, hosts.facts[place]) for place in run.places)
    planned = static.compared(replace(planned, control=run), question, means, names)
    short: list[Text] = []
    one, two = len(run.places), len(wanted.places) if wanted is not None else 0
    if len(question.hosts) <= one < two:  # where the log names more hosts, that is said already
        short.append({"en": f"hosts: {one} instead of the {two} planned", "zh": f"实际 {one} 台主机，计划 {two} 台"})
    if planned.experiment.kind == "single":
        short.append({"en": "the health of the GPUs was not read", "zh": "未读取 GPU 的健康状态"})
    if run.backend == "gloo" and _elsewhere(run, hosts):
        text = "Gloo did not take the interface that NCCL would take"
        short.append({"en": text, "zh": "Gloo 使用的网络接口与 NCCL 会选用的不同"})
    return replace(planned, differs=(*planned.differs, *short), complete=planned.complete and not short)


def _known_as(question: Question, facts: Mapping[str, Any]) -> str:
    """Return what the log calls a host: by one of its addresses, else by its own name."""
    own = {str(entry["address"]) for entry in facts["interfaces"] if not entry["loopback"]}
    return next((host for host in question.hosts if own & {host, *question.addresses.get(host, ())}), facts["host"])


def _gpus(control: Trial) -> list[tuple[int, str]]:
    """Return host and bus number of each rank's GPU, as far as they are told."""
    return [
        (trace.slot.place, str(trace.details["device"]["bus"]))
        for trace in control.result.ranks.values()
        if trace.details.get("device", {}).get("bus")
    ]


def _elsewhere(run: Run, hosts: Hosts) -> bool:
    """Tell whether Gloo, which stood in for NCCL, took another interface; within a host only a wish makes it matter."""
    if len(run.places) < 2 and not any(name.endswith("SOCKET_IFNAME") for name in run.env):
        return False
    for rank, slot in enumerate(run.slots):
        facts, env = hosts.facts[slot.place], {**run.env, **run.per_rank_env.get(rank, {})}
        if not facts["interfaces"] or "GLOO_SOCKET_IFNAME" in run.env:
            continue
        taken = [entry["name"] for entry in chosen(facts, "gloo", env)]
        if taken[:1] != [for_gloo(facts, run.env).get("GLOO_SOCKET_IFNAME")]:
            return True
    return False
