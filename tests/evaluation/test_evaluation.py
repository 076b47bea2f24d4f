"""The scores mean what corpus/README.md says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nccl_triage.errors import InputError
from nccl_triage.evaluation import advice, cases, run, score
from nccl_triage.evaluation.advice import JudgedAdvice
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.evaluation.score import CaseOutcome, calibration_error, measure, tallies
from nccl_triage.evaluation.tally import Tally, wilson


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


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    # R. G. Newcombe, Two-sided confidence intervals for the single proportion (1998), score method; and by hand.
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1),
    ],
)
def test_wilson_intervals_against_known_values(right: int, of: int, low: float, high: float) -> None:
    found = wilson(right, of)
    assert found == pytest.approx((low, high), abs=5e-5)
    assert 0 <= found[0] <= right / of <= found[1] <= 1


def test_tallies_count_what_is_known() -> None:
    assert Tally.over([True, None, False, True]) == (2, 3)
    assert Tally.over([]).share is None and Tally.over([None]).interval is None
    assert Tally(1, 4).as_dict()["share"] == 0.25
    for right, of in ((-1, 2), (3, 2), (0, 0)):
        with pytest.raises(ValueError):
            wilson(right, of)


def test_failures_and_outcomes_are_counted() -> None:
    outcomes = [
        said("a", label=case("a", outcome="failed"), outcome="failed"),
        said("b", label=case("a", outcome="hung"), outcome="failed"),
        said("a", label=case("a", outcome="failed", determinable="no")),
        said(None, verdict="healthy", label=case("healthy")),
    ]
    counted = tallies(outcomes)
    assert (counted["failures"], counted["top1"], counted["outcome"]) == ((1, 2), (2, 3), (1, 3))
    assert measure(outcomes).outcome == pytest.approx(1 / 3)
    shown = score.markdown([("x", outcomes, {"first error line": outcomes})])
    assert "calib. error | outcome |" in shown
    assert shown.splitlines()[2].endswith("| 33 % |") and shown.splitlines()[3].endswith("| - | - |")
    assert "outcome" not in score.markdown([("x", outcomes[3:], {})])


def test_a_line_counts_in_the_labelled_file_only() -> None:
    label = case("a", evidence_line=7, evidence_file="1/stderr.log")
    assert said("a", label=label, lines=[7], files=["/x/w1/1/stderr.log"]).line_right() is True
    assert said("a", label=label, lines=[7], files=["/x/w1/0/stderr.log"]).line_right() is False
    assert said("a", label=label, lines=[7], files=["/x/w1/11/stderr.log"]).line_right() is False
    assert said("a", label=label, lines=[9, 9, 9, 7], files=["1/stderr.log"] * 4).line_right() is False
    assert said("a", label=label, lines=[6]).line_right() is True


def test_no_verdict_accuses_nobody() -> None:
    assert not said(None, verdict="no answer", label=case("healthy")).accuses_healthy


def test_blind_cases_count_in_the_table_only() -> None:
    outcomes = [said("b", label=case("a", id="seen")), said("b", label=case("c", id="secret", blind=True))]
    shown = score.text([("x", outcomes, {})])
    assert "seen" in shown and "secret" not in shown and "  c  " not in shown
    assert "1 blind count in the table only" in shown and "| x | nccl-triage | 2 | 0 % |" in shown
    assert [one["id"] for one in score.as_data([("x", outcomes, {})])["x"]["cases"]] == ["seen"]


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


def test_advice_helps_first_among_or_harms() -> None:
    judged = case("a", advice=JudgedAdvice(("a/smaller-*",), ("a/*", "b/reboot"), ("fix_first",)))
    first = said("a", label=judged, repairs=["a/smaller-batch", "c/look"], restart="fix_first")
    among = said("a", label=judged, repairs=["c/look", "a/smaller-batch"], restart="restart")
    harmful = said("a", label=judged, repairs=["a/larger-batch"])
    nothing = said("a", label=judged)
    outcomes = [first, among, harmful, nothing, said("a", label=case("a"), repairs=["b/reboot"])]
    counted = tallies(outcomes)
    assert [counted[name] for name in ("helped_first", "helped", "harmful", "restart")] == [
        (1, 4),
        (2, 4),
        (1, 4),
        (1, 4),
    ]
    shown = score.text([("x", outcomes, {})])
    assert "| first repair helped | a repair helped | a repair does harm | restart |" in shown
    assert "| 25 % | 50 % | 25.0 % | 25 % |" in shown
    assert "harmful repairs a/larger-batch; restart None" in shown and "useless repairs none" in shown
    assert "repair" not in score.markdown([("x", outcomes[4:], {})])


def test_judged_advice_is_read_for_the_cases_of_its_folder(tmp_path: Path, rules) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "x.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n" * 3)
    (folder / "cases.jsonl").write_text(json.dumps({"id": "one", "log": "x.log", "cause": "gpu-out-of-memory"}) + "\n")
    table = tmp_path / "advice.jsonl"
    rows = [
        {"id": "*", "harms": ["job-preempted/*"]},
        {"id": "own/one", "helps": ["gpu-out-of-memory/lower-the-peak*"], "restart": ["fix_first"]},
        {"id": "other/one", "helps": ["none"]},
    ]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found,) = cases.read(folder, advice.read(table))
    assert found.advice == JudgedAdvice(("gpu-out-of-memory/lower-the-peak*",), ("job-preempted/*",), ("fix_first",))
    (outcome,), _ = run.run([found], rules)
    assert (outcome.helped_first(), outcome.harmful(), outcome.restart_right()) == (True, False, True)
    for damaged in ("{", "[]", '{"helps": []}'):
        table.write_text(damaged)
        with pytest.raises(InputError):
            advice.read(table)
