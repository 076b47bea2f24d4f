"""The rules of the story are proved by their samples, and the check that says so can fail in every way it should."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from nccl_triage.checks import story
from nccl_triage.engine import nodes, story_rules
from nccl_triage.engine.schema import RuleSet, StoryTable
from nccl_triage.errors import RuleError
from nccl_triage.story.decisions import REGISTERED

#: A table of one rule that is well.
GOOD = """
tables:
  - id: ends
    question: {en: Does a line end the job?, zh: 该行是否结束作业？}
    answers:
      job-stopped: {en: it was told to stop, zh: 被要求停止}
    rules:
      - id: cancelled
        kinds: [job.cancelled]
        answer: job-stopped
        says: {en: A scheduler stopped the job., zh: 调度器停止了作业。}
        otherwise: {en: A signal to one process stops no job., zh: 单个进程的信号不会停止作业。}
        samples:
          - line: 2
            log: |
              step 1/50 loss 2.10
              slurmstepd: error: *** JOB 77 ON node001 CANCELLED AT 2026-03-01T18:00:00 DUE TO TIME LIMIT ***
        counter_samples:
          - line: 2
            log: |
              step 1/50 loss 2.10
              WARNING: Received signal 15 (SIGTERM), saving checkpoint
"""


def tables(text: str) -> dict[str, StoryTable]:
    return story_rules.read_tables(nodes.parse(text, "rules/story/ends.yaml"))


@pytest.fixture
def problems(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], list[str]]]:
    """Return what the check says of the rules of one table, but for conditions that the text leaves out."""
    missing = "is a condition in code, but not in the table"

    def check(text: str) -> list[str]:
        known = {**story_rules.tables(), **tables(text)}
        monkeypatch.setattr(story_rules, "tables", lambda: known)
        forget()
        found = story.check_story(rules)
        return [
            one.message for one in found if one.where.startswith("rules/story/ends.yaml") and one.message != missing
        ]

    yield check
    monkeypatch.undo()
    forget()


def forget() -> None:
    """Let every table read its rules anew."""
    for table in REGISTERED.values():
        for name in ("data", "limits", "kinds", "_rules", "_asked", "_by_kind"):
            table.__dict__.pop(name, None)


def test_the_shipped_rules_are_proved(rules: RuleSet) -> None:
    assert [finding.show() for finding in story.check_story(rules)] == []
    assert set(REGISTERED) == set(story_rules.tables())
    assert min(len(rule.samples) for table in story_rules.tables().values() for rule in table.rules) >= 1


def test_a_rule_that_is_well_is_called_so(problems: Callable[[str], list[str]]) -> None:
    assert problems(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("DUE TO TIME LIMIT ***", "DUE", "does not decide its sample"),
        ("WARNING: Received signal 15 (SIGTERM), saving checkpoint",
         "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-01T18:00:00 DUE TO TIME LIMIT ***",
         "decides its counter-sample"),
        ("WARNING: Received signal 15 (SIGTERM), saving checkpoint", "somebody said something",
         "no signature reads the line of its counter-sample"),
        ("id: cancelled", "id: called-off", "no condition in code has this name"),
        ("kinds: [job.cancelled]", "kinds: [job.failed]", "does not decide its sample"),
        ("          - line: 2\n            log: |\n              step 1/50 loss 2.10\n              WARNING",
         "          - line: 2\n            instead: failure-reported\n            log: |\n              step 1/50 loss 2.10\n              WARNING",
         "its counter-sample is decided by no rule of the table, not ends.failure-reported"),
    ],
)  # fmt: skip
def test_a_rule_that_is_wrong_is_found_by_its_samples(
    old: str, new: str, message: str, problems: Callable[[str], list[str]]
) -> None:
    text = GOOD.replace(old, new)
    assert text != GOOD
    found = problems(text)
    assert any(one.startswith(message) for one in found), found


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("A scheduler stopped the job.", "'{who} stopped the job.'", "{who} is neither a threshold nor a number of this rule"),
        ("kinds: [job.cancelled]", "kinds: [job.canceled]", "'job.canceled' is not a kind of line"),
        ("answer: job-stopped", "answer: stopped", "'stopped' is not one of job-stopped"),
        ("          - line: 2\n            log: |\n              step 1/50 loss 2.10\n              slurm",
         "          - line: 9\n            log: |\n              step 1/50 loss 2.10\n              slurm", "the sample has no line '9'"),
        ("says: {en: A scheduler stopped the job., zh: 调度器停止了作业。}", "says: {en: A scheduler stopped the job.}",
         "the key 'zh' is missing"),
        ("    rules:\n", "    thresholds:\n      far: {value: 3, unit: lines, meaning: far away}\n    rules:\n",
         "no rule lists the threshold 'far'"),
        ("    rules:\n", "    thresholds:\n      far: {value: three, unit: lines, meaning: far away}\n    rules:\n",
         "expected a number, found 'three'"),
        ("        answer: job-stopped\n", "        answer: job-stopped\n        thresholds: [near]\n",
         "the table has no threshold 'near'"),
        ("      job-stopped: {en", "      other: {en: x, zh: x}\n      job-stopped: {en", "no rule gives the answer 'other'"),
        ("        samples:\n", "        sample:\n", "unknown key 'sample'"),
    ],
)  # fmt: skip
def test_a_rule_of_a_wrong_form_is_refused_with_its_place(old: str, new: str, message: str) -> None:
    text = GOOD.replace(old, new)
    assert text != GOOD
    with pytest.raises(RuleError) as refused:
        tables(text)
    told = "\n".join(map(str, refused.value.lines("en")))
    assert message in told
    assert "rules/story/ends.yaml:" in told


def test_a_rule_that_is_listed_twice_is_refused() -> None:
    rule = GOOD[GOOD.index("      - id: cancelled") :]
    with pytest.raises(RuleError, match="listed twice"):
        tables(GOOD + rule)


def test_a_condition_without_a_rule_is_found(rules: RuleSet) -> None:
    found = story.check_story(rules, {**story_rules.tables(), **tables(GOOD)})
    assert any(one.rule == "ends.launcher-signalled" and "not in the table" in one.message for one in found)
    gone = {name: table for name, table in story_rules.tables().items() if name != "runs"}
    assert any(one.rule == "runs" for one in story.check_story(rules, gone))
