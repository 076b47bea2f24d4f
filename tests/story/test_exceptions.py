"""Exceptions that only a logger's record of an error names: whose they are, and when they do not count."""

from __future__ import annotations

import pytest

from nccl_triage.document.diagnosis import Diagnosis
from nccl_triage.engine.schema import RuleSet
from nccl_triage.story.exceptions import exceptions_of
from tests.scan_helpers import diagnose_text

CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:43930."
DASHES = "2026-03-11 09:12:{second:02},{rank:03} - {level} - [RANK {rank}] {text}\n"
LOGURU = "2026-03-11 09:12:{second:02}.{rank:03} | {level:8} | rank={rank} | train:main:105 - {text}\n"


def job(last: str, rules: RuleSet, form: str = DASHES, level: str = "ERROR") -> Diagnosis:
    """Diagnose a job of two ranks whose rank 1 ends with this record, and rank 0 for the lost connection."""
    lines = [(second, rank, "INFO", f"step {second}/40 loss=2.1") for second in range(4) for rank in (0, 1)]
    lines += [(5, 1, level, last), (6, 0, "ERROR", f"training failed: RuntimeError('{CLOSED}')")]
    text = "".join(form.format(second=s, rank=r, level=grade, text=said) for s, r, grade, said in lines)
    return diagnose_text(text, rules)


@pytest.mark.parametrize("form", [DASHES, LOGURU], ids=["dashes", "loguru"])
@pytest.mark.parametrize(
    ("last", "message"),
    [
        ("training failed: KeyError('clip_15')", "clip_15"),
        ("training aborted: ValueError: labels contain class ('x')", "labels contain class ('x')"),
        ("Error: RuntimeError: shape '[3]' is invalid", "shape '[3]' is invalid"),
        ("giving up after data.ShardError(7) at sample 3", "7"),
    ],
    ids=["repr", "str", "error of error", "number"],
)
def test_a_record_of_an_error_names_the_exception_of_its_rank(
    last: str, message: str, form: str, rules: RuleSet
) -> None:
    found = job(last, rules, form)
    assert found.case.value("exception.ranks") == [1]
    assert found.case.value("exception.message") == message
    assert found.case.value("progress.silent_ranks") is None
    assert found.candidates[0].id == "application-exception"
    assert [culprit.rank for culprit in found.candidates[0].culprits] == [1]


@pytest.mark.parametrize(
    ("last", "level"),
    [
        ("bad sample left out: KeyError('clip_15')", "INFO"),
        ("bad sample left out: KeyError('clip_15')", "WARNING"),
        ("rank 0 reports: KeyError('clip_15')", "ERROR"),
        ("a remote worker failed: KeyError('clip_15')", "ERROR"),
        (f"training failed: RuntimeError('{CLOSED}')", "ERROR"),
    ],
    ids=["info", "warning", "of another rank", "of a remote one", "of a lost peer"],
)
def test_other_records_name_no_exception_of_their_rank(last: str, level: str, rules: RuleSet) -> None:
    assert job(last, rules, level=level).case.value("exception.application") is None


def test_a_rank_that_took_steps_after_its_record_survived_it(rules: RuleSet) -> None:
    steps = "".join(
        DASHES.format(second=second, rank=rank, level="INFO", text=f"step {second}/40 loss=2.1")
        for second in range(10, 20)
        for rank in (0, 1)
    )
    ok = DASHES.format(second=5, rank=1, level="ERROR", text="sample left out: KeyError('clip_15')")
    begin = DASHES.format(second=1, rank=1, level="INFO", text="step 1/40 loss=2.1")
    case = diagnose_text(begin + ok + steps, rules).case
    assert case.value("exception.application") is None
    assert case.story.outcome.state == "running"


def test_the_traceback_below_a_record_is_the_same_exception(rules: RuleSet) -> None:
    trace = (
        "Traceback (most recent call last):\n  File \"/a/train.py\", line 7, in main\n    load()\nKeyError: 'clip_15'\n"
    )
    text = DASHES.format(second=5, rank=1, level="ERROR", text="training failed: KeyError('clip_15')") + trace
    case = diagnose_text(text, rules).case
    assert case.value("exception.user_frame") == "/a/train.py:7 main"
    assert [event.signature for event in exceptions_of(case)] == ["python.traceback"]


def test_a_rank_whose_last_words_report_an_error_did_not_fall_silent(rules: RuleSet) -> None:
    found = job("shard 7 not found, giving up", rules)
    assert found.case.value("progress.silent_ranks") is None
    assert "peer-vanished" not in {item.evidence.id for one in found.candidates for item in one.weighed.rule_items}


@pytest.mark.parametrize("said", ["INFO", "before"])
def test_a_rank_that_only_informs_or_went_on_after_an_error_is_silent(said: str, rules: RuleSet) -> None:
    late = "shard 7 not found, giving up"
    if said == "INFO":
        assert job(late, rules, level="INFO").case.value("progress.silent_ranks") == [1]
        return
    early = DASHES.format(second=0, rank=1, level="ERROR", text=late)
    lines = early + "".join(
        DASHES.format(second=second, rank=rank, level="INFO", text=f"step {second}/40 loss=2.1")
        for second in range(1, 9)
        for rank in (0, 1)
    )
    lines += DASHES.format(second=9, rank=0, level="ERROR", text=f"training failed: RuntimeError('{CLOSED}')")
    assert diagnose_text(lines, rules).case.value("progress.silent_ranks") == [1]
