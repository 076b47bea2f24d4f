"""Plans and results of the verifier as plain data: ``--dry-run`` and the key ``verification`` of a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nccl_triage.document.verify_commands import ReadyCommand
from nccl_triage.engine.schema import Treatment
from nccl_triage.verify import asked
from nccl_triage.verify.collective_run import CollectiveRun, RunFinding, RunResult
from nccl_triage.verify.expected_bandwidth import judgement
from nccl_triage.verify.judge import ExperimentOutcome, Report, Trial
from nccl_triage.verify.plan import REPEATS, Plan, Planned
from nccl_triage.verify.previous import Previous, key_of
from nccl_triage.verify.treatments import ALONE, TRIVIAL, words
from nccl_triage.verify.worker.ops import DTYPES, operation


def plan_record(
    plan: Plan,
    job: Plan | None = None,
    ready: Sequence[ReadyCommand] = (),
    ways: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the plan as ``--dry-run --format json`` prints it.

    ``job`` is the plan for the job's own hosts, ``ready`` the commands that would carry it out, the best first. ``ways``
    are those by which the hosts of ``plan`` are reached; where nothing of it runs, ``job`` tells who would be contacted.
    """
    runs = any(entry.control is not None for entry in plan.experiments)
    named = [ready[0].launcher] * len(job.means.places) if job is not None and ready else []
    of_job = job.experiments if job is not None else (None,) * len(plan.experiments)
    return {
        "hosts": list(plan.means.names_in_log(range(len(plan.means.places)), plan.question)),
        "gpus_per_host": plan.means.gpus,
        "gpu": plan.means.gpu_name,
        "torch": plan.means.torch,
        "probe": plan.probes,
        "seconds_at_most": round(plan.seconds, 1),
        "budget_s": plan.options.budget,
        "runs": runs,
        "contacts": asked.contacts(plan, ways) if runs or job is None else asked.contacts(job, named),
        "experiments": [_planned(entry, other, job) for entry, other in zip(plan.experiments, of_job, strict=True)],
        "commands": [command.to_dict() for command in ready],
    }


def _planned(entry: Planned, of_job: Planned | None, job: Plan | None) -> dict[str, Any]:
    run = entry.control
    return {
        "cause": entry.suspect.cause,
        "status": entry.suspect.status,
        "confidence": entry.suspect.confidence,
        "kind": entry.experiment.kind,
        "asked": asked.asked(of_job, job) if of_job is not None and job is not None else None,
        "decides": asked.decides(entry.experiment),
        "why_not": entry.why_not["en"] if entry.why_not else None,
        "why_not_zh": entry.why_not["zh"] if entry.why_not else None,
        "control": _run(run) if run is not None else None,
        "treatments": [words(item)["en"] for item in entry.experiment.vary] if run is not None else [],
        "repeats": REPEATS,
        "seconds_at_most": round(entry.seconds, 1),
        "memory_per_rank": entry.memory,
        "differs": [item["en"] for item in entry.differs],
        "differs_zh": [item["zh"] for item in entry.differs],
        "complete": entry.complete,
    }


def _run(run: CollectiveRun) -> dict[str, Any]:
    return {
        "op": run.message.op,
        "call": f"torch.distributed.{operation(run.message.op).calls}",
        "numel": run.message.numel,
        "dtype": run.message.dtype,
        "more_dtypes": [part.dtype for part in run.more],
        "world_size": run.world,
        "backend": run.backend,
        "device": run.device,
        "ranks_per_host": [sum(slot.place == place for slot in run.slots) for place in run.places],
        "env": dict(run.env),
        "iterations": run.iterations,
        "port": run.port,
    }


#: Paths of the matrix in a document at most: all that fail come first.
PATHS = 400
_TEXT = 400
#: Characters of NCCL's RAS report in a document: the summary and the outliers.
_RAS = 4000


def finding_record(finding: RunFinding) -> dict[str, Any]:
    """Return a finding as the document has it."""
    return {
        "cause": finding.cause or None,
        "kind": finding.kind,
        "says": finding.says["en"][:_TEXT],
        "says_zh": finding.says["zh"][:_TEXT],
        "ranks": list(finding.ranks),
        "hosts": list(finding.hosts),
    }


def bandwidth(result: RunResult) -> dict[str, float] | None:
    """Return the median time (s), algorithm and bus bandwidth (GB/s, nccl-tests' formulas) of a run that passed."""
    if not result.passed or result.median is None:
        return None
    message = result.run.message
    return rate(message.op, message.numel, message.dtype, result.run.world, result.median)


def rate(op: str, numel: int, dtype: str, world: int, seconds: float) -> dict[str, float] | None:
    """Return what a collective of ``world`` ranks achieved in so many seconds; None where no data move."""
    row = operation(op)
    size = row.bytes(numel, world, DTYPES[dtype])
    if not size or seconds <= 0:
        return None
    algorithm = size / seconds / 1e9
    return {
        "bytes": float(size),
        "median_s": _figure(seconds),
        "algbw": _figure(algorithm),
        "busbw": _figure(algorithm * row.bus_factor(world)),
    }


def _figure(value: float) -> float:
    return float(f"{value:.4g}")


def run_record(
    trial: Trial,
    names: Sequence[str],
    facts: Sequence[Mapping[str, Any]],
    changed_zh: str,
    previous: Previous | None = None,
) -> dict[str, Any]:
    """Return one run as the document has it; ``names`` and ``facts`` are those of the hosts, in their order."""
    result, run = trial.result, trial.result.run
    made: dict[str, Any] = {
        "run": run.label,
        "changed": run.changed or None,
        "changed_zh": changed_zh or run.changed or None,
        "op": run.message.op,
        "numel": run.message.numel,
        "dtype": run.message.dtype,
        "backend": run.backend,
        "world_size": run.world,
        "ranks": [slot.number for slot in run.slots],
        "hosts": [names[place] for place in run.places],
        "gpus": _gpus(run, names),
        "env": run.env_of(0),
        "outcome": result.outcome,
        "stage": result.stage,
        "seconds": round(result.seconds, 2),
        "reason": result.reason or None,
        "bandwidth": bandwidth(result),
        "expected": None,
        "parts": [],
        "sweep": _sweep(result),
        "transport": result.transport.to_dict() if result.transport else None,
        "finding": finding_record(trial.finding) if trial.finding else None,
        "errors": _errors(result),
        "symptoms": result.symptoms,
    }
    if result.ras:
        made["ras"] = [{"host": host, "text": text[:_RAS]} for host, text in result.ras.items()]
    if not trial.fails:  # ranks that are waited for say nothing of the link
        parts = _parts(result)
        made["parts"] = parts
        for part in (made, *parts):
            if part["bandwidth"]:
                earlier = (previous or {}).get(key_of(made, part), ())
                part["expected"] = judgement(result, part["op"], part["bandwidth"], facts, earlier)
    return made


def _gpus(run: CollectiveRun, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the GPU of each rank that has one: index as nvidia-smi counts, PCI address and UUID where they are known."""
    return [
        {
            "rank": slot.number,
            "host": names[slot.place],
            "index": slot.gpu.index,
            "bus": slot.gpu.bus,
            "uuid": slot.gpu.uuid or None,
        }
        for slot in run.slots
        if slot.gpu is not None
    ]


def _parts(result: RunResult) -> list[dict[str, Any]]:
    """Return what the further collectives of a run measured, in their order."""
    found = []
    for index, message in enumerate(result.run.more):
        told = [trace.parts[index] for trace in result.ranks.values() if index < len(trace.parts)]
        slowest = max((part["median"] for part in told), default=0.0)
        measured = rate(message.op, message.numel, message.dtype, result.run.world, slowest)
        about = {"op": message.op, "numel": message.numel, "dtype": message.dtype}
        found.append({**about, "bandwidth": measured, "expected": None})
    return found


def _sweep(result: RunResult) -> list[dict[str, Any]]:
    """Return what each size of a sweep measured: bytes as nccl-tests counts them, time, bandwidths, wrong elements."""
    message, found = result.run.message, []
    for told in zip(*(trace.sizes for trace in result.ranks.values()), strict=False):
        slowest = max(size.get("median", 0.0) for size in told)
        measured = rate(message.op, int(told[0].get("numel", 0)), message.dtype, result.run.world, slowest)
        if measured is not None:
            found.append({**measured, "wrong": sum(size["wrong"] for size in told)})
    return found


def _errors(result: RunResult) -> list[dict[str, Any]]:
    found = []
    for rank, trace in sorted(result.ranks.items()):
        if trace.error is not None or (trace.exit_code not in (0, None) and not trace.killed):
            error = trace.error or {}
            found.append(
                {
                    "rank": rank,
                    "slot": trace.slot.number,
                    "stage": trace.stage,
                    "exit_code": trace.exit_code,
                    "type": error.get("type"),
                    "text": str(error.get("text", ""))[:_TEXT],
                    "last_call": trace.calls[-1].get("call") if trace.calls else None,
                    "flight": trace.flight[-1] if trace.flight else None,
                }
            )
    return found[:16]


def outcome_record(
    outcome: ExperimentOutcome, report: Report, before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the verification of one diagnosis; ``before`` and ``after`` hold its status and confidence."""
    names = [place.name for place in report.plan.means.places]
    reason = outcome.why_not or dict(outcome.row.says)
    changed_zh = {words(item)["en"]: words(item)["zh"] for item, _ in outcome.treatments}
    changed_zh |= {text["en"]: text["zh"] for text in (ALONE, TRIVIAL)}
    trials = [*outcome.gates, *outcome.controls, *(trial for _, trials in outcome.treatments for trial in trials)]
    runs = [
        run_record(trial, names, report.hosts, changed_zh.get(trial.result.run.changed, ""), report.previous)
        for trial in trials
    ]
    reason = _joined(reason, _named(outcome), _fits_better(outcome))
    return {
        "outcome": outcome.row.outcome,
        "decided_by": outcome.row.id,
        "reason": reason["en"],
        "reason_zh": reason["zh"],
        "before": dict(before),
        "after": dict(after),
        "kind": outcome.planned.experiment.kind,
        "differs": [item["en"] for item in outcome.planned.differs],
        "differs_zh": [item["zh"] for item in outcome.planned.differs],
        "findings": [finding_record(finding) for finding in outcome.findings],
        "narrowed": outcome.narrowed,
        "treatments": [_treatment(item, trials) for item, trials in outcome.treatments],
        "runs": runs,
        "notices": [notice for run in runs for notice in _notices(run)],
        "reachability": _paths(report),
        "hosts": [_host(name, facts) for name, facts in zip(names, report.hosts, strict=False)],
        "problems": [item["en"] for item in report.problems],
        "problems_zh": [item["zh"] for item in report.problems],
        "seconds": round(report.seconds, 2),
    }


def _treatment(item: Treatment, trials: Sequence[Trial]) -> dict[str, Any]:
    changed = words(item)
    return {
        "changed": changed["en"],
        "changed_zh": changed["zh"],
        "passed": not any(trial.fails for trial in trials),
        "runs": [trial.result.run.label for trial in trials],
    }


def _notices(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what is slower than expected in a run, which is no failure."""
    judged = [part["expected"] for part in (run, *run["parts"]) if part["expected"]]
    return [
        {"kind": "slow", "run": run["run"], **{key: found[key] for key in ("says", "says_zh", "candidates")}}
        for found in judged
        if found["state"] == "below"
    ]


def _joined(reason: Mapping[str, str], *more: Mapping[str, str] | None) -> dict[str, str]:
    """Return a text with further sentences, which come without their ends."""
    told = [text for text in more if text is not None]
    return {
        "en": reason["en"] + "".join(f" {text['en']}." for text in told),
        "zh": reason["zh"] + "".join(f"{text['zh']}。" for text in told),
    }


def _fits_better(outcome: ExperimentOutcome) -> dict[str, str] | None:
    """Return which other cause the findings speak for, and none for the suspected one, as a sentence without its end."""
    found = [finding.cause for finding in outcome.findings if finding.cause]
    if outcome.row.outcome in ("confirmed", "supported") or outcome.planned.suspect.cause in found:
        return None
    causes = ", ".join(dict.fromkeys(found))
    return {"en": f"This fits {causes} better", "zh": f"这更符合 {causes}"} if causes else None


def _named(outcome: ExperimentOutcome) -> dict[str, str] | None:
    """Return who stands out, as a sentence without its end."""
    first = next((f for f in outcome.findings if f.ranks or f.hosts), None)
    if first is not None:
        return first.says
    if outcome.narrowed and outcome.narrowed["kind"] != "group":
        who = ", ".join(str(unit) for unit in outcome.narrowed.get("hosts") or outcome.narrowed.get("ranks") or [])
        return {"en": f"It takes {who}", "zh": f"涉及 {who}"}
    return outcome.findings[0].says if outcome.findings else None


def _paths(report: Report) -> list[dict[str, Any]]:
    ordered = sorted(report.matrix.paths, key=lambda path: path.state == "reachable")
    return [path.to_dict() for path in ordered[:PATHS]]


def _host(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    kept = ("host", "own_addresses", "interfaces", "torch", "nccl", "driver", "kernel", "shm", "limits", "cores")
    return {"name": name, **{key: facts.get(key) for key in kept}}
