"""The decision table: from the facts of an experiment to its verdict (rules/verification/decisions.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from nccl_triage import resources
from nccl_triage.errors import RuleError

State = Literal["passes", "fails", "mixed", "none"]
Verdict = Literal["confirmed", "refuted", "supported", "inconclusive", "not-testable", "not-run"]
#: What a verdict adds to the cause's score, in the words of evidence.
WEIGHT_WORDS = ("none", "weak-against", "moderate", "decisive", "decisive-against")


@dataclass(frozen=True, slots=True)
class Facts:
    """What an experiment came to; the meanings stand at the head of the table."""

    kind: str
    ran: bool = True
    control: State = "none"
    diagnosed: bool = False
    treatment: State = "none"
    found: bool = False
    fact: Literal["shows", "clean", "none"] = "none"
    complete: bool = False
    passing: str = "refutes"
    brief: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table."""

    id: str
    when: Mapping[str, Any]
    outcome: Verdict
    weight: str
    says: Mapping[str, str]
    example: Mapping[str, Any]

    def holds(self, facts: Facts) -> bool:
        """Tell whether every condition of the row holds."""
        for name, wanted in self.when.items():
            value = getattr(facts, name)
            if value not in wanted if isinstance(wanted, list) else value != wanted:
                return False
        return True


@cache
def table() -> tuple[Row, ...]:
    """Read the table; raises RuleError when it is not one."""
    import yaml

    path = resources.rules_dir() / "verification" / "decisions.yaml"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        rows = tuple(Row(**entry) for entry in yaml.load(path.read_text(encoding="utf-8"), Loader=loader))
    except (yaml.YAMLError, TypeError) as error:
        raise RuleError("the decision table cannot be read", where=str(path), cause="{why}", why=error) from None
    for row in rows:
        if row.weight not in WEIGHT_WORDS:
            raise RuleError(
                "row {id!r} has an unknown weight {weight!r}", where=str(path), id=row.id, weight=row.weight
            )
    return rows


def decide(facts: Facts) -> Row:
    """Return the first row that holds; the last row of the table always does."""
    return next(row for row in table() if row.holds(facts))
