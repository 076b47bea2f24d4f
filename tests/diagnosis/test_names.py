"""Every signature that the code speaks of exists: a renamed signature must not silently blind a fact."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import nccl_triage
from nccl_triage.checks.names import kinds_of
from nccl_triage.diagnosis.case import fact_names
from nccl_triage.engine.match import expand
from nccl_triage.engine.schema import RuleSet
from nccl_triage.producers import produced_signatures

PACKAGE = Path(nccl_triage.__file__).parent
MODULES = sorted(path for part in ("diagnosis", "document") for path in (PACKAGE / part).rglob("*.py"))


def _strings(path: Path) -> list[tuple[int, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.name)
def test_signature_names_exist(path: Path, rules: RuleSet) -> None:
    ids = kinds_of(rules, produced_signatures())
    programs = {name.split(".")[0] for name in ids}
    facts = fact_names()
    unknown = [
        f"{path.name}:{line}: {text}"
        for line, text in _strings(path)
        if "." in text and " " not in text and text.split(".")[0] in programs and text.count(".") == 1
        and not text.endswith((".py", ".")) and not text.startswith(("ray/", "torch/")) and not expand(text, ids)
        and text not in facts
    ]  # fmt: skip
    assert unknown == []
