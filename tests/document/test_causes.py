"""Rules and models that are not shipped are named where they took part, in every format, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose
from nccl_triage.classifier import model as models
from nccl_triage.render import FORMATS, render
from tests.document import fields

OOM = "step 3 loss 2.1\n[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
SIGNATURE = """program: site
signatures:
  - id: site.power
    kind: node.lost
    role: root
    pattern: 'site power lost on (?P<host>\\S+)'
    meaning: The site lost its power.
    match: ['site power lost on node-a']
    not: ['site power is back']
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "site" / "signatures"
    folder.mkdir(parents=True)
    (folder / "power.yaml").write_text(SIGNATURE)
    return tmp_path / "site"


def document(tmp_path: Path, text: str, **more: Any) -> dict[str, Any]:
    log = tmp_path / "job.log"
    log.write_text(text)
    return diagnose(log, **more).to_dict()


def test_rules_that_took_part_are_named_everywhere(tmp_path: Path, rules: Path) -> None:
    found = document(tmp_path, "site power lost on node-a\n" + OOM, rules_dirs=[rules])
    assert found["foreign_rules"] == [{"path": f"{rules}/signatures/power.yaml", "ids": ["site.power"]}]
    fields.check(json.loads(render(found, "json")))
    for form in FORMATS:
        assert "site.power" in render(found, form).decode().replace("\\", ""), form
    (line,) = [text for text in render(found, "text").decode().splitlines() if text.startswith("  other rules: ")]
    assert line.startswith("  other rules: not shipped with nccl-triage, but used in this verdict: ")
    assert "power.yaml (site.power)" in line
    assert "并非随 nccl-triage 发布" in render(found, "text", lang="zh").decode()


def test_rules_that_had_no_part_are_not_named(tmp_path: Path, rules: Path) -> None:
    assert "foreign_rules" not in document(tmp_path, OOM, rules_dirs=[rules])
    assert "foreign_rules" not in document(tmp_path, OOM)


def test_a_row_of_evidence_of_theirs_for_a_cause_of_ours_is_named(tmp_path: Path, rules: Path) -> None:
    path = rules / "signatures" / "power.yaml"
    path.write_text(
        SIGNATURE
        + "    supports:\n      - {cause: gpu-out-of-memory, id: no-power, weight: decisive, says: It says so.}\n"
    )
    found = document(tmp_path, "site power lost on node-a\n" + OOM, rules_dirs=[rules])
    assert found["foreign_rules"] == [{"path": str(path), "ids": ["no-power", "site.power"]}]


def test_a_folder_that_is_called_like_ours_is_told_apart(
    tmp_path: Path, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules.rename(tmp_path / "rules")
    monkeypatch.chdir(tmp_path)
    found = document(tmp_path, "site power lost on node-a\n" + OOM, rules_dirs=[Path("rules")])
    assert [file["path"] for file in found["foreign_rules"]] == ["./rules/signatures/power.yaml"]


def test_a_model_of_elsewhere_is_named_where_it_voted(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(models.to_json(models.shipped() or pytest.skip("no shipped model")))
    found = document(tmp_path, OOM, model=models.load(path))
    votes = [
        term["id"] for entry in found["diagnoses"] for term in entry["contributions"] if "classifier" in term["id"]
    ]
    named = [file for file in found.get("foreign_rules", []) if file == {"path": str(path), "ids": ["model"]}]
    assert len(named) == bool(votes)
    assert votes
