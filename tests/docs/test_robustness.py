"""The table of what was survived names a test in each row, the tests exist, and none of the hostile ones is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


@cache
def functions_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_each_row_names_a_test_that_exists() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and line.count("|") == 5]
    rows = [row for row in rows if not row.startswith(("| what |", "| --- |", "| trial |")) and "`" in row]
    assert len(rows) > 35
    for row in rows:
        named = _TEST.findall(row)
        assert named, row
        assert [test for path, test in named if test not in functions_in(path)] == []


def test_each_hostile_test_has_a_row() -> None:
    named = set(_TEST.findall(PAGE))
    for folder in ("hostile", "fuzz"):
        for path in sorted((ROOT / "tests" / folder).glob("test_*.py")):
            name = path.relative_to(ROOT).as_posix()
            assert {(name, test) for test in functions_in(name)} - named == set()
