"""Settings of the documentation's generator (Sphinx with MyST); ``make docs`` builds the site into build/docs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analyzer"))

from nccl_triage._version import __version__

project = "nccl-triage"
author = "the nccl-triage authors"
copyright = author
version = release = __version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# Links into the repository (rules/README.md, reports/examples) are checked by tests/docs, which sees them as files.
suppress_warnings = ["myst.xref_missing"]
nitpicky = False

html_theme = "furo"
html_title = "nccl-triage"
html_static_path = ["_static"]
html_show_sourcelink = False
html_theme_options = {"sidebar_hide_name": False}


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the table of contents of an index page, from its own links, which GitHub shows as they are."""
    here, _, last = name.rpartition("/")
    if last not in ("index", "README"):
        return
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE)[1:]:
        caption, _, body = section.partition("\n")
        links = dict.fromkeys(re.findall(r"\]\(([\w/-]+)\.md\)", body))
        pages = [link for link in links if f"{here}/{link}".lstrip("/") in app.project.docnames]
        if pages:
            listed = "\n".join(pages)
            source[0] += f"\n\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {caption}\n\n{listed}\n```\n"


def setup(app: Sphinx) -> None:
    """Let Sphinx make the tables of contents."""
    app.connect("source-read", add_contents)
