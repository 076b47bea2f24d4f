"""A plan as plain data: what ``--dry-run`` shows before anything is touched."""

from __future__ import annotations

from typing import Any

from nccl_triage.verify.model import Run
from nccl_triage.verify.plan import REPEATS, Plan, Planned
from nccl_triage.verify.treatments import words
from nccl_triage.verify.worker.ops import operation


def plan_record(plan: Plan) -> dict[str, Any]:
    """Return the plan as ``--dry-run --format json`` prints it."""
    return {
        "hosts": [place.name for place in plan.means.places],
        "gpus_per_host": plan.means.gpus,
        "gpu": plan.means.gpu_name,
        "torch": plan.means.torch,
        "probe": plan.probes,
        "seconds_at_most": round(plan.seconds, 1),
        "budget_s": plan.wishes.budget,
        "experiments": [_planned(entry) for entry in plan.experiments],
    }


def _planned(entry: Planned) -> dict[str, Any]:
    run = entry.control
    return {
        "cause": entry.suspect.cause,
        "kind": entry.experiment.kind,
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


def _run(run: Run) -> dict[str, Any]:
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
