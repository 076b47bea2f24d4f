"""Kinds of findings and their causes: every kind that the code makes is in the table, and the reverse."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import nccl_triage
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import RuleError
from nccl_triage.verify import findings
from nccl_triage.verify.reachability import BROKEN, DEGRADED

VERIFY = Path(nccl_triage.__file__).parent / "verify"
MAKERS = ("assess.py", "arrivals.py", "paths.py")
KIND = re.compile(r"[a-z]+(?:-[a-z]+)*")


def _made() -> set[str]:
    """Return the kinds that the checks of the verifier make."""
    texts = {
        node.value
        for name in MAKERS
        for node in ast.walk(ast.parse((VERIFY / name).read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and KIND.fullmatch(node.value)
    }
    return texts & set(findings.table()) | {f"path-{state}" for state in BROKEN | DEGRADED}


def test_every_kind_is_made_by_a_check_and_every_path_state_has_a_cause() -> None:
    assert _made() == set(findings.table())


def test_the_causes_exist(rules: RuleSet) -> None:
    causes = {cause for situations in findings.table().values() for cause in situations.values()} - {""}
    assert causes <= set(rules.causes)


@pytest.mark.parametrize(
    ("kind", "situation", "cause"),
    [
        ("late", findings.OTHERWISE, "straggler"),
        ("terminated", findings.OTHERWISE, "job-preempted"),
        ("terminated", "by-hangup", "terminal-hangup"),
        ("collective-failed", findings.OTHERWISE, ""),
        ("collective-failed", "between-hosts", "network-link-fault"),
        ("path-silent", "one-network", "network-firewall-port"),
        ("path-no-route", "one-network", "network-unreachable-subnet"),
        ("path-no-route", "filtered", "network-firewall-port"),
    ],
)
def test_the_situation_decides(kind: str, situation: str, cause: str) -> None:
    assert findings.cause_of(kind, situation) == cause


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(RuleError, match="no-such-kind"):
        findings.cause_of("no-such-kind")


def test_a_table_without_a_rest_says_where() -> None:
    with pytest.raises(RuleError) as caught:
        findings.read("late: straggler\nleft:\n  by-hangup: straggler\n", "rules/x.yaml")
    assert "'otherwise' is missing" in str(caught.value)
    assert caught.value.where == "rules/x.yaml:3"
