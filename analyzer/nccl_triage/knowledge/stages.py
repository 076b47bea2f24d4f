"""The staged advice of a cause: what to do within five minutes, within a quarter of an hour, and for good."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nccl_triage.engine.schema import Cause, Step
from nccl_triage.knowledge import catalogue

#: Stage of a cause's file -> (word in documents, urgency of a step that names none).
STAGES = {"now": ("5min", "high"), "soon": ("15min", "medium"), "lasting": ("lasting", "low")}


def _row(stage: str, step: Step) -> dict[str, Any] | None:
    shared = catalogue.steps().get(step.use) if step.use is not None else None
    what = step.what or (shared.what if shared is not None else None)
    if what is None:
        return None  # a user's rule names a step that does not exist; ``rules test`` says so
    when, urgency = STAGES[stage]
    return {
        "when": when,
        "urgency": step.urgency or (shared.urgency if shared is not None else None) or urgency,
        "what": what["en"],
        "what_zh": what["zh"],
        "command": step.command or (shared.command if shared is not None else None),
    }


def rows(cause: Cause) -> list[dict[str, Any]]:
    """Return the steps of a cause in the order in which they are taken, as documents hold them."""
    found = [_row(stage, step) for stage in STAGES for step in cause.stages.get(stage, ())]
    return [row for row in found if row is not None]


def unknown_steps(causes: Iterable[Cause]) -> list[tuple[Cause, str]]:
    """Return the names of shared steps that causes speak of and that do not exist."""
    known = catalogue.steps()
    return [
        (cause, step.use)
        for cause in causes
        for steps in cause.stages.values()
        for step in steps
        if step.use is not None and step.use not in known
    ]
