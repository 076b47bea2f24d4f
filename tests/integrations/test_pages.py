"""The pages of the recipes and the files beside them fit each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import EXAMPLES, ROOT

PAGES = sorted(EXAMPLES.glob("*.md"))


def links(page: Path) -> list[str]:
    return re.findall(r"\]\((?!https?://)([^)#]*)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in links(page) if link and not (page.parent / link).exists()] == []


def test_the_index_knows_every_page() -> None:
    index = EXAMPLES / "README.md"
    assert {path.name for path in PAGES} - {index.name} == {link for link in links(index) if link.endswith(".md")}


def test_every_file_is_reached_from_a_page() -> None:
    linked = {(page.parent / link).resolve() for page in PAGES for link in links(page) if link}
    files = {path.resolve() for path in EXAMPLES.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    missing = [path for path in files if path.suffix != ".md" and not linked & {path, *path.parents}]
    assert [str(path.relative_to(ROOT)) for path in missing] == []
