"""Settings of the documentation's generator (Sphinx with MyST); ``make docs`` builds the site into build/docs."""

from __future__ import annotations

import sys
from pathlib import Path

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
