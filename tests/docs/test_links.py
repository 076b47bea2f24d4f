"""Links between pages and into the repository lead somewhere, also to the right heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "rules" / "README.md",
        ROOT / "corpus" / "README.md",
        ROOT / "corpus" / "wild" / "README.md",
        *(ROOT / "reports").rglob("README.md"),
    ]
)
_FENCE = re.compile(r"^(```+|~~~+).*?^\1", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for line in _FENCE.sub("", path.read_text(encoding="utf-8")).splitlines():
        if line.startswith("#"):
            title = re.sub(r"[`*_]|\\", "", line.lstrip("#").strip()).lower()
            slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
            number = 1
            while (slug if number == 1 else f"{slug}-{number - 1}") in found:
                number += 1
            found.add(slug if number == 1 else f"{slug}-{number - 1}")
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"`[^`]*`", "", _FENCE.sub("", path.read_text(encoding="utf-8")))
    broken = []
    for target in [*_LINK.findall(text), *re.findall(r"\)\]\(([^)\s]+)\)", text)]:
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (path.parent / name).resolve() if name else path
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


def test_every_page_of_the_site_is_reached_from_its_index() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "docs" / "index.md"]
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        seen.add(page)
        if page.stem in ("index", "README"):
            links = re.findall(r"\]\(([\w/-]+\.md)\)", page.read_text(encoding="utf-8"))
            todo += [found for link in links if (found := (page.parent / link).resolve()).is_relative_to(ROOT / "docs")]
    assert set((ROOT / "docs").rglob("*.md")) == seen


def test_there_are_few_pages() -> None:
    assert len(list((ROOT / "docs").glob("*.md"))) <= 27


def test_pages_that_are_made_say_so_in_a_comment() -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert "do not edit" not in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL), path
