"""The checks of a host: reads ``rules/doctor`` and judges the facts of a host by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from nccl_triage.doctor import wording
from nccl_triage.doctor.rows import rows
from nccl_triage.engine import expression
from nccl_triage.engine.expression import Evaluator, Expression
from nccl_triage.engine.nodes import Node
from nccl_triage.knowledge import reading
from nccl_triage.knowledge.entries import Text

#: The states of a check besides ok, the worst first.
BAD = ("failed", "warning", "note")
#: The functions that a condition may call.
FUNCTIONS = frozenset({"older", "major", "length", "starts", "contains"})


class HostCheck(NamedTuple):
    """One check: the table whose rows it examines, the fields that must be known, and its texts.

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


class DifferenceRule(NamedTuple):
    """A value that should be the same on all hosts; ``value`` is the name of a comparable fact, ``NAME:*`` a family."""

    value: str
    state: str
    title: Text
    means: Text
    where: str
    causes: tuple[str, ...] = ()


def _check(node: Node) -> HostCheck:
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
    return HostCheck(
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


def _difference(node: Node) -> DifferenceRule:
    part = node.keys(("value", "state", "title", "means"), ("causes",))
    return DifferenceRule(
        value=part["value"].text(),
        state=part["state"].choice(BAD),
        title=reading.bilingual(part["title"]),
        means=reading.bilingual(part["means"]),
        where=node.where,
        causes=reading.texts(part, "causes"),
    )


def read(roots: list[Node]) -> tuple[dict[str, HostCheck], dict[str, DifferenceRule]]:
    """Return the checks and the differences of parsed files; raises RuleError for what is wrong in them."""
    checks: dict[str, HostCheck] = {}
    differences: dict[str, DifferenceRule] = {}
    for root in roots:
        part = root.keys((), ("checks", "differences"))
        for node in part["checks"].items() if "checks" in part else ():
            check = _check(node)
            if check.id in checks:
                raise node.fail("the id {id!r} is listed twice", id=check.id)
            checks[check.id] = check
        for node in part["differences"].items() if "differences" in part else ():
            difference = _difference(node)
            if difference.value in differences:
                raise node.fail("the id {id!r} is listed twice", id=difference.value)
            differences[difference.value] = difference
    return checks, differences


@cache
def shipped() -> tuple[dict[str, HostCheck], dict[str, DifferenceRule]]:
    """Return the checks and differences that the tool ships."""
    return read(reading.roots("doctor"))


#: All states, the worst first.
STATES = (*BAD, "ok")


class CheckResult(NamedTuple):
    """The result of a check for one row; ``subject`` is the GPU, port or variable that it is about, if any.

    ``values`` are the numbers and texts that decided.
    """

    check: HostCheck
    state: str
    subject: str
    says: Text
    do: Text
    values: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as the document has it."""
        return {
            "id": self.check.id,
            "state": self.state,
            "subject": self.subject,
            "says": self.says["en"],
            "says_zh": self.says["zh"],
            "do": self.do["en"],
            "do_zh": self.do["zh"],
            "causes": list(self.check.causes),
            "values": self.values,
        }


def _older(one: Any, two: Any) -> bool:
    return reading.version_key(str(one)) < reading.version_key(str(two))


def _major(version: Any) -> int:
    return reading.version_key(str(version))[0]


def _starts(text: Any, *prefixes: str) -> bool:
    return str(text).startswith(prefixes)


def _contains(text: Any, *parts: str) -> bool:
    return any(part in text for part in parts)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "older": _older,
    "major": _major,
    "length": len,
    "starts": _starts,
    "contains": _contains,
}
_NOTHING: Text = {"en": "", "zh": ""}


def judge(facts: Mapping[str, Any], checks: Mapping[str, HostCheck]) -> list[CheckResult]:
    """Return the results of all checks that could be made, the worst first, otherwise in the order of the rules."""
    tables = rows(facts)
    evaluator = Evaluator(_FUNCTIONS)
    found = [
        result
        for check in checks.values()
        for row in tables[check.table]
        if (result := _result(check, row, evaluator)) is not None
    ]
    return sorted(found, key=lambda result: STATES.index(result.state))


def _result(check: HostCheck, row: dict[str, Any], evaluator: Evaluator) -> CheckResult | None:
    values = {**row, **check.limits, **check.versions}
    if any(values.get(name) is None for name in check.known):
        return None
    if check.applies is not None and not evaluator.truth(check.applies, values):
        return None
    state = next((state for state, condition in check.states if evaluator.truth(condition, values)), "ok")
    text = check.says if state != "ok" else check.fine
    if text is None:
        return None
    wanted = sorted((wording.names(text) | {*check.known, *check.limits, *check.versions}) & values.keys())
    return CheckResult(
        check,
        state,
        str(row.get("subject") or ""),
        wording.fill(text, values),
        wording.fill(check.do, values) if state != "ok" else _NOTHING,
        {name: values[name] for name in wanted},
    )
