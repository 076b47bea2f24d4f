"""Tables of rules: the first rule that holds decides, and a decision says by what."""

from __future__ import annotations

from nccl_triage.engine import story_rules
from nccl_triage.engine.schema import RuleSet
from nccl_triage.story import explain, survived_failures
from nccl_triage.story.decisions import COUNTS, REGISTERED, Decision
from tests.scan_helpers import diagnose_text

STEPS = "".join(f"step {n}/50 loss 2.{n}\n" for n in range(1, 6))
FAULT = "RuntimeError: cannot write the summary\n"


def fates(text: str, rules: RuleSet) -> list[Decision]:
    run = diagnose_text(text, rules).case.story.told
    return [why for _, why in (*run.counting, *run.aside)]


def test_a_failure_that_counts_says_why_as_one_that_does_not(rules: RuleSet) -> None:
    (survived,) = fates(FAULT + STEPS, rules)
    assert (survived.rule, survived.answer) == ("survival.job-went-on", "went-on")
    assert survived.numbers == {"followed": 5, "enough": 2.0}
    assert survived.subject is not None and survived.subject.line == 1
    (counts,) = fates(STEPS + FAULT, rules)
    assert (counts.rule, counts.answer) == ("survival.nothing-followed", COUNTS)


def test_a_sentence_holds_the_numbers_that_decided(rules: RuleSet) -> None:
    (survived,) = fates(FAULT + STEPS, rules)
    assert "5; 2 are enough" in explain.says(survived)["en"]
    assert "5" in explain.says(survived)["zh"]
    assert "Fewer than 2" in explain.otherwise(survived)["en"]


def test_every_decision_of_a_story_can_be_told(rules: RuleSet) -> None:
    story = diagnose_text(FAULT + STEPS + "nohup: ignoring input\n" + STEPS + FAULT, rules).case.story
    found = list(explain.decisions(story))
    assert {one.table for one in found} == {"choice", "runs", "survival", "outcome", "communication"}
    for one in found:
        for text in (explain.says(one), explain.otherwise(one)):
            assert all(text.values()) and "{" not in "".join(text.values())


def test_thresholds_are_those_of_the_file() -> None:
    table = story_rules.tables()["survival"]
    assert survived_failures.RULES.limits == {name: item.value for name, item in table.thresholds.items()}
    assert all(item.unit and item.meaning for one in story_rules.tables().values() for item in one.thresholds.values())


def test_the_order_of_the_file_is_the_order_of_asking() -> None:
    for table in REGISTERED.values():
        names = [rule.id.partition(".")[2] for rule in table.data.rules]
        asked = [name for name in names if table.conditions[name] is not None]
        assert [rule.id.partition(".")[2] for rule, _ in table._asked] == asked
