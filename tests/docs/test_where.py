"""The table "Where do I change X" of docs/architecture.md leads somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
_ROW = re.compile(r"^\| (?P<what>[^|]+?) \| `(?P<path>[^`]+)` \|(?: `(?P<name>[^`]+)`)? \|$", re.MULTILINE)
#: Paths in running text: below the repository or below the package.
_PATH = re.compile(r"`((?:[\w.-]+/)+(?:[\w-]+\.(?:py|yaml|md|json))?)`")


def rows() -> list[tuple[str, str, str | None]]:
    section = PAGE.read_text(encoding="utf-8").partition("## Where do I change X")[2].partition("\n## ")[0]
    found = [(match["what"], match["path"], match["name"]) for match in _ROW.finditer(section)]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert len(found) == len(lines) - 2, "a row is written in another way"
    return found


def names(path: Path) -> set[str]:
    """Return the names that a file holds at its top level."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yaml":
        return set(yaml.safe_load(text))
    found: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def test_there_are_rows() -> None:
    assert len(rows()) > 20


@pytest.mark.parametrize(("what", "path", "name"), rows(), ids=[what for what, _, _ in rows()])
def test_a_row_leads_somewhere(what: str, path: str, name: str | None) -> None:
    place = ROOT / path
    if name is None:
        assert place.is_dir(), f"{what}: there is no folder {path}"
        assert any(file.is_file() for file in place.rglob("*")), f"{what}: nothing lies in {path}"
    else:
        assert place.is_file(), f"{what}: there is no file {path}"
        assert name in names(place), f"{what}: {path} holds no {name}"


@pytest.mark.parametrize("page", [CONTRIBUTING, PAGE], ids=lambda page: page.name)
def test_paths_in_running_text_exist(page: Path) -> None:
    mentioned = set(_PATH.findall(page.read_text(encoding="utf-8")))
    assert mentioned
    bases = (ROOT, ROOT / "analyzer" / "nccl_triage", ROOT / "rules")
    assert [path for path in sorted(mentioned) if not any((base / path).exists() for base in bases)] == []
