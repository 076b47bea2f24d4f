"""The table "Where do I change X" of docs/architecture.md leads somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
#: Paths in running text: below the repository or below the package.
_PATH = re.compile(r"`((?:[\w.-]+/)+(?:[\w-]+\.(?:py|yaml|md|json))?)`")
_CODE = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """A row of the table: where a change begins, what else belongs to it, and the tests that hold it."""

    what: str
    begin: str
    name: str | None
    further: tuple[str, ...]
    tests: tuple[str, ...]


def rows() -> list[Row]:
    section = PAGE.read_text(encoding="utf-8").partition("## Where do I change X")[2].partition("\n## ")[0]
    found: list[Row] = []
    for line in [line for line in section.splitlines() if line.startswith("|")][2:]:
        what, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        begin, name, further, tests = (tuple(_CODE.findall(cell)) for cell in cells)
        assert len(begin) == 1 and len(name) <= 1, line
        assert all(_CODE.sub("", cell).strip() == "" for cell in cells), f"only code stands in a cell: {line}"
        found.append(Row(what, begin[0], name[0] if name else None, further, tests))
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
    found = rows()
    assert len(found) > 45
    assert len({row.what for row in found}) == len(found)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.what)
def test_a_row_leads_somewhere(row: Row) -> None:
    place = ROOT / row.begin
    if row.name is None:
        assert place.is_dir(), f"there is no folder {row.begin}"
        assert any(file.is_file() for file in place.rglob("*")), f"nothing lies in {row.begin}"
    else:
        assert place.is_file(), f"there is no file {row.begin}"
        assert row.name in names(place), f"{row.begin} holds no {row.name}"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.what)
def test_the_other_files_of_a_change_exist(row: Row) -> None:
    assert row.tests, "no test holds it"
    for path in (*row.further, *row.tests):
        place = ROOT / path
        assert place.is_dir() if path.endswith("/") else place.is_file(), f"there is no {path}"
    assert len({row.begin, *row.further, *row.tests}) == 1 + len(row.further) + len(row.tests), "a path stands twice"
    assert all(path.startswith(("tests/", "corpus/")) for path in row.tests)


def test_every_folder_of_rules_and_every_schema_has_a_row() -> None:
    named = {path.rstrip("/") for row in rows() for path in (row.begin, *row.further)}
    folders = {f"rules/{path.name}" for path in (ROOT / "rules").iterdir() if any(path.glob("**/*.yaml"))}
    assert {folder for folder in folders if not any(path.startswith(folder) for path in named)} == set()
    assert {f"rules/schema/{path.name}" for path in (ROOT / "rules" / "schema").iterdir()} <= named


@pytest.mark.parametrize("page", [CONTRIBUTING, PAGE], ids=lambda page: page.name)
def test_paths_in_running_text_exist(page: Path) -> None:
    mentioned = set(_PATH.findall(page.read_text(encoding="utf-8")))
    assert mentioned
    bases = (ROOT, ROOT / "analyzer" / "nccl_triage", ROOT / "rules")
    assert [path for path in sorted(mentioned) if not any((base / path).exists() for base in bases)] == []
