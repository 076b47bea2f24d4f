"""Named conditions that ask for one another: none may ask for itself, by whatever way."""

from __future__ import annotations

from collections.abc import Mapping

from nccl_triage.engine.expression import Expression
from nccl_triage.engine.schema import Premise
from nccl_triage.errors import RuleError


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
    """Raise RuleError for a premise that asks for itself."""
    for item in premises.values():
        if item.id in asked_for(premises, item.when):
            raise RuleError("the premise {id!r} asks for itself", where=item.when.where, id=item.id)
