"""The checks of a host and of the differences between hosts: reading ``rules/doctor``."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from nccl_triage.engine import expression
from nccl_triage.engine.expression import Expression
from nccl_triage.engine.nodes import Node
from nccl_triage.knowledge import reading
from nccl_triage.knowledge.model import Text

#: What a check may come to besides ok, the worst first.
BAD = ("failed", "warning", "note")
#: What a condition may call (``doctor.judge`` gives them their meaning).
FUNCTIONS = frozenset({"older", "major", "length", "starts", "contains"})


class Check(NamedTuple):
    """One check: the table whose rows it looks at, the fields that must be known, and what it says.

    ``limits`` are numbers, ``versions`` texts; both stand beside the fields of a row in conditions and texts. ``states``
    are (state, condition), of which the first that holds counts.
    """

    id: str
    table: str
    known: tuple[str, ...]
    states: tuple[tuple[str, Expression], ...]
    says: Text
    do: Text
    where: str
    fine: Text | None = None
    applies: Expression | None = None
    limits: dict[str, float] = {}
    versions: dict[str, str] = {}
    causes: tuple[str, ...] = ()


class Difference(NamedTuple):
    """A value that should be the same on all hosts; ``value`` is the name of a comparable fact, ``NAME:*`` a family."""

    value: str
    state: str
    title: Text
    means: Text
    where: str
    causes: tuple[str, ...] = ()


def _check(node: Node) -> Check:
    part = node.keys(
        ("id", "of", "says", "do"),
        (*BAD, "known", "applies", "fine", "limits", "versions", "causes"),
    )
    states = tuple((state, _condition(part[state])) for state in BAD if state in part)
    if not states:
        raise node.fail("a check needs 'failed', 'warning' or 'note'")
    from nccl_triage.doctor.rows import TABLES

    limits = {}
    for name, value in part["limits"].mapping().items() if "limits" in part else ():
        limits[name] = reading.number({name: value}, name) or 0.0
    return Check(
        id=part["id"].text(),
        table=part["of"].choice(TABLES),
        known=reading.texts(part, "known"),
        states=states,
        says=reading.bilingual(part["says"]),
        do=reading.bilingual(part["do"]),
        where=node.where,
        fine=reading.maybe_bilingual(part, "fine"),
        applies=_condition(part["applies"]) if "applies" in part else None,
        limits=limits,
        versions=reading.mapping(part, "versions"),
        causes=reading.texts(part, "causes"),
    )


def _condition(node: Node) -> Expression:
    return expression.parse(node.text(), node.where, set(FUNCTIONS))


def _difference(node: Node) -> Difference:
    part = node.keys(("value", "state", "title", "means"), ("causes",))
    return Difference(
        value=part["value"].text(),
        state=part["state"].choice(BAD),
        title=reading.bilingual(part["title"]),
        means=reading.bilingual(part["means"]),
        where=node.where,
        causes=reading.texts(part, "causes"),
    )


def read(roots: list[Node]) -> tuple[dict[str, Check], dict[str, Difference]]:
    """Return the checks and the differences of parsed files; raises RuleError for what is wrong in them."""
    checks: dict[str, Check] = {}
    differences: dict[str, Difference] = {}
    for root in roots:
        part = root.keys((), ("checks", "differences"))
        for node in part["checks"].items() if "checks" in part else ():
            check = _check(node)
            if check.id in checks:
                raise node.fail("the id {id!r} stands twice", id=check.id)
            checks[check.id] = check
        for node in part["differences"].items() if "differences" in part else ():
            difference = _difference(node)
            if difference.value in differences:
                raise node.fail("the id {id!r} stands twice", id=difference.value)
            differences[difference.value] = difference
    return checks, differences


@cache
def shipped() -> tuple[dict[str, Check], dict[str, Difference]]:
    """Return the checks and differences that the tool ships."""
    return read(reading.roots("doctor"))
