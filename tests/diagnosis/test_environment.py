"""Variables of a log: settings are read, advice of messages is not, and the document says what is unusual."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose
from nccl_triage.engine.schema import RuleSet

TIMEOUT = (
    "[rank{rank}]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=1182, OpType=_ALLGATHER_BASE, NumelIn=116391936, NumelOut=931135488, Timeout(ms)=1800000) "
    "ran for 1800031 milliseconds before timing out.\n"
)


def document(tmp_path: Path, rules: RuleSet, text: str) -> dict[str, Any]:
    path = tmp_path / "trainer.log"
    path.write_text(text)
    return diagnose(path, rules=rules, model=None).to_dict()


@pytest.mark.parametrize(
    ("line", "env"),
    [
        ("RuntimeError: CUDA error: device not ready. For debugging consider passing CUDA_LAUNCH_BLOCKING=1.", {}),
        ("Please set NCCL_DEBUG=INFO and run again", {}),
        ("You can set NCCL_P2P_DISABLE=1 to work around this", {}),
        ("try NCCL_IB_DISABLE=1 if this persists", {}),
        ("++ export NCCL_P2P_DISABLE=1", {"NCCL_P2P_DISABLE": "1"}),
        ("NCCL_P2P_DISABLE=1 torchrun train.py  # please keep", {"NCCL_P2P_DISABLE": "1"}),
        ("h:1:2 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.", {"NCCL_IB_TIMEOUT": "22"}),
    ],
)
def test_advice_of_a_message_is_no_setting(tmp_path: Path, rules: RuleSet, line: str, env: dict[str, str]) -> None:
    assert document(tmp_path, rules, f"{line}\n")["job"]["env"] == env


def test_unusual_settings_are_remarked_upon(tmp_path: Path, rules: RuleSet) -> None:
    text = (
        "h:1:2 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\n"
        "h:1:2 [0] NCCL INFO NCCL_IB_HCA set to mlx5\n"
        "h:1:2 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 20.\n"
        "++ export NCCL_MAX_RINGS=8\n++ export NCCL_DEBUG=INFO\n"
    )
    found = document(tmp_path, rules, text)["job"]["env_remarks"]
    assert [(row["name"], row["level"], row["kind"]) for row in found] == [
        ("NCCL_IB_HCA", "warn", "trap"),
        ("NCCL_IB_TIMEOUT", "note", "default"),
        ("NCCL_MAX_RINGS", "warn", "unknown"),
    ]
    assert all(row["says_zh"] for row in found)


def test_a_log_without_variables_has_no_remarks(tmp_path: Path, rules: RuleSet) -> None:
    assert document(tmp_path, rules, "step 1/2 loss 5\nstep 2/2 loss 4\n")["job"]["env_remarks"] == []


def test_a_time_out_tells_who_set_it_and_whether_the_size_explains_it(tmp_path: Path, rules: RuleSet) -> None:
    text = "".join(TIMEOUT.format(rank=rank) for rank in range(1, 8))
    found = document(tmp_path, rules, text)["collective"]["advice"]
    assert found["bytes"] == 116391936 * 8 * 4
    assert "does not explain" in found["says"]
    assert {"torch", "deepspeed", "transformers"} & {row["program"] for row in found["owner"]}


def test_every_diagnosis_says_what_to_do_when(tmp_path: Path, rules: RuleSet) -> None:
    text = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n" + TIMEOUT.format(rank=5)
    for diagnosis in document(tmp_path, rules, text)["diagnoses"]:
        assert diagnosis["stages"][0]["when"] == "5min"
        assert {row["when"] for row in diagnosis["stages"]} == {"5min", "15min", "lasting"}
