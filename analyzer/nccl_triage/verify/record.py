"""The verifier's results as plain data: ``verification`` of a diagnosis in the report document."""

from __future__ import annotations

from typing import Any

from nccl_triage.verify.conduct import Outcome, Report, Trial
from nccl_triage.verify.model import Finding, RunResult
from nccl_triage.verify.plan import words
from nccl_triage.verify.worker.ops import DTYPES, operation

#: Paths of the matrix in a document at most: all that fail come first.
PATHS = 400
_TEXT = 400


def finding_record(finding: Finding) -> dict[str, Any]:
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
    run = result.run
    row = operation(run.message.op)
    size = row.bytes(run.message.numel, run.world, DTYPES[run.message.dtype])
    medians = [trace.details["done"].get("median") for trace in result.ranks.values() if trace.done]
    slowest = max((value for value in medians if value), default=None)
    if not result.passed or slowest is None or not size:
        return None
    rate = size / slowest / 1e9
    return {
        "bytes": float(size),
        "median_s": round(slowest, 7),
        "algbw": round(rate, 4),
        "busbw": round(rate * row.bus_factor(run.world), 4),
    }


def run_record(trial: Trial, names: list[str]) -> dict[str, Any]:
    """Return one run as the document has it."""
    result, run = trial.result, trial.result.run
    return {
        "run": run.label,
        "changed": run.changed or None,
        "op": run.message.op,
        "numel": run.message.numel,
        "dtype": run.message.dtype,
        "backend": run.backend,
        "world_size": run.world,
        "ranks": [slot.number for slot in run.slots],
        "hosts": [names[place] for place in run.places],
        "env": {**run.env, **run.per_rank_env.get(0, {})},
        "outcome": result.outcome,
        "stage": result.stage,
        "seconds": round(result.seconds, 2),
        "reason": result.reason or None,
        "bandwidth": bandwidth(result),
        "finding": finding_record(trial.finding) if trial.finding else None,
        "errors": _errors(result),
        "symptoms": result.symptoms,
    }


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
                }
            )
    return found[:16]


def outcome_record(
    outcome: Outcome, report: Report, before: tuple[str, float], after: tuple[str, float]
) -> dict[str, Any]:
    """Return the verification of one diagnosis."""
    names = [place.name for place in report.plan.means.places]
    reason = outcome.why_not or dict(outcome.row.says)
    runs = [*outcome.controls, *(trial for _, trials in outcome.treatments for trial in trials)]
    named = _named(outcome)
    return {
        "outcome": outcome.row.outcome,
        "decided_by": outcome.row.id,
        "reason": reason["en"] + (f" {named['en']}." if named else ""),
        "reason_zh": reason["zh"] + (f"{named['zh']}。" if named else ""),
        "before": {"status": before[0], "confidence": before[1]},
        "after": {"status": after[0], "confidence": after[1]},
        "kind": outcome.planned.experiment.kind,
        "differs": [item["en"] for item in outcome.planned.differs],
        "differs_zh": [item["zh"] for item in outcome.planned.differs],
        "findings": [finding_record(finding) for finding in outcome.findings],
        "narrowed": outcome.narrowed,
        "treatments": [
            {"changed": words(item)["en"], "changed_zh": words(item)["zh"], "passed": not any(t.fails for t in trials)}
            for item, trials in outcome.treatments
        ],
        "runs": [run_record(trial, names) for trial in runs],
        "reachability": _paths(report),
        "hosts": [_host(name, facts) for name, facts in zip(names, report.hosts, strict=False)],
        "problems": [item["en"] for item in report.problems],
        "seconds": round(report.seconds, 2),
    }


def _named(outcome: Outcome) -> dict[str, str] | None:
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
