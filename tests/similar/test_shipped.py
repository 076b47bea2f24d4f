"""The shipped index is that of the corpus and of today's rules, small, and fast to load."""

from __future__ import annotations

import pytest

from corpus import similar as corpus
from nccl_triage import messages, resources
from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation import cases
from nccl_triage.producers import produced_signatures
from nccl_triage.similar import search, threads

STALE = "run make similar"
#: One case of so many is read again.
EVERY = 60


@pytest.fixture(scope="module")
def index() -> threads.ThreadIndex:
    return threads.shipped()


def test_the_threads_are_those_of_the_corpus(index: threads.ThreadIndex) -> None:
    known = corpus.labels()
    assert list(index.threads) == [known[name] for name in sorted(known)], STALE
    assert len(index.threads) > 1500


def test_causes_are_known_and_addresses_are_links(index: threads.ThreadIndex, rules: RuleSet) -> None:
    assert {thread.cause for thread in index.threads} <= {*rules.causes, search.UNKNOWN}
    assert all(thread.url.startswith("https://") for thread in index.threads)


def test_signatures_among_the_features_exist(index: threads.ThreadIndex, rules: RuleSet) -> None:
    named = {name[2:] for name in index.postings if name[:2] in ("s:", "r:", "q:")}
    assert named <= {*rules.signatures, *produced_signatures()}, STALE


def test_a_sample_of_the_logs_has_the_features_of_the_index(index: threads.ThreadIndex, rules: RuleSet) -> None:
    order = sorted(corpus.labels())
    wanted = set(order[::EVERY])
    sample = [case for case in cases.read(corpus.WRITTEN) if case.id in wanted]
    for case, findings in corpus.diagnosed(sample, rules):
        number = order.index(case.id)
        names = {name for name in search.features_of(findings.case) if name[:1] in threads.KIND_WEIGHT}
        assert names == {name for name, having in index.postings.items() if number in having}, (case.id, STALE)


def test_every_reason_is_there_in_chinese_and_nothing_else(index: threads.ThreadIndex) -> None:
    reasons = {text for thread in index.threads for text in (thread.why, thread.helped) if text}
    assert reasons == set(messages.table("threads")), "edit analyzer/nccl_triage/messages/threads.json"


def test_lengths_follow_from_the_postings(index: threads.ThreadIndex) -> None:
    entries: list[set[str]] = [set() for _ in index.threads]
    for name, having in index.postings.items():
        for number in having:
            entries[number].add(name)
    assert threads.indexed(zip(index.threads, entries, strict=True)).lengths == index.lengths


def test_the_file_is_small_and_the_same_bytes_again(index: threads.ThreadIndex) -> None:
    data = resources.threads_file().read_bytes()
    assert len(data) < 400_000
    assert threads.to_bytes(index) == data


def test_a_sixth_of_the_frozen_cases_finds_what_the_measurement_says(
    rules: RuleSet, index: threads.ThreadIndex
) -> None:
    frozen = corpus.frozen()["written"]
    chosen = [case for case in cases.read(corpus.WRITTEN) if case.id in frozen][::6]
    judged = corpus.judge(chosen, rules, index)
    shown = [one for one in judged if one.shown]
    right = sum(one.shown[0] in one.case.acceptable for one in shown)
    assert len(shown) >= 0.6 * len(judged)
    assert right >= 0.85 * len(shown)
