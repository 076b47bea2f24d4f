"""Caches without a bound hold only what we ship, never what a log holds: memory would grow with every log."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "analyzer" / "nccl_triage"
#: Functions that remember every answer although they are asked with arguments, and what these come from.
OF_OURS = {
    "cli/__init__.py:_module_command": "modules of commands",
    "messages/__init__.py:table": "languages",
    "engine/match.py:_glob": "globs of rules",
    "story/devices.py:_matches": "ids of signatures",
}


def remembering() -> Iterator[tuple[str, bool]]:
    """Yield each function that remembers without bound, and whether it takes arguments."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    if ast.unparse(decorator) in ("cache", "functools.cache", "lru_cache(maxsize=None)"):
                        yield f"{path.relative_to(PACKAGE)}:{node.name}", bool(node.args.args)


def test_nothing_of_a_log_is_remembered_for_good() -> None:
    asked = {name for name, has_arguments in remembering() if has_arguments}
    assert asked <= set(OF_OURS), sorted(asked - set(OF_OURS))


def test_the_list_names_functions_that_are_there() -> None:
    assert set(OF_OURS) <= {name for name, _ in remembering()}
