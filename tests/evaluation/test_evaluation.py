"""The scores mean what corpus/README.md says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nccl_triage.errors import InputError
from nccl_triage.evaluation import cases, run, score
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.evaluation.score import CaseOutcome, calibration_error, measure


def case(cause: str, **more) -> LabelledCase:
    base = {
        "id": "x", "log": Path("x"), "cause": cause, "also": (), "determinable": "yes", "ranks": (), "hosts": (),
        "evidence_line": None, "group": "g",
    }  # fmt: skip
    return LabelledCase(**{**base, **more})


def said(cause: str | None, confidence: float = 0.9, verdict: str = "diagnosed", **more) -> CaseOutcome:
    label = more.pop("label")
    return CaseOutcome(case=label, verdict=verdict, causes=[cause] if cause else [], confidence=confidence, **more)


def test_right_and_wrong() -> None:
    assert said("a", label=case("a")).right()
    assert said("b", label=case("a", also=("b",))).right()
    assert not said("b", label=case("a")).right()
    assert said(None, verdict="healthy", label=case("healthy")).right()
    assert not said("a", verdict="unknown", label=case("a")).right()


def test_unknown_is_admitted_by_low_confidence() -> None:
    assert said("a", 0.4, label=case("unknown")).right()
    assert not said("a", 0.6, label=case("unknown")).right()
    assert said("b", 0.4, label=case("a", also=("unknown",))).right()


def test_culprits() -> None:
    label = case("a", ranks=(2, 3), hosts=("n1",))
    assert said("a", label=label, culprits=[(3, None)]).culprit_right() is True
    assert said("a", label=label, culprits=[(1, "n1")]).culprit_right() is False
    assert said("a", label=label, culprits=[(None, "n1")]).culprit_right() is True
    assert said("a", label=label).culprit_right() is False
    assert said("a", label=case("a"), culprits=[(1, None)]).culprit_right() is None


def test_undeterminable_cases_do_not_count_in_top1() -> None:
    outcomes = [said("a", label=case("a")), said("b", label=case("a", determinable="no"))]
    assert measure(outcomes).top1 == 1.0


def test_the_three_errors_that_do_most_harm() -> None:
    healthy, failed = case("healthy"), case("a")
    outcomes = [
        said("a", 0.6, label=healthy),
        said("a", 0.4, label=healthy),
        said(None, verdict="unknown", label=healthy),
        said("b", 0.6, label=case("healthy", also=("b",))),
        said(None, verdict="healthy", label=failed),
        said(None, verdict="healthy", label=case("a", also=("healthy",))),
        said("b", 0.8, label=failed),
        said("b", 0.7, label=failed),
        said("a", 0.9, label=failed),
    ]
    scores = measure(outcomes)
    assert (scores.accused, scores.missed, scores.misled) == (1 / 4, 1 / 4, 1 / 9)
    shown = score.markdown([("x", outcomes, {})])
    assert "| healthy accused | failure called healthy | wrong at 0.8 |" in shown
    assert "| 25.0 % | 25.0 % | 11.1 % |" in shown


def test_calibration_error_is_the_weighted_gap() -> None:
    outcomes = [said("a", 0.95, label=case("a"))] * 9 + [said("b", 0.95, label=case("a"))]
    assert calibration_error(outcomes) == pytest.approx(0.05)


def test_macro_f1_of_all_right_is_one() -> None:
    assert measure([said("a", label=case("a")), said("b", label=case("b"))]).macro_f1 == 1.0


def test_reading_and_scoring_a_folder(tmp_path: Path, rules) -> None:
    (tmp_path / "x.log").write_text(
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79 GiB "
        "of which 1.00 MiB is free.\n"
    )
    record = {"id": "one", "log": "x.log", "cause": "gpu-out-of-memory", "culprit": {"rank": 1}, "evidence_line": 1}
    (tmp_path / "cases.jsonl").write_text(json.dumps(record) + "\n\n")
    outcomes, baselines = run.run(cases.read(tmp_path), rules)
    scores = measure(outcomes)
    assert (scores.top1, scores.culprit, scores.line) == (1.0, 1.0, 1.0)
    assert set(baselines) == {"first error line", "last error line"}
    shown = score.text([("set", outcomes, baselines)])
    assert "gpu-out-of-memory" in shown
    assert "| set | nccl-triage | 1 | 100 % |" in shown


@pytest.mark.parametrize("text", ["{", '{"id": 1}', "[]"])
def test_damaged_indexes_are_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "cases.jsonl").write_text(text)
    with pytest.raises(InputError):
        cases.read(tmp_path)
    with pytest.raises(InputError):
        cases.read(tmp_path / "none")
