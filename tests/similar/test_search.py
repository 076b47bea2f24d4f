"""What is alike: rare messages count more than common ones, a thread once, a named cause is kept to, a split vote is none."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.similar import search, threads
from nccl_triage.similar.threads import PublicThread, ThreadIndex
from tests.scan_helpers import diagnose_text

OOM = """step 3 loss 2.1
NCCL version 2.21.5+cuda12.4
[rank2]: Traceback (most recent call last):
[rank2]:   File "/job/train.py", line 3, in <module>
[rank2]:     step()
[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 79.33 GiB
"""
STRANGE = "step 3 loss 2.1\nFATAL frobnicator: quux ledger exhausted\nexit code 1\n"
HEALTHY = "step 1 loss 2.3\nstep 2 loss 2.1\ntraining finished\n"


def thread(number: int, cause: str, confirmed_by: str = "") -> PublicThread:
    return PublicThread(f"https://example.org/{number}", cause, "", confirmed_by)


def index(*entries: tuple[PublicThread, set[str]], more: int = 40) -> ThreadIndex:
    others = [(thread(1000 + n, "os-limit"), {f"s:other{n}"}) for n in range(more)]
    return threads.indexed([*entries, *others])


def test_a_rare_message_is_worth_more_than_a_common_one() -> None:
    common = [(thread(10 + n, "os-limit"), {"s:common"}) for n in range(20)]
    found = index((thread(1, "a"), {"s:rare", "s:foreign"}), *common)
    near = search.nearest({"s:rare", "s:common"}, found)
    assert found.threads[near[0][1]].url == "https://example.org/1"
    assert near[0][0] > near[1][0] > 0


def test_a_thread_with_two_logs_counts_once_by_the_one_that_is_nearer() -> None:
    found = index((thread(1, "a"), {"s:x", "s:foreign"}), (thread(1, "a"), {"s:x"}))
    near = search.nearest({"s:x"}, found)
    assert len(near) == 1
    assert near[0] == (pytest.approx(1, abs=1e-3), 1)


def test_a_thread_does_not_find_itself_in_a_measurement() -> None:
    found = index((thread(1, "a"), {"s:x"}), (thread(2, "a"), {"s:x", "s:y"}))
    assert [number for _, number in search.nearest({"s:x"}, found, "https://example.org/1")] == [1]


def test_nothing_shared_is_nothing_alike(rules: RuleSet) -> None:
    assert search.nearest({"s:x"}, index()) == []
    assert search.nearest(set(), index((thread(1, "a"), {"s:x"}))) == []
    assert search.find(diagnose_text(STRANGE, rules), index()) == []
    assert search.find(diagnose_text("", rules), ThreadIndex((), (), {})) == []


def test_a_named_cause_is_kept_to(rules: RuleSet) -> None:
    found = diagnose_text(OOM, rules)
    assert found.cause == "gpu-out-of-memory"
    names = set(search.features_of(found.case))
    made = index((thread(1, "process-crashed"), names), (thread(2, "gpu-out-of-memory"), names - {"r:cuda.oom"}))
    assert [one.thread.url for one in search.find(found, made)] == ["https://example.org/2"]


def test_the_better_confirmed_of_equals_comes_first_and_three_are_shown(rules: RuleSet) -> None:
    found = diagnose_text(OOM, rules)
    names = set(search.features_of(found.case))
    said = ["", "reporter", "maintainer", "consensus"]
    made = index(*((thread(n, "gpu-out-of-memory", by), names) for n, by in enumerate(said)))
    shown = search.find(found, made)
    assert [one.thread.confirmed_by for one in shown] == ["maintainer", "consensus", "reporter"]
    assert all("s:cuda.oom" in one.shared and one.score > 0.9 for one in shown)


def test_without_a_named_cause_the_majority_decides(rules: RuleSet) -> None:
    found = diagnose_text(STRANGE, rules)
    assert found.verdict == "unknown"
    names = set(search.features_of(found.case))
    alike = [(thread(n, "storage-fault"), names) for n in range(4)]
    assert {one.thread.cause for one in search.find(found, index(*alike))} == {"storage-fault"}
    rival = [(thread(10 + n, "process-crashed"), names) for n in range(4)]
    assert search.find(found, index(*alike, *rival)) == []


def test_the_confidence_of_a_candidate_weighs_its_votes() -> None:
    made = index((thread(1, "a"), {"s:x"}), (thread(2, "b"), {"s:x"}))
    near = search.nearest({"s:x"}, made)
    assert search.favoured(near, made, {}) is None
    assert search.favoured(near, made, {"a": 0.4}) == "a"
    assert search.favoured([], made, {"a": 0.4}) is None


def test_a_healthy_job_is_like_no_failure(rules: RuleSet) -> None:
    found = diagnose_text(HEALTHY, rules)
    assert found.verdict == "healthy"
    names = set(search.features_of(found.case))
    assert search.find(found, index((thread(1, "os-limit"), names | {"s:x"}))) == []


def test_versions_and_hardware_are_features(rules: RuleSet) -> None:
    text = OOM.replace("total capacity", "NVIDIA H100 80GB, a total capacity")
    names = search.features_of(diagnose_text(text, rules).case)
    assert {"v:nccl 2.21", "h:H100"} <= names
    assert not {name for name in search.features_of(diagnose_text(HEALTHY, rules).case) if name[0] in "vh"}
