"""The example on the page that explains a verdict is what the program prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nccl_triage import api
from nccl_triage.render import terminal

ROOT = Path(__file__).parents[2]
LOG = "S001-openrlhf-broadcast-two-networks.log"


def test_the_example_is_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "corpus/written/logs")
    document = api.diagnose(LOG).to_dict()
    printed = terminal.render(document, color=False, width=None, lang="en", verbose=0)
    page = (ROOT / "docs/reading-a-verdict.md").read_text(encoding="utf-8")
    example = re.search(r"^```\n\$ [^\n]*\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert example is not None
    assert example[1] == printed
