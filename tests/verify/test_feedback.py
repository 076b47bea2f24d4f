"""Outcomes back in the document: scores, statuses, order, headline, and nothing counted twice."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.api import diagnose
from nccl_triage.diagnosis.verdict import STATUS
from nccl_triage.diagnosis.weigh import VOTE_ID
from nccl_triage.engine.schema import WEIGHTS, RuleSet
from nccl_triage.hosts.links import HostPlace
from nccl_triage.render import render
from nccl_triage.verify import feedback
from nccl_triage.verify.decide import DecisionRow, Facts, table
from nccl_triage.verify.judge import ExperimentOutcome, Report
from nccl_triage.verify.means import Means
from nccl_triage.verify.plan import Plan, Planned, PlanOptions
from nccl_triage.verify.question import Question, SuspectedCause
from tests.document import fields

ROWS = {row.id: row for row in table()}
CONFIRMED = ROWS["fails-and-treatment-passes"]
REFUTED, SUPPORTED, UNDECIDED = ROWS["refuted"], ROWS["fails-as-diagnosed"], ROWS["undecided"]


def entry(cause: str, score: float, status: str = "supported", **more: Any) -> dict[str, Any]:
    contribution = {
        "id": "by-a-rule", "weight": "strong", "log_odds": score, "applied": score, "says": "", "says_zh": "", "explained_by": None,
        "events": [],
    }  # fmt: skip
    return {
        "cause": cause, "title": f"Title of {cause}", "title_zh": f"{cause} 的标题", "status": status, "confidence": 0.5,
        "score": score, "contributions": [contribution], "verification": None, **more,
    }  # fmt: skip


def document(
    *entries: dict[str, Any], verdict: str = "diagnosed", headline: str = "Likely: a bad thing."
) -> dict[str, Any]:
    return {"verdict": verdict, "headline": headline, "headline_zh": "很可能：坏事。", "diagnoses": list(entries)}


def report(rules: RuleSet, **rows: DecisionRow) -> Report:
    """Return a session's outcomes: a row of the table for each cause (``_`` for ``-``)."""
    outcomes = []
    for name, row in rows.items():
        cause = name.replace("_", "-")
        planned = Planned(SuspectedCause(cause, "supported", 0.5), rules.causes[cause].experiment, None, None)
        outcomes.append(ExperimentOutcome(planned, row, Facts(**row.example)))
    plan = Plan(
        Question(()), Means.alike((HostPlace("here"),)), PlanOptions(), tuple(outcome.planned for outcome in outcomes)
    )
    return Report(plan, outcomes)


def of(found: dict[str, Any], cause: str) -> dict[str, Any]:
    return next(item for item in found["diagnoses"] if item["cause"] == cause)


def test_weights_are_those_of_evidence() -> None:
    assert {row.weight: feedback.log_odds(row.weight) for row in table()} == {
        "none": 0.0, "decisive": WEIGHTS["decisive"], "decisive-against": -WEIGHTS["decisive"],
        "moderate": WEIGHTS["moderate"], "weak-against": -WEIGHTS["weak"],
    }  # fmt: skip


def test_a_confirmed_cause_is_established(rules: RuleSet) -> None:
    before = document(entry("straggler", 3.0), entry("rank-divergence", 2.8))
    after = feedback.apply(before, report(rules, straggler=CONFIRMED))
    told = of(after, "straggler")
    assert (told["status"], told["score"]) == ("established", 9.0)
    assert told["confidence"] >= STATUS.limits["established"]
    assert told["verification"]["outcome"] == "confirmed"
    said = {name: before[name] for name in ("verdict", "headline", "headline_zh")}
    assert told["verification"]["before"] == {"status": "supported", "confidence": 0.5, **said}
    assert told["verification"]["after"] == {"status": told["status"], "confidence": told["confidence"]}
    assert [item["id"] for item in told["contributions"]] == ["by-a-rule", feedback.EVIDENCE_ID]
    assert after["headline"] == "Confirmed by experiment: a bad thing."
    assert after["headline_zh"] == "实验已证实：坏事。"
    assert of(after, "rank-divergence")["verification"] is None


def test_a_refuted_cause_gives_way(rules: RuleSet) -> None:
    before = document(entry("straggler", 3.0), entry("rank-divergence", 2.8))
    after = feedback.apply(before, report(rules, straggler=REFUTED))
    assert [item["cause"] for item in after["diagnoses"]] == ["rank-divergence", "straggler"]
    assert of(after, "straggler")["confidence"] < 0.05
    assert of(after, "straggler")["status"] == "possible"
    wanted = "Likely: Title of rank-divergence (an experiment contradicts: Title of straggler)."
    assert after["headline"] == wanted, "the headline names the cause that comes first"
    assert after["headline_zh"] == "很可能：rank-divergence 的标题（实验不支持：straggler 的标题）。"
    assert feedback.contradicted(after, "straggler") and not feedback.contradicted(after, "rank-divergence")


def test_threads_of_a_refuted_cause_are_not_shown_any_more(rules: RuleSet) -> None:
    thread = {"url": "https://example.org/1", "cause": "straggler"}
    before = {**document(entry("straggler", 3.0), entry("rank-divergence", 2.8)), "similar": [thread]}
    assert feedback.apply(before, report(rules, straggler=CONFIRMED), rules)["similar"] == [thread]
    after = feedback.apply(before, report(rules, straggler=REFUTED), rules)
    assert thread not in after.get("similar", [])


def test_an_undecided_experiment_changes_no_score(rules: RuleSet) -> None:
    before = document(entry("straggler", 3.0), entry("rank-divergence", 2.8))
    after = feedback.apply(before, report(rules, straggler=UNDECIDED))
    told = of(after, "straggler")
    assert told["verification"]["outcome"] == "inconclusive"
    assert {**told, "verification": None} == before["diagnoses"][0]
    assert after["headline"] == before["headline"]
    assert not feedback.contradicted(after, "straggler")


def test_support_moves_a_little(rules: RuleSet) -> None:
    before = document(entry("straggler", 3.0), entry("rank-divergence", 2.8))
    after = feedback.apply(before, report(rules, rank_divergence=SUPPORTED))
    assert [item["cause"] for item in after["diagnoses"]] == ["rank-divergence", "straggler"]
    assert of(after, "rank-divergence")["score"] == pytest.approx(4.4)
    assert after["headline"] == "Likely: Title of rank-divergence.", "the order and the headline agree"


def test_a_cause_that_alone_was_refuted_leaves_nothing_known(rules: RuleSet) -> None:
    before = document(entry("straggler", 1.0))
    after = feedback.apply(before, report(rules, straggler=REFUTED))
    assert (after["verdict"], after["headline"]) == ("unknown", "Contradicted by experiment: a bad thing.")
    again = feedback.apply(after, report(rules, straggler=UNDECIDED))
    assert (again["verdict"], again["headline"]) == ("diagnosed", before["headline"])


def test_support_of_the_first_cause_moves_the_hedge_with_the_number(rules: RuleSet) -> None:
    before = document(entry("straggler", 3.0), entry("rank-divergence", 1.0))
    after = feedback.apply(before, report(rules, straggler=SUPPORTED))
    assert after["headline"] == "Very likely: a bad thing."
    assert of(after, "straggler")["confidence"] >= 0.95


def test_the_document_given_stays_as_it_was(rules: RuleSet) -> None:
    before = document(entry("straggler", 3.0), entry("rank-divergence", 2.8))
    kept = copy.deepcopy(before)
    feedback.apply(before, report(rules, straggler=CONFIRMED, rank_divergence=REFUTED))
    assert before == kept


def test_the_same_experiment_again_counts_once(rules: RuleSet) -> None:
    before = document(entry("straggler", 3.0), entry("rank-divergence", 2.8))
    done = report(rules, straggler=CONFIRMED)
    once = feedback.apply(before, done)
    twice = feedback.apply(once, done)
    assert of(twice, "straggler")["score"] == of(once, "straggler")["score"]
    assert of(twice, "straggler")["contributions"] == of(once, "straggler")["contributions"]
    assert (twice["headline"], twice["headline_zh"]) == (once["headline"], once["headline_zh"])


def test_a_later_verification_replaces_an_earlier_one(rules: RuleSet) -> None:
    before = document(entry("straggler", 3.0), entry("rank-divergence", 2.8))
    refuted = feedback.apply(before, report(rules, straggler=REFUTED))
    after = feedback.apply(refuted, report(rules, straggler=UNDECIDED))
    assert [item["cause"] for item in after["diagnoses"]] == ["straggler", "rank-divergence"]
    assert of(after, "straggler")["score"] == 3.0
    assert after["headline"] == "Likely: a bad thing.", "hedged as before"
    assert not feedback.contradicted(after, "straggler")


def test_another_cause_that_is_confirmed_takes_the_headline(rules: RuleSet) -> None:
    before = document(entry("straggler", 3.0), entry("rank-divergence", 2.8))
    after = feedback.apply(before, report(rules, straggler=UNDECIDED, rank_divergence=CONFIRMED))
    assert after["diagnoses"][0]["cause"] == "rank-divergence"
    assert after["headline"] == "Confirmed by experiment: Title of rank-divergence."
    assert after["headline_zh"] == "实验已证实：rank-divergence 的标题。"


def test_a_confirmed_candidate_ends_not_knowing(rules: RuleSet) -> None:
    before = document(entry("straggler", 0.9, "possible"), verdict="unknown", headline="No known cause.")
    after = feedback.apply(before, report(rules, straggler=CONFIRMED))
    assert (after["verdict"], after["headline"]) == ("diagnosed", "Confirmed by experiment: Title of straggler.")
    still = feedback.apply(before, report(rules, straggler=UNDECIDED))
    assert (still["verdict"], still["headline"]) == ("unknown", "No known cause.")
    no = feedback.apply(before, report(rules, straggler=REFUTED))
    assert (no["verdict"], no["headline"]) == ("unknown", "No known cause.")


def test_resemblance_alone_is_not_promoted_by_a_rivals_fall(rules: RuleSet) -> None:
    vote = entry("rank-divergence", 2.8, "possible")
    vote["contributions"][0]["id"] = VOTE_ID
    after = feedback.apply(document(entry("straggler", 3.0), vote), report(rules, straggler=REFUTED))
    assert after["diagnoses"][0]["cause"] == "rank-divergence"
    assert after["diagnoses"][0]["status"] == "possible"


def test_a_healthy_log_stays_healthy(rules: RuleSet) -> None:
    before = document(verdict="healthy", headline="No failure.")
    assert feedback.apply(before, report(rules)) == before


def test_a_cause_that_the_document_lacks_is_left_out(rules: RuleSet) -> None:
    before = document(entry("straggler", 3.0))
    after = feedback.apply(before, report(rules, rank_divergence=CONFIRMED))
    assert of(after, "straggler")["verification"] is None


def test_every_row_on_a_real_document(tmp_path: Path, rules: RuleSet) -> None:
    """The document keeps its published shape and renders, whatever was decided."""
    log = tmp_path / "job.log"
    log.write_text(
        "[W302 10:30:00 socket.cpp:1] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address "
        "already in use).\n"
    )
    before = diagnose([str(log)], rules=rules, model=None).to_dict()
    for row in table():
        after = feedback.apply(before, report(rules, port_in_use=row))
        told = of(after, "port-in-use")["verification"]
        assert (told["outcome"], told["decided_by"]) == (row.outcome, row.id)
        fields.check(after)
        for name in ("text", "html") if row in (CONFIRMED, REFUTED) else ("text",):
            assert row.says["en"].encode() in render(after, name, lang="en", color=False, width=None, verbose=0)
