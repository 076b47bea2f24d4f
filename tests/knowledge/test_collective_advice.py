"""What a document says of a collective's time-out."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.knowledge.collective_advice import advice

GATHER = {
    "op": "_ALLGATHER_BASE", "numel_in": 116391936, "numel_out": 931135488, "dtype": None, "world_size": 8,
    "timeout_ms": 43200000,
}  # fmt: skip


def say(**changes: Any) -> dict[str, Any]:
    found = advice({**GATHER, **changes}, {}, [])
    assert found is not None
    return found


def test_a_large_gather_does_not_explain_twelve_hours() -> None:
    found = say()
    assert found["bytes"] == 116391936 * 8 * 4
    assert found["seconds_expected"] == pytest.approx(32.59, abs=0.01)
    assert found["dtype_assumed"] == "fp32"
    assert "does not explain" in found["says"]
    assert "fp32 assumed" in found["says"]
    assert "解释不了" in found["says_zh"]
    assert [row["program"] for row in found["owner"]] == ["openrlhf"]


def test_a_known_dtype_is_not_assumed() -> None:
    found = say(dtype="bf16")
    assert found["bytes"] == 116391936 * 8 * 2
    assert found["dtype_assumed"] is None
    assert "assumed" not in found["says"]


def test_a_short_time_out_can_be_too_short_for_a_slow_network() -> None:
    assert "Measure the bandwidth" in say(timeout_ms=10_000)["says"]


@pytest.mark.parametrize(("op", "numel"), [("BARRIER", None), ("ALLREDUCE", 1)])
def test_a_barrier_moves_next_to_nothing(op: str, numel: int | None) -> None:
    assert "next to nothing" in say(op=op, numel_in=numel)["says"]


@pytest.mark.parametrize(
    "changes",
    [{"numel_in": None, "numel_out": None}, {"numel_in": 2**64 - 1}, {"op": None}, {"op": "</script>"}, {"dtype": "complex"},
     {"world_size": None, "numel_out": None}, {"world_size": 0, "numel_out": 2**64 - 1}],
)  # fmt: skip
def test_without_a_size_only_the_owner_is_told(changes: dict[str, Any]) -> None:
    found = say(timeout_ms=600000, **changes)
    assert found["bytes"] is None
    assert found["seconds_expected"] is None
    assert found["owner"]
    assert "script" not in found["says"]


def test_a_group_of_unknown_size_still_has_an_upper_bound() -> None:
    gather = say(world_size=None)
    assert gather["bytes"] == 931135488 * 4
    assert gather["seconds_expected"] == pytest.approx(931135488 * 4 / 0.1e9, rel=1e-3)
    reduce = say(op="ALLREDUCE", world_size=None, numel_in=1000000, numel_out=None)
    assert reduce["bytes"] == 4000000
    assert reduce["seconds_expected"] == pytest.approx(0.08)


def test_a_very_short_time_out_is_not_called_ample() -> None:
    assert "as short as 1.8 s" in say(numel_in=None, numel_out=None, timeout_ms=1800)["says"]
    assert "late or absent" in say(numel_in=None, numel_out=None, timeout_ms=600000)["says"]


@pytest.mark.parametrize("limit", [None, 0, -5, True, "600000", 1.5])
def test_without_a_time_out_nothing_is_said(limit: Any) -> None:
    assert advice({**GATHER, "timeout_ms": limit}, {}, []) is None


def test_how_to_change_it_stands_beside_who_set_it() -> None:
    rows = advice({**GATHER, "timeout_ms": 1800000}, {"deepspeed": "0.16.4"}, ["deepspeed"])
    assert rows is not None
    assert rows["owner"][0]["program"] == "deepspeed"
    assert rows["owner"][0]["change"] == "DEEPSPEED_TIMEOUT=MINUTES"
    assert len(rows["owner"]) <= 4


def test_a_number_of_nobody_has_no_owner() -> None:
    assert say(timeout_ms=777000)["owner"] == []
