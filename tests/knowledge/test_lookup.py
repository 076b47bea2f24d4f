"""What words, numbers, settings and lines of a log stand for."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.knowledge import describe, lookup


@pytest.mark.parametrize(
    ("query", "kind", "name"),
    [
        ("gpu-out-of-memory", "cause", "gpu-out-of-memory"),
        ("nccl.duplicate_gpu", "signature", "nccl.duplicate_gpu"),
        ("NCCL_IB_HCA", "variable", "NCCL_IB_HCA"),
        ("nccl_ib_hca", "variable", "NCCL_IB_HCA"),
        ("--shm-size", "variable", "--shm-size"),
        ("--ipc=host", "variable", "--ipc=host"),
        ("+actor_rollout_ref.nccl_timeout=1200", "variable", "actor_rollout_ref.nccl_timeout"),
        ("remove-model-eval", "advice", "remove-model-eval"),
        ("model.eval", "advice", "remove-model-eval"),
        ("watchdog-timeout", "symptom", "watchdog-timeout"),
        ("cuda 802", "code", "cudaErrorSystemNotReady"),
        ("cuda:802", "code", "cudaErrorSystemNotReady"),
        ("cudaErrorSystemNotReady", "code", "cudaErrorSystemNotReady"),
        ("ib-status 12", "code", "IBV_WC_RETRY_EXC_ERR"),
        ("status=12", "code", "IBV_WC_RETRY_EXC_ERR"),
        ("nccl 6", "code", "ncclRemoteError"),
        ("ncclremoteerror", "code", "ncclRemoteError"),
        ("exit -9", "code", "SIGKILL"),
        ("exit 137", "code", "SIGKILL"),
        ("SIGKILL", "code", "SIGKILL"),
        ("signal=-9", "code", "SIGKILL"),
    ],
)
def test_exact(rules: RuleSet, query: str, kind: str, name: str) -> None:
    found = lookup.exact(query, rules)
    assert found is not None
    assert found.kind == kind
    assert name in (found.item.id if hasattr(found.item, "id") else "", getattr(found.item, "name", ""))


@pytest.mark.parametrize(
    ("query", "kind", "item"),
    [
        ("network", "family", "network"),
        ("symptoms", "topic", "symptoms"),
        ("Timeout(ms) 600000", "owner", 600000),
        ("timeouts", "topic", "timeouts"),
        ("NCCL_NO_SUCH=1", "name", "NCCL_NO_SUCH"),
    ],
)
def test_pages_that_are_no_entry(rules: RuleSet, query: str, kind: str, item: object) -> None:
    assert lookup.exact(query, rules) == lookup.KnowledgeItem(kind, item, "1" if "=" in query else None)


def test_punctuation_around_a_name_does_not_matter(rules: RuleSet) -> None:
    for query in ("model.eval()", "`NCCL_IB_HCA`", "'cuda 802'", "straggler."):
        assert lookup.exact(query, rules) is not None


def test_who_set_a_time_out(rules: RuleSet) -> None:
    for query in ("Timeout(ms)=43200000", "timeout 43200000"):
        found = lookup.exact(query, rules)
        assert found is not None
        assert [row["program"] for row in describe.found(found, rules)["rows"]] == ["openrlhf"]
    nobody = lookup.exact("timeout 777777", rules)
    assert nobody is not None
    assert describe.found(nobody, rules)["rows"] == []


@pytest.mark.parametrize("query", ["cuda 9999", "nothing-such", "", "=", "a=b", "12", "HOME=/root", "x" * 5000])
def test_what_is_not_known_exactly(rules: RuleSet, query: str) -> None:
    assert lookup.exact(query, rules) is None


def test_a_setting_carries_its_value(rules: RuleSet) -> None:
    found = lookup.exact("NCCL_IB_HCA==mlx5_0,mlx5_1", rules)
    assert found is not None
    assert found.value == "=mlx5_0,mlx5_1"


def test_a_bare_number_stands_for_what_every_table_has(rules: RuleSet) -> None:
    assert [found.item.table for found in lookup.numbered("12")] == ["ib-status", "xid"]
    assert {found.item.table for found in lookup.numbered("2")} == {"cuda", "nccl", "ib-status", "exit", "xid"}
    assert lookup.numbered("twelve") == []
    assert lookup.numbered("9" * 50) == []


def test_a_line_of_a_log_finds_its_signatures(rules: RuleSet) -> None:
    line = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 79.15 GiB"
    assert "cuda.oom" in [found.item.id for found in lookup.line(line, rules)]
    assert lookup.line("the quick brown fox jumps", rules) == []
    assert lookup.line("oom", rules) == []


@pytest.mark.parametrize(
    ("query", "name"), [("gpu-out-of-memry", "gpu-out-of-memory"), ("cudaErorAssert", "cudaErrorAssert")]
)
def test_near_misses(rules: RuleSet, query: str, name: str) -> None:
    assert name in lookup.near(query, rules)


def test_everything_that_is_listed_can_be_explained(rules: RuleSet) -> None:
    for kind in lookup.KINDS:
        for row in lookup.listing(kind, rules)["rows"]:
            assert lookup.exact(row["id"], rules) is not None, row["id"]
            assert row["text"]


def test_signatures_have_no_chinese_text_and_everything_else_has(rules: RuleSet) -> None:
    for kind in lookup.KINDS:
        rows = lookup.listing(kind, rules)["rows"]
        assert all(("text_zh" in row) is (kind != "signatures") for row in rows)


def test_a_cause_is_told_whole(rules: RuleSet) -> None:
    data = describe.cause(rules.causes["batch-size-mismatch"], rules)
    assert data["title_zh"] and data["explanation_zh"]
    assert data["stages"] and data["fixes"] and data["evidence"]
    assert "{" not in data["fixes"][0]["title"]  # place holders are shown as names
    assert {row["id"] for row in data["advice"]} >= {"batch-multiple-of-gpus"}


def test_a_signature_tells_for_and_against_what_it_speaks(rules: RuleSet) -> None:
    data = describe.signature(rules.signatures["nccl.duplicate_gpu"], rules)
    assert data["evidence_for"][0]["id"] == "duplicate-gpu"
    assert data["evidence_for"][0]["weight"] == "decisive"
    assert data["symptoms"] == ["duplicate-gpu"]
    victim = describe.signature(rules.signatures["torch.watchdog_timeout"], rules)
    assert "gpu-out-of-memory" in victim["brought_about_by"]


def test_a_variable_tells_the_advice_about_it(rules: RuleSet) -> None:
    found = lookup.exact("NCCL_NVLS_ENABLE=1", rules)
    assert found is not None
    data = describe.found(found, rules)
    assert [row["id"] for row in data["advice"]] == ["nvls-enable-1-disables"]
    assert data["value"] == "1"
    assert data["default"] == [{"since": None, "value": "1"}, {"since": "2.18.1", "value": "2"}]


def test_a_name_that_nobody_reads(rules: RuleSet) -> None:
    data = describe.unknown_name("NCCL_DEBU", None)
    assert (data["read"], data["complete"]) == (False, True)
    assert "NCCL_DEBUG" in data["near"]
    assert describe.unknown_name("NCCL_NVB_DISABLE", None)["read"] is True
