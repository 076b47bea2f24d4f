"""Named conditions that ask for one another: none may ask for itself, and no chain of them may be long."""

from __future__ import annotations

from collections.abc import Mapping

from nccl_triage.engine.expression import Expression
from nccl_triage.engine.schema import Premise
from nccl_triage.errors import RuleError

#: Conditions that one premise may have looked at, those of others included.
MOST_STEPS = 64


def asked_for(premises: Mapping[str, Premise], expression: Expression) -> set[str]:
    """Return the premises that a condition asks for, by way of others too."""
    found: set[str] = set()
    pending = expression.literals("premise")
    while pending:
        name = pending.pop()
        if name not in found and name in premises:
            found.add(name)
            pending += premises[name].when.literals("premise")
    return found


def refuse_circles(premises: Mapping[str, Premise]) -> None:
    """Raise RuleError for a premise that asks for itself, or for far too much by way of others."""
    for item in premises.values():
        if item.id in asked_for(premises, item.when):
            raise RuleError("the premise {id!r} asks for itself", where=item.when.where, id=item.id)
    steps: dict[str, int] = {}
    for item in premises.values():
        if _steps(premises, item, steps) > MOST_STEPS:
            raise RuleError("the premise {id!r} asks for too many others", where=item.when.where, id=item.id)


def _steps(premises: Mapping[str, Premise], item: Premise, known: dict[str, int]) -> int:
    """Return how many conditions are looked at for a premise at most, those of others included."""
    pending = [item]
    while pending:
        one = pending[-1]
        others = [premises[name] for name in one.when.literals("premise") if name in premises]
        open_ = [other for other in others if other.id not in known]
        if open_:
            pending += open_
            continue
        known[one.id] = min(MOST_STEPS + 1, 1 + sum(known[other.id] for other in others))
        pending.pop()
    return known[item.id]
