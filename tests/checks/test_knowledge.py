"""The knowledge is whole, and the check that says so can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nccl_triage.checks import knowledge
from nccl_triage.engine.schema import RuleSet, Step
from nccl_triage.knowledge import catalogue
from nccl_triage.knowledge.entries import ValueSample
from nccl_triage.knowledge.variables import shipped


def test_the_shipped_knowledge_is_whole(rules: RuleSet) -> None:
    assert [finding.show() for finding in knowledge.check(rules)] == []


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (ValueSample("mlx5", None), "finds trap instead of nothing"),
        (ValueSample("=mlx5_0", "trap"), "finds nothing instead of trap"),
        (ValueSample("a b", "trap"), "finds outside instead of trap"),
    ],
)
def test_samples_are_tests(sample: ValueSample, message: str) -> None:
    entry = shipped().find("NCCL_IB_HCA")
    assert entry is not None
    (finding,) = knowledge.variable(entry._replace(samples=(sample,)))
    assert message in finding.message
    assert finding.where.startswith("rules/variables/nccl-infiniband.yaml:")


def test_a_variable_whose_values_can_be_odd_needs_a_sample() -> None:
    entry = shipped().find("NCCL_IB_TIMEOUT")
    assert entry is not None
    assert [f.message for f in knowledge.variable(entry._replace(samples=()))] == ["has no sample"]


def test_both_languages_are_asked_for() -> None:
    assert knowledge.languages("x:1", "x", [{"en": "A text.", "zh": "文本。"}, None]) == []
    assert len(knowledge.languages("x:1", "x", [{"en": "文本。", "zh": "A text."}])) == 2
    assert len(knowledge.languages("x:1", "x", [{"en": "A text.", "zh": "Another."}])) == 1


def test_the_line_of_a_symptom_matches_its_signature(rules: RuleSet) -> None:
    row = catalogue.symptoms()["duplicate-gpu"]
    assert knowledge.symptom(row, rules) == []
    assert knowledge.symptom(row._replace(sees="Everything is fine."), rules)
    assert knowledge.symptom(row._replace(signatures=("nccl.no_such_thing",)), rules)


def test_names_that_do_not_exist_are_found(rules: RuleSet) -> None:
    cause = rules.causes["straggler"]
    stages = {**cause.stages, "now": (Step(use="no-such-step"),)}
    broken = replace(rules, causes={**rules.causes, "straggler": cause._replace(stages=stages)})
    assert [finding.message for finding in knowledge.check(broken)] == ["names the unknown step 'no-such-step'"]
    fewer = replace(rules, causes={name: c for name, c in rules.causes.items() if name != "os-limit"})
    found = knowledge.check(fewer)
    assert found
    assert {finding.message for finding in found} == {
        "names the unknown cause 'os-limit'", "names the unknown entry 'os-limit'",
    }  # fmt: skip
