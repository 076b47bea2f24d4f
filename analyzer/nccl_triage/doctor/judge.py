"""What the facts of one host mean: each check of ``rules/doctor`` over the rows that it speaks of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nccl_triage.doctor import wording
from nccl_triage.doctor.checks import BAD, Check
from nccl_triage.doctor.rows import rows
from nccl_triage.engine.expression import Evaluator
from nccl_triage.knowledge import reading
from nccl_triage.knowledge.model import Text

#: All states, the worst first.
STATES = (*BAD, "ok")


class Result(NamedTuple):
    """What a check came to for one row: ``subject`` is the GPU, port or variable that it is about, or nothing.

    ``values`` are the numbers and texts that decided.
    """

    check: Check
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


def judge(facts: Mapping[str, Any], checks: Mapping[str, Check]) -> list[Result]:
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


def _result(check: Check, row: dict[str, Any], evaluator: Evaluator) -> Result | None:
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
    return Result(
        check,
        state,
        str(row.get("subject") or ""),
        wording.fill(text, values),
        wording.fill(check.do, values) if state != "ok" else _NOTHING,
        {name: values[name] for name in wanted},
    )
