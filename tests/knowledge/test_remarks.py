"""The remarks of a document: sorted, bounded, and free where a log shows no variable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nccl_triage.knowledge.remarks import MAX_REMARKS, remarks

ROOT = Path(__file__).parents[2]


def test_remarks_are_sorted_by_name_and_speak_both_languages() -> None:
    found = remarks({"NCCL_P2P_DISABLE": "1", "NCCL_IB_HCA": "mlx5", "NCCL_DEBUG": "INFO"}, {})
    assert [row["name"] for row in found] == ["NCCL_IB_HCA", "NCCL_P2P_DISABLE"]
    assert all(row["says"] and row["says_zh"] for row in found)
    assert found[0]["level"] == "warn"


def test_each_value_of_different_hosts_is_judged_once() -> None:
    found = remarks({"NCCL_IB_DISABLE": ["0", "1", "1"]}, {})
    assert [(row["value"], row["kind"]) for row in found] == [("0", "default"), ("1", "debugging")]


def test_warnings_are_kept_when_there_are_too_many() -> None:
    noise = {f"TORCH_LOGS_{n}": "x" for n in range(5)}
    values = {"NCCL_P2P_DISABLE": [f"0x{1:0{n}x}" for n in range(1, 50)], "NCCL_IB_HCA": "mlx5", **noise}
    found = remarks(values, {})
    assert len(found) == MAX_REMARKS
    assert any(row["name"] == "NCCL_IB_HCA" for row in found)


def test_an_endless_environment_costs_no_endless_time() -> None:
    found = remarks({f"NCCL_NOPE_{n}": "1" for n in range(5000)}, {})
    assert len(found) == MAX_REMARKS


def test_rccl_reads_names_that_nccl_does_not() -> None:
    assert remarks({"NCCL_NOPE": "1"}, {"rccl": "2.21.5"}) == []
    assert remarks({"NCCL_NOPE": "1"}, {}) != []


def test_odd_values_of_a_document_are_no_problem() -> None:
    assert remarks({}, {}) == []
    assert remarks({"NCCL_DEBUG": []}, {}) == []
    assert remarks({"NCCL_DEBUG": None}, {})[0]["kind"] == "outside"


def test_nothing_is_read_for_a_log_without_variables() -> None:
    program = (
        "import sys\nfrom nccl_triage.knowledge.remarks import remarks\nremarks({}, {})\n"
        "print([m for m in sys.modules if m in ('nccl_triage.knowledge.variables', 'yaml', 'difflib')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60,
        env={"PYTHONPATH": str(ROOT / "analyzer"), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert result.stdout.strip() == "[]"
