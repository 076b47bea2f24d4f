"""Searching by words: what people call a problem leads to it, in English and in Chinese."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.knowledge import catalogue, describe, search


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("delete the cache folder", "delete-cache-folder"),
        ("clock ntp", "clock-synchronisation"),
        ("Connection reset by peer", "connection-reset"),
        ("删除缓存", "delete-cache-folder"),
        ("时钟同步", "clock-synchronisation"),
        ("防火墙端口", "open-master-port-only"),
    ],
)
def test_search(rules: RuleSet, query: str, name: str) -> None:
    assert name in [found.item.id for found in search.search(query, rules)]


def test_search_without_a_hit(rules: RuleSet) -> None:
    assert search.search("zebra giraffe", rules) == []


def test_part_of_a_message_finds_signatures(rules: RuleSet) -> None:
    assert any(found.kind == "signature" for found in search.search("watchdog caught collective", rules))


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("my job hangs", "hang"),
        ("hang", "hang"),
        ("stuck", "hang"),
        ("training is stuck at step 0", "hang"),
        ("the job is frozen", "hang"),
        ("deadlock in all_reduce", "hang"),
        ("vLLM hangs", "hang"),
        ("hangs when saving a checkpoint", "hang"),
        ("all reduce hangs on 2 nodes but works on one", "hang"),
        ("no progress for an hour", "hang"),
        ("卡住", "hang"),
        ("作业卡住了，没有输出", "hang"),
        ("死锁", "hang"),
        ("NCCL timeout", "timeout"),
        ("it timed out", "timeout"),
        ("NCCL 超时", "timeout"),
        ("slow", "slow"),
        ("why is my training so slow", "slow"),
        ("one rank is slower than the others", "slow"),
        ("训练很慢", "slow"),
        ("out of memory", "out-of-memory"),
        ("OOM", "out-of-memory"),
        ("显存不足", "out-of-memory"),
        ("job was killed", "killed"),
        ("被杀掉了", "killed"),
        ("loss is nan", "nan"),
        ("loss 变成 nan", "nan"),
        ("cannot connect to the master", "cannot-connect"),
        ("连不上主节点", "cannot-connect"),
        ("GPU fell off the bus", "gpu-fault"),
        ("掉卡", "gpu-fault"),
        ("segfault", "crash"),
        ("进程崩溃", "crash"),
        ("disk full", "disk"),
        ("磁盘满了", "disk"),
        ("job does not start", "does-not-start"),
        ("node died", "node-lost"),
        ("version mismatch", "versions"),
        ("infiniband is down", "infiniband"),
        ("dataloader is broken", "data"),
        ("too many open files", "limits"),
        ("报错了怎么办", "error"),
    ],
)
def test_what_people_type_leads_to_the_problem(rules: RuleSet, query: str, problem: str) -> None:
    found = search.search(query, rules)
    assert (found[0].kind, found[0].item.id) == ("problem", problem)


def test_a_word_of_a_flag_counts_less_than_that_of_a_problem(rules: RuleSet) -> None:
    kinds = [item.kind for item in search.search("NCCL timeout", rules)]
    assert kinds.index("problem") < kinds.index("variable")


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("broken pipe", "broken-pipe"),
        ("port in use", "port-in-use"),
        ("wrong network interface", "network-wrong-interface"),
    ],
)
def test_an_entry_whose_name_is_spelled_out_comes_first(rules: RuleSet, query: str, name: str) -> None:
    assert search.search(query, rules)[0].item.id == name


def test_a_name_in_a_question(rules: RuleSet) -> None:
    found = search.named("what is NCCL_DEBUG?", rules)
    assert found is not None and found.item.id == "NCCL_DEBUG"
    assert search.named("what is the matter", rules) is None


def test_problems_lead_to_entries_that_exist(rules: RuleSet) -> None:
    for item in catalogue.problems().values():
        data = describe.problem(item, rules)
        assert [row["id"] for row in data["leads"]] == list(item.leads)
        assert all(row["text"] and row["text_zh"] for row in data["leads"])
        assert any(not word.isascii() for word in item.words), item.id


def test_no_word_stands_for_two_problems() -> None:
    words = [word for item in catalogue.problems().values() for word in item.words]
    assert sorted({word for word in words if words.count(word) > 1}) == []
