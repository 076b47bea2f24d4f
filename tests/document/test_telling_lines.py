"""The lines that tell most, in the document and where they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nccl_triage.api import diagnose
from nccl_triage.render import render
from nccl_triage.render.hard_errors import CERTAIN, hard_errors

STEPS = "".join(f"[rank{rank}]: step {n}/50 loss 2.{n}\n" for n in range(1, 4) for rank in (0, 1))
UNSEEN = "frobnicator: ERROR: the flux capacitor on gpu-node-17 failed"
UNKNOWN = STEPS + f"[rank1]: {UNSEEN}\nworker-1 exited with code 1\n"


def document(folder: Path, text: str) -> dict[str, Any]:
    path = folder / "trainer.log"
    path.write_text(text)
    return diagnose(path).to_dict()


@pytest.fixture
def unknown(tmp_path: Path) -> dict[str, Any]:
    return document(tmp_path, UNKNOWN)


def test_a_line_that_no_rule_knows_is_told_with_its_rank(unknown: dict[str, Any]) -> None:
    line = next(line for line in unknown["telling_lines"] if "flux capacitor" in line["text"])
    assert (line["line"], line["rank"], line["host"]) == (7, 1, None)
    assert line["path"].endswith("trainer.log") and 0 <= line["score"] <= 1
    assert len(unknown["telling_lines"]) <= 5


def test_where_nothing_failed_none_is_told(tmp_path: Path) -> None:
    found = document(tmp_path, f"{UNSEEN}\n" + STEPS * 9)
    assert (found["verdict"], found["telling_lines"]) == ("healthy", [])


@pytest.mark.parametrize("format", ["text", "html", "prompt"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_they_are_shown_unless_the_verdict_is_nearly_certain(unknown: dict[str, Any], format: str, lang: Any) -> None:
    assert "flux capacitor" in render(unknown, format, lang=lang).decode()


def test_they_are_excerpted_with_the_lines_around(unknown: dict[str, Any]) -> None:
    assert any(7 in excerpt["marks"] for excerpt in unknown["excerpts"])


def test_what_leaves_the_house_names_no_host(unknown: dict[str, Any]) -> None:
    for line in unknown["telling_lines"]:
        line["host"] = "gpu-node-17"
    assert "gpu-node-17" not in render(unknown, "prompt").decode()


def test_a_nearly_certain_verdict_needs_no_further_lines(unknown: dict[str, Any]) -> None:
    sure = {"verdict": "diagnosed", "diagnoses": [{"confidence": CERTAIN}], "telling_lines": unknown["telling_lines"]}
    assert hard_errors(sure) == []
    doubtful = {**sure, "diagnoses": [{"confidence": CERTAIN - 0.01}]}
    assert hard_errors(doubtful) == unknown["telling_lines"][:3]
    assert hard_errors({"verdict": "unknown"}) == []
