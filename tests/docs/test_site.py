"""The generator builds the site without a warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for module in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(module, reason="the documentation's generator is not installed")
    result = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", str(tmp_path / "site")],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT / "analyzer"), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    index = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "Quick start" in index and "terminal-en.svg" in index
    # The tables of contents that docs/conf.py makes of the links of index pages.
    sidebar = index.partition("sidebar-tree")[2].partition("</aside>")[0]
    assert 'href="hang.html"' in sidebar and 'href="causes/port-in-use.html"' in sidebar


def test_pages_ask_for_nothing_from_elsewhere(tmp_path: Path) -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert "<script" not in text and "<iframe" not in text and "![](http" not in text, path.name
