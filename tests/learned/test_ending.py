"""Form and place of how a run ended."""

from __future__ import annotations

import pytest

from nccl_triage.diagnosis.case import Case
from nccl_triage.engine.schema import RuleSet
from nccl_triage.learned import describe, ending, form
from nccl_triage.learned.ending import FAILED, FINISHED, RUNNING, STOPPED, WELL
from tests.scan_helpers import scan_text

STEPS = "".join(f"step {n}/50 loss 2.{n}\n" for n in range(1, 4))


def features_of(text: str, rules: RuleSet, at_end: bool = True) -> set[str]:
    case = Case(scan_text(text, rules), rules)
    return ending.features(case.story.told.printed, case.observations.sources, at_end)


def test_place_is_told_from_the_end_and_from_the_last_progress(rules: RuleSet) -> None:
    found = features_of(STEPS + "RuntimeError: bent\n" + "and so on\n" * 20, rules)
    assert {"k:exception", "a:exception", "n:failures:1", "n:progress:3", "f:total:open", "f:progress:step"} <= found
    assert "t:exception" not in found, "it is not among the last lines"
    assert "n:behind:60" in found


def test_words_are_those_of_the_last_lines(rules: RuleSet) -> None:
    found = features_of("gargoyle\n" + "wheel turns\n" * 20 + "results saved\n", rules)
    assert {"w:saved", "v:saved", "w:wheel"} <= found
    assert not {"w:gargoyle", "w:of", "w:the"} & found


def test_counters_and_values_have_a_form(rules: RuleSet) -> None:
    assert "f:whole:last" in features_of("12 of 40 done\n40 of 40 done\n", rules)
    assert "f:part:last" in features_of("40 of 40 done\n12 of 40 done\n", rules)
    assert "f:values:3" in features_of("rate: 0.5\nloss=2.1\nsome text\n", rules)
    assert {"f:alike:1", "f:again:1"} <= features_of("wheel 1 turns\nwheel 2 turns\n", rules)


def test_of_a_run_with_another_one_behind_it_the_end_of_the_source_says_nothing(rules: RuleSet) -> None:
    found = features_of(STEPS + "results saved\n", rules, at_end=False)
    assert not [name for name in found if name[:2] in ("w:", "v:", "t:", "z:")]
    assert not [name for name in found if name.startswith("n:behind")]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("reading the rows\n40 of 40 rows are done\nmean accuracy 0.91\ntotal time 8 s\nsaved to out.csv\n", FINISHED),
        ("".join(f"Epoch: [1][{n}/400] loss {3 - n / 100:.2f}\n" for n in range(40)), RUNNING),
        (STEPS + 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: bent\n', FAILED),
        (
            STEPS + "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-01T18:50:00 DUE TO TIME LIMIT ***\n",
            STOPPED,
        ),
    ],
)
def test_the_shipped_model_tells_ends_apart(text: str, label: str, rules: RuleSet) -> None:
    model = form.shipped().ending
    assert model is not None
    found = ending.judge(model, features_of(text, rules))
    assert found.likeliest == label
    assert found.reasons(label) and found.probabilities[label] > 0.5
    assert abs(sum(found.probabilities.values()) - 1) < 1e-9
    assert found.worst not in WELL and found.best in WELL
    assert found.well == pytest.approx(found.probabilities[FINISHED] + found.probabilities[RUNNING])


def test_every_feature_that_was_learnt_has_words() -> None:
    model = form.shipped().ending
    assert model is not None
    for name in model.weights:
        said = describe.features([name])
        assert said["en"] != name and said["zh"] != name, name
