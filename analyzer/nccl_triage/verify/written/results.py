"""The result files that ranks left in a folder: read, placed on hosts, and judged like the runs of a session.

The files come from other hosts and may be cut, missing or from an earlier start: what cannot be read says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import RuleSet, Text
from nccl_triage.errors import UsageError
from nccl_triage.hosts.interfaces import chosen, for_gloo
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.probes.gpu import pci_address
from nccl_triage.verify import plan
from nccl_triage.verify.collective_run import CollectiveRun, RankTrace, RunFinding, RunResult, Slot, SlotGpu
from nccl_triage.verify.decide import Fact
from nccl_triage.verify.health import health_of
from nccl_triage.verify.judge import (
    ExperimentOutcome,
    Report,
    Trial,
    fact_of_findings,
    fact_of_versions,
    outcome_without,
    settle,
    treated,
    trial_of,
)
from nccl_triage.verify.means import HostMeans, Means, host_means
from nccl_triage.verify.meeting import other_address
from nccl_triage.verify.network_findings import interface_findings
from nccl_triage.verify.placement import Request, untested
from nccl_triage.verify.plan import Planned
from nccl_triage.verify.question import Question
from nccl_triage.verify.runner import as_run, first_missing, note, outcome_of
from nccl_triage.verify.same_world import compare
from nccl_triage.verify.written.result_files import NEEDED, RankFile, read_run, typed
from nccl_triage.verify.written.static import Saved, read_saved


def result_of(run: CollectiveRun, files: Mapping[int, RankFile], folder: Path) -> RunResult:
    """Return the result of a run; a rank without a file is a trace without marks."""
    traces = {rank: RankTrace(rank, slot) for rank, slot in enumerate(run.slots)}
    shifts = _shifts(files)
    for rank, entry in files.items():
        _fold(traces[rank], entry, shifts[rank])
    ends = [max(trace.since, trace.exited_at or 0.0) for trace in traces.values()]
    return RunResult(
        run=as_run(run, traces),
        outcome=outcome_of(traces),
        stage=first_missing(traces),
        seconds=max(ends),
        ranks=traces,
        reason=_reason(files),
        folder=str(folder),
    )


def _shifts(files: Mapping[int, RankFile]) -> dict[int, float]:
    """Return the seconds to add to each rank's own clock.

    Each clock starts with its rank, and srun starts ranks seconds apart. They meet when the group is made: from there
    on one rank's delay shows as what it is.
    """
    met = {
        rank: float(mark["t"])
        for rank, entry in files.items()
        for mark in entry.marks
        if mark["stage"] == "group" and "t" in mark
    }
    last = max(met.values(), default=0.0)
    return {rank: last - met[rank] if rank in met else 0.0 for rank in files}


def _fold(trace: RankTrace, entry: RankFile, shift: float) -> None:
    for mark in entry.marks:
        if NEEDED.get(mark["stage"], "stage") not in mark:
            continue
        note(trace, {"message": None, **mark} if mark["stage"] == "call" else mark, mark.get("t", 0.0) + shift, 0.0)
    if entry.end is None:
        return
    code, state = entry.end.get("code"), entry.end.get("state")
    trace.exit_code = code if typed(code, int) else None
    trace.exited_at = entry.end.get("t", 0.0) + shift
    trace.killed = entry.end.get("killed") is True
    trace.state = state if isinstance(state, str) else None


def _reason(files: Mapping[int, RankFile]) -> str:
    told = [(rank, entry.end["why"]) for rank, entry in sorted(files.items()) if entry.end and entry.end.get("why")]
    return f"rank {told[0][0]} was stopped: {str(told[0][1])[:200]}" if told else ""


@dataclass(slots=True)
class Hosts:
    """The hosts on which ranks have run, in order of appearance, with their facts."""

    names: list[str] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)

    def index(self, name: str, facts: Mapping[str, Any] | None = None) -> int:
        """Return the index of a host, which is a new one when its name is."""
        if name not in self.names:
            self.names.append(name)
            self.facts.append(dict(facts) if facts else {"host": name, "interfaces": [], "own_addresses": []})
        index = self.names.index(name)
        if facts and "gpus" in facts:  # one rank of a host tells of its GPUs
            self.facts[index].setdefault("gpus", facts["gpus"])
        return index

    def means(self) -> Means:
        """Return what the hosts offered; GPUs are not refused any more, and those of a host may be unknown."""
        places = tuple(HostPlace(name) for name in self.names)
        hosts = tuple(host_means(facts.get("gpus"), facts, allow_busy=True) for facts in self.facts)
        return Means(places, hosts)

    def findings(self, run: CollectiveRun) -> list[RunFinding]:
        """Return what the hosts' interfaces show for a run."""
        seen = [place for place in run.places if self.facts[place]["interfaces"]]
        names = [self.names[place] for place in seen]
        return interface_findings(names, [self.facts[place] for place in seen], run.backend, run.env_of(0))


def hosts_of(files: Mapping[str, Mapping[int, RankFile]]) -> Hosts:
    """Return the hosts in the results of all runs."""
    hosts = Hosts()
    for ranks in files.values():
        for _, entry in sorted(ranks.items()):
            hosts.index(entry.host, entry.facts)
    return hosts


def placed(run: CollectiveRun, files: Mapping[int, RankFile], hosts: Hosts, means: Means) -> CollectiveRun:
    """Return a run with its ranks where they were, and with the variables that they had.

    A rank without a result was, as far as one can know, where the others of its planned host were.
    """
    known = {run.slots[rank].place: entry.host for rank, entry in sorted(files.items(), reverse=True)}
    found = hosts.means()
    slots = []
    for rank, slot in enumerate(run.slots):
        if rank in files:
            place = hosts.index(files[rank].host)
        else:
            place = hosts.index(known.get(slot.place, means.places[slot.place].name))
        gpu = _gpu_of(files[rank], found.hosts[place]) if rank in files and place < len(found.hosts) else None
        slots.append(Slot(slot.number, place, gpu))
    per_rank = {
        rank: {name: value for name, value in entry.env.items() if run.env.get(name) != value}
        for rank, entry in files.items()
    }
    store = files[0].store if 0 in files else None
    used = {rank: env for rank, env in per_rank.items() if env}
    return replace(run, slots=tuple(slots), per_rank_env=used, store_address=store or run.store_address)


def _gpu_of(entry: RankFile, host: HostMeans) -> SlotGpu | None:
    """Return the GPU that a rank has told, with what its host's driver says of it."""
    told = next((mark for mark in entry.marks if mark["stage"] == "device" and mark.get("bus")), None)
    if told is None:
        return None
    bus, device = pci_address(told["bus"]) or str(told["bus"]), told.get("index")
    device = device if isinstance(device, int) and not isinstance(device, bool) else 0
    known = next((gpu for gpu in host.gpus if gpu.bus == bus), None)
    return SlotGpu(device, known.index if known else device, known.uuid if known else "", bus)


def as_it_ran(planned: Planned, control: Trial, hosts: Hosts, question: Question, means: Means) -> Planned:
    """Return an experiment as its ranks were really placed; where they fell short of the plan, a pass says less."""
    wanted, run = planned.control, control.result.run
    names = hosts.means().names_in_log(run.places, question)
    planned = plan.compared(replace(planned, control=run), question, means, names)
    short: list[Text] = []
    if wanted is not None and wanted.store_address not in (None, run.store_address):
        short.append(other_address(str(wanted.store_address)))
    one, two = len(run.places), len(wanted.places) if wanted is not None else 0
    if len(question.hosts) <= one < two:  # where the log names more hosts, that is said already
        short.append({"en": f"hosts: {one} instead of the {two} planned", "zh": f"实际 {one} 台主机，计划 {two} 台"})
    request, seen = Request(question, planned.suspect, planned.experiment), hosts.means()
    if planned.experiment.kind == "single" and health_of(request, seen).fact == "none":
        short.append({"en": "GPU health was not read", "zh": "未读取 GPU 的健康状态"})
    short += [text for text in untested(request, seen, run.slots) if run.backend == "nccl"]
    if run.backend == "gloo" and _elsewhere(run, hosts):
        text = "Gloo did not use the interface that NCCL would use"
        short.append({"en": text, "zh": "Gloo 使用的网络接口与 NCCL 会选用的不同"})
    return replace(planned, differs=(*planned.differs, *short), complete=planned.complete and not short)


def gpus_of(control: Trial) -> list[tuple[int, str]]:
    """Return host and bus number of each rank's GPU, as far as they are told."""
    return [
        (trace.slot.place, str(trace.details["device"]["bus"]))
        for trace in control.result.ranks.values()
        if trace.details.get("device", {}).get("bus")
    ]


def _elsewhere(run: CollectiveRun, hosts: Hosts) -> bool:
    """Tell whether Gloo, which stood in for NCCL, took another interface; within a host only a wish makes it matter."""
    if len(run.places) < 2 and not any(name.endswith("SOCKET_IFNAME") for name in run.env):
        return False
    for rank, slot in enumerate(run.slots):
        facts, env = hosts.facts[slot.place], run.env_of(rank)
        if not facts["interfaces"] or "GLOO_SOCKET_IFNAME" in run.env:
            continue
        taken = [entry["name"] for entry in chosen(facts, "gloo", env)]
        if taken[:1] != [for_gloo(facts, run.env).get("GLOO_SOCKET_IFNAME")]:
            return True
    return False


def report_of(question: Question, rules: RuleSet, folder: Path) -> Report:
    """Judge the results in a folder; raises UsageError when there is no plan or no result of it."""
    saved = read_saved(folder)
    files = {label: read_run(folder / "results" / label, run, saved.plan_id) for label, run in saved.runs.items()}
    if not any(files.values()):
        raise UsageError(
            "{folder} contains no result of its plan",
            cause="no rank has written below {results}",
            remedy="start {script} first, and check the output of its launcher",
            folder=folder,
            results=folder / "results",
            script=folder / "run.sh",
        )
    hosts = hosts_of(files)
    made = plan.build(question, rules.causes, saved.means, saved.options)
    report = Report(made)
    trials: dict[str, Trial] = {}
    for label, run in saved.runs.items():
        if not files[label]:
            continue
        where = placed(run, files[label], hosts, saved.means)
        result = result_of(where, files[label], folder / "results" / label)
        trials[label] = trial_of(result, hosts.names, hosts.findings(where), rules)
        report.problems += _missing(where, files[label])
    report.trials = list(trials.values())
    report.seconds = sum(trial.result.seconds for trial in report.trials)
    report.outcomes = [_outcome(planned, saved, trials, hosts, question) for planned in made.experiments]
    report.hosts = hosts.facts
    report.plan = replace(made, means=hosts.means())
    return report


def _missing(run: CollectiveRun, files: Mapping[int, RankFile]) -> list[Text]:
    ranks = [str(rank) for rank in range(run.world) if rank not in files]
    if not ranks:
        return []
    shown = ", ".join(ranks[:8]) + (f" (+{len(ranks) - 8})" if len(ranks) > 8 else "")
    return [{"en": f"{run.label}: no result from rank {shown}", "zh": f"{run.label}：没有 rank {shown} 的结果"}]


def _outcome(
    planned: Planned, saved: Saved, trials: Mapping[str, Trial], hosts: Hosts, question: Question
) -> ExperimentOutcome:
    labels, treatments = saved.designs.get(planned.suspect.cause, ([], []))
    controls = [trials[label] for label in labels if label in trials]
    if planned.control is None or not controls:
        outcome = outcome_without(planned)
        if planned.control is not None:
            outcome.why_not = {"en": "Its runs left no result.", "zh": "其实验没有留下结果。"}
        return outcome
    planned = as_it_ran(planned, controls[0], hosts, question, saved.means)
    outcome = outcome_without(planned, controls)
    for treatment, own in treatments:
        made = [trials[label] for label in own if label in trials]
        if made:
            outcome.treatments.append((treatment, [treated(trial, treatment) for trial in made]))
    fact = _fact(planned, controls[0], trials, hosts, question)
    run, request = controls[0].result.run, Request(question, planned.suspect, planned.experiment)
    world = compare(request, hosts.means(), run.slots, run.backend, saved.options.job_hosts)
    settle(outcome, fact, question.timeout, world, seen=hosts.findings(run))
    return outcome


def _fact(planned: Planned, control: Trial, trials: Mapping[str, Trial], hosts: Hosts, question: Question) -> Fact:
    if planned.experiment.check == "nccl-versions":
        return fact_of_versions(trials.values(), control.result.run)
    if planned.experiment.kind == "single":
        return health_of(Request(question, planned.suspect, planned.experiment), hosts.means()).fact
    if planned.experiment.check == "gpus":
        gpus = gpus_of(control)
        return ("shows" if len(set(gpus)) < len(gpus) else "clean") if gpus else "none"
    return fact_of_findings(planned, hosts.findings(control.result.run), probed=False)
