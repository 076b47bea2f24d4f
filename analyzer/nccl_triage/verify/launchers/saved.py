"""The plan of a folder, as ``files`` has written it, read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import Treatment
from nccl_triage.errors import UsageError
from nccl_triage.verify.launchers import static
from nccl_triage.verify.model import Place, Run
from nccl_triage.verify.plan import Means, Wishes


@dataclass(slots=True)
class Saved:
    """plan.json and the runs' files as they were written."""

    plan_id: str
    means: Means
    wishes: Wishes
    runs: dict[str, Run]
    designs: dict[str, tuple[list[str], list[tuple[Treatment, list[str]]]]]


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
            "{folder} holds no plan of this version",
            cause="{name}: {error}",
            remedy="name the folder that was the --workdir of --launcher slurm or print",
            folder=folder,
            name=type(error).__name__,
            error=error,
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
