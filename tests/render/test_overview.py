"""What the first screen says of the job."""

from __future__ import annotations

import pytest

from nccl_triage.render import overview, phrases

from .documents import full, healthy


def test_the_length_is_told_once():
    doc = full() | {"outcome": {"state": "hung"}}
    assert overview.outcome_text(doc, "en") == "hung, began 2024-08-23 21:10:26"
    doc["incident"]["rank_hours"] = 0.01
    assert overview.outcome_text(doc, "en") == "hung, began 2024-08-23 21:10:26, lasted 11 min 14 s"
    assert overview.work_lost(doc, "en") == ""


def test_a_good_end_tells_when():
    doc = healthy() | {"outcome": {"state": "finished", "since": "2024-08-23 21:10:26"}}
    assert overview.outcome_text(doc, "zh") == "正常结束，2024-08-23 21:10:26"


@pytest.mark.parametrize(
    ("found", "en", "zh"),
    [
        ({"decision": "restart", "exclude": []}, "Safe to restart now", "现在即可重启"),
        ({"decision": "exclude_then_restart", "exclude": ["a", "b"]}, "Restart without a, b", "排除 a、b 后重启"),
        (
            {"decision": "exclude_then_restart", "exclude": list("abcde")},
            "Restart without a, b, c +2",
            "排除 a、b、c +2 后重启",
        ),
        (None, "", ""),
    ],
)
def test_the_decision_on_a_restart(found, en, zh):
    assert [phrases.restart_text({"restart": found}, lang) for lang in ("en", "zh")] == [en, zh]


def test_a_collective_is_told_as_far_as_it_is_known():
    tell = overview.collective_text
    assert tell({"collective": None}, "en") == ""
    assert tell({"collective": {"seq": 25059}}, "en") == "number 25059"
    whole = {
        "op": "ALLREDUCE",
        "seq": 7,
        "numel_in": 4096,
        "numel_out": 4096,
        "timeout_ms": 600000,
        "elapsed_ms": 600024,
    }
    assert tell({"collective": whole}, "en") == "ALLREDUCE, number 7, 4,096 elements in, timeout 10 min, ran for 10 min"


def test_many_hosts_are_counted_and_few_are_named():
    job = {"ranks": [], "world_size": 16, "hosts": [{"name": f"n{i}"} for i in range(4)]}
    assert [part.en for part in overview.job_line({"job": job})] == ["16 ranks", "4 hosts"]
    job["hosts"] = job["hosts"][:2]
    assert [part.zh for part in overview.job_line({"job": job})] == ["16 个 rank", "主机 n0、n1"]
    assert overview.job_line({"job": {"ranks": []}}) == []
