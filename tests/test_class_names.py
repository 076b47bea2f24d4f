"""No name of the package means two things."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import nccl_triage

ROOT = Path(nccl_triage.__file__).parent
#: All modules, apart from those that only make a folder a package.
MODULES = [path for path in sorted(ROOT.rglob("*.py")) if path.name != "__init__.py"]
#: What is called a model: the trained classifier, and the command about it.
MODELS = {"classifier/model.py", "cli/model.py"}


def _place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _classes(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield node.name


def test_every_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in ROOT.rglob("*.py"):
        for name in _classes(path):
            places[name].append(_place(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_model_is_a_classifier() -> None:
    assert {_place(path) for path in MODULES if path.name == "model.py"} <= MODELS
