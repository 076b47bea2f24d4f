"""The gates: what differs between two documents is told in words, and the frozen cases are whole groups."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from corpus.gate import golden, scores
from nccl_triage.evaluation import cases

ROOT = Path(__file__).resolve().parents[2]


def _document(**changed: Any) -> dict[str, Any]:
    first = {"cause": "straggler", "confidence": 0.7, "culprits": [{"rank": 3, "host": "n1"}], "evidence": []}
    return {"verdict": "diagnosed", "diagnoses": [{**first, **changed}], "notes": []}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"cause": "port-in-use"}, {"cause": "straggler -> port-in-use"}),
        ({"confidence": 0.6}, {"confidence": "0.7 -> 0.6"}),
        ({"culprits": []}, {"culprit": "rank 3 on n1 -> nobody"}),
        ({"evidence": [1]}, {"text": "diagnoses[0].evidence"}),
    ],
)
def test_what_differs_is_told(changed: dict[str, Any], told: dict[str, str]) -> None:
    assert golden.differences(_document(), _document(**changed)) == told


def test_a_healthy_verdict_has_no_cause() -> None:
    healthy = {"verdict": "healthy", "diagnoses": [], "notes": []}
    told = golden.differences(_document(), healthy)
    assert told["verdict"] == "diagnosed -> healthy"
    assert told["cause"] == "straggler -> none"


def test_a_document_is_named_by_its_bytes(tmp_path: Path) -> None:
    line = orjson.dumps(["set/one", _document()])
    (tmp_path / "documents").write_bytes(line + b"\n")
    assert golden.read(tmp_path / "documents") == {"set/one": (hashlib.sha256(line).hexdigest(), _document())}


def test_documents_are_written_by_the_package_that_is_imported(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_bytes(orjson.dumps({"id": "a", "log": "a.log", "cause": "unknown"}) + b"\n")
    (tmp_path / "a.log").write_text("[rank1]: RuntimeError: boom\n", encoding="utf-8")
    output = tmp_path / "documents"
    script = ROOT / "corpus" / "gate" / "produce.py"
    subprocess.run([sys.executable, str(script), str(output), "1", str(tmp_path)], check=True, cwd=ROOT)
    ((key, (_, document)),) = golden.read(output).items()
    assert key == f"{tmp_path.parent.name}/{tmp_path.name}/a"
    assert document["schema_version"] == 1
    assert "timing" not in document


@pytest.mark.parametrize("source", scores.SOURCES)
def test_the_frozen_third_is_whole_groups(source: str) -> None:
    """A case added to a frozen group would be one that its rule was fitted to: the list stays as it was drawn."""
    found = cases.read(ROOT / "corpus" / source)
    listed = scores.frozen()[source]
    assert listed <= {case.id for case in found}
    assert all(scores.is_drawn(case.group) for case in found if case.id in listed)
    assert 0.2 < len(listed) / len(found) < 0.45
