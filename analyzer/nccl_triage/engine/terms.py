"""Terms of conditions: named conditions and named lists of words.

Named conditions (premises) may refer to one another. None may refer to itself, and no chain of them may be long.
"""

from __future__ import annotations

from collections.abc import Mapping

from nccl_triage.engine.expression import Expression
from nccl_triage.engine.fields import condition, identifier
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.schema import Premise, Words
from nccl_triage.errors import RuleError

#: Limit of the conditions that are evaluated for one premise, including those of others.
MOST_STEPS = 64


def read_premise(node: Node) -> Premise:
    """Return the named condition that a node describes."""
    part = node.keys(("id", "meaning", "when"))
    return Premise(identifier(part["id"]), part["meaning"].text(), condition(part["when"]), node.where)


def read_words(node: Node) -> Words:
    """Return the list of words that a node describes."""
    part = node.keys(("id", "meaning", "texts"))
    return Words(identifier(part["id"]), part["meaning"].text(), tuple(part["texts"].texts()), node.where)


def referenced_premises(premises: Mapping[str, Premise], expression: Expression) -> set[str]:
    """Return the premises that a condition refers to, directly or through others."""
    found: set[str] = set()
    pending = expression.literals("premise")
    while pending:
        name = pending.pop()
        if name not in found and name in premises:
            found.add(name)
            pending += premises[name].when.literals("premise")
    return found


def refuse_cycles(premises: Mapping[str, Premise]) -> None:
    """Raise RuleError for a premise that refers to itself, or to too many others."""
    for item in premises.values():
        if item.id in referenced_premises(premises, item.when):
            raise RuleError("the premise {id!r} refers to itself", where=item.when.where, id=item.id)
    steps: dict[str, int] = {}
    for item in premises.values():
        if _steps(premises, item, steps) > MOST_STEPS:
            raise RuleError("the premise {id!r} refers to too many others", where=item.when.where, id=item.id)


def _steps(premises: Mapping[str, Premise], item: Premise, known: dict[str, int]) -> int:
    """Return how many conditions are evaluated for a premise at most, including those of others."""
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
