"""Schedulers' reports of how a job ended: every reason, signal and limit that a signature knows has a sample."""

from __future__ import annotations

import re

import pytest

from nccl_triage.engine import match
from nccl_triage.engine.schema import RuleSet, Signature

#: Programs that schedule jobs, and report their ends.
SCHEDULERS = ("slurm", "lsf", "pbs")
#: What their lines say of an end, by the kinds of the signatures: each must be captured by some, in a sample.
ENDS = {
    "process.exit": {"exitcode", "signal", "signo"},
    "job.cancelled": {"why", "name", "limit", "user", "by"},
    "memory.killed": {"value", "limit"},
    "launch.failed": {"why"},
}
#: A named group that lists words.
_WORDS = re.compile(r"\(\?P<(\w+)>((?:[\w /-]+\|)+[\w /-]+)\)")


def reports(rules: RuleSet) -> list[Signature]:
    return [one for one in rules.signatures.values() if one.program in SCHEDULERS]


def sampled(signature: Signature) -> list[dict[str, str]]:
    """Return the fields of the samples."""
    found = [match.search(signature, sample) for sample in signature.match_samples]
    return [{**signature.sets, **fields} for fields in found if fields is not None]


def test_every_word_that_a_report_may_give_has_a_sample(rules: RuleSet) -> None:
    asked, missing = 0, []
    for signature in reports(rules):
        for group, words in _WORDS.findall(signature.pattern.source):
            given = {fields.get(group) for fields in sampled(signature)}
            asked += len(words.split("|"))
            missing += [f"{signature.id}: {group} {word}" for word in words.split("|") if word not in given]
    assert asked > 20
    assert missing == []


@pytest.mark.parametrize("kind", ENDS)
def test_ends_are_captured(rules: RuleSet, kind: str) -> None:
    given = {name for one in reports(rules) if one.kind == kind for fields in sampled(one) for name in fields}
    assert ENDS[kind] - given == set()


@pytest.mark.parametrize("program", SCHEDULERS)
def test_each_scheduler_tells_who_wanted_the_end(rules: RuleSet, program: str) -> None:
    cancelled = [one for one in reports(rules) if one.program == program and one.kind == "job.cancelled"]
    assert cancelled
    assert any({"why", "name", "user", "by"} & set(fields) for one in cancelled for fields in sampled(one))
