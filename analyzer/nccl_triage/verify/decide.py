"""The decision tables of ``rules/verification``: from the facts of an experiment to its verdict, from a finding to its cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from nccl_triage import resources
from nccl_triage.engine import nodes
from nccl_triage.errors import RuleError
from nccl_triage.verify.same_world import GpuMatch, HostMatch, VariableMatch

State = Literal["passes", "fails", "mixed", "none"]
Fact = Literal["shows", "other", "clean", "none"]
Verdict = Literal["confirmed", "refuted", "supported", "not-reproduced", "inconclusive", "not-testable", "not-run"]
#: The weights that a verdict can add to the cause's score.
WEIGHT_WORDS = ("none", "weak-against", "moderate", "decisive", "decisive-against")


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of an experiment; the head of the table explains them."""

    kind: str
    ran: bool = True
    control: State = "none"
    diagnosed: bool = False
    treatment: State = "none"
    found: bool = False
    fact: Fact = "none"
    complete: bool = False
    passing: str = "refutes"
    brief: bool = False
    proven: bool = False
    hosts: HostMatch = "own"
    gpu: GpuMatch = "any"
    variables: VariableMatch = "same"


@dataclass(frozen=True, slots=True)
class DecisionRow:
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
def table() -> tuple[DecisionRow, ...]:
    """Read the table; raises RuleError when it is not one."""
    import yaml

    path = resources.rules_dir() / "verification" / "decisions.yaml"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        rows = tuple(DecisionRow(**entry) for entry in yaml.load(path.read_text(encoding="utf-8"), Loader=loader))
    except (yaml.YAMLError, TypeError) as error:
        raise RuleError("the decision table cannot be read", where=str(path), cause="{why}", why=error) from None
    for row in rows:
        if row.weight not in WEIGHT_WORDS:
            raise RuleError(
                "row {id!r} has an unknown weight {weight!r}", where=str(path), id=row.id, weight=row.weight
            )
    return rows


def decide(facts: Facts) -> DecisionRow:
    """Return the first row that holds; the last row of the table always does."""
    return next(row for row in table() if row.holds(facts))


#: The situation where none of the named ones holds.
OTHERWISE = "otherwise"
#: The table's name in errors.
CAUSES_FILE = "rules/verification/findings.yaml"


@cache
def cause_table() -> dict[str, dict[str, str]]:
    """Return kind -> situation -> cause ("" for none); raises RuleError with the place of what is wrong."""
    path = resources.rules_dir() / "verification" / "findings.yaml"
    return read_causes(path.read_text(encoding="utf-8"), CAUSES_FILE)


def read_causes(text: str, label: str) -> dict[str, dict[str, str]]:
    """Return the table that a file holds; ``label`` is its name in errors."""
    found: dict[str, dict[str, str]] = {}
    for kind, node in nodes.parse(text, label).mapping().items():
        if isinstance(node.value, dict):
            situations = {name: part.text() for name, part in node.mapping().items()}
            if OTHERWISE not in situations:
                raise node.fail("the key {name!r} is missing", name=OTHERWISE)
        else:
            situations = {OTHERWISE: node.text()}
        found[kind] = situations
    return found


def cause_of(kind: str, situation: str = OTHERWISE) -> str:
    """Return the cause that a kind of finding speaks for in a situation; "" where it blames nobody."""
    situations = cause_table().get(kind)
    if situations is None:
        raise RuleError("no cause is known for findings of the kind {kind!r}", where=CAUSES_FILE, kind=kind)
    return situations.get(situation, situations[OTHERWISE])
