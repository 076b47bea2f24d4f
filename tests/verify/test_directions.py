"""In which direction every outcome moves every cause: a table, and the confidences that follow from it."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.diagnosis.weigh import ALONE_CAP, SILENCE_CAP, confidences
from nccl_triage.engine.schema import RuleSet
from nccl_triage.verify import feedback
from nccl_triage.verify.decide import DecisionRow, Facts, decide, table
from nccl_triage.verify.feedback import log_odds
from tests.verify.test_feedback import document, entry, of, report

#: What a session on the job's own hosts came to, and in which direction this moves a cause by what its file says of a
#: control that passes: +1 for it, -1 against it, 0 not at all.
SITUATIONS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "all is well": (
        {"control": "passes", "fact": "clean"},
        {"refutes": -1, "supports": 0, "nothing": 0, "not-reproduced": 0},
    ),
    "all is well, and the log proves the cause": (
        {"control": "passes", "fact": "clean", "proven": True},
        {"refutes": 0, "supports": 0, "nothing": 0, "not-reproduced": 0},
    ),
    "all is well on fewer ranks": (
        {"control": "passes", "fact": "clean", "complete": False},
        {"refutes": 0, "supports": 0, "nothing": 0, "not-reproduced": 0},
    ),
    "the collective is brief": (
        {"control": "passes", "fact": "clean", "brief": True},
        {"refutes": -1, "supports": 0, "nothing": 0, "not-reproduced": 0},
    ),
    "it passes, and a check shows something else": (
        {"control": "passes", "fact": "other", "found": True},
        {"refutes": 0, "supports": 0, "nothing": 0, "not-reproduced": 0},
    ),
    "it passes, and a check shows the cause": (
        {"control": "passes", "fact": "shows"},
        {"refutes": 0, "supports": 0, "nothing": 0, "not-reproduced": 0},
    ),
    "it fails as diagnosed, and passes with one thing changed": (
        {"control": "fails", "diagnosed": True, "treatment": "passes"},
        {"refutes": 1, "supports": 1, "nothing": 1, "not-reproduced": 1},
    ),
    "it fails as diagnosed": (
        {"control": "fails", "diagnosed": True, "treatment": "fails"},
        {"refutes": 1, "supports": 1, "nothing": 1, "not-reproduced": 1},
    ),
    "it fails as predicted, and a check shows something else": (
        {"control": "fails", "diagnosed": True, "treatment": "fails", "fact": "other"},
        {"refutes": 0, "supports": 0, "nothing": 0, "not-reproduced": 0},
    ),
    "it fails in another way": (
        {"control": "fails", "found": True},
        {"refutes": -1, "supports": -1, "nothing": -1, "not-reproduced": -1},
    ),
    "it fails, and nothing tells why": (
        {"control": "fails"},
        {"refutes": 0, "supports": -1, "nothing": 0, "not-reproduced": 0},
    ),
    "it fails now and then": (
        {"control": "mixed"},
        {"refutes": 0, "supports": 0, "nothing": 0, "not-reproduced": 0},
    ),
}


def sign(row: DecisionRow) -> int:
    added = log_odds(row.weight)
    return (added > 0) - (added < 0)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_situation_moves_every_cause_in_the_direction_of_the_table(situation: str, rules: RuleSet) -> None:
    known, directions = SITUATIONS[situation]
    tested = 0
    for cause in rules.causes.values():
        kind, passing = cause.experiment.kind, cause.experiment.passing
        if kind in ("none", "memory"):
            continue
        # What a check shows of these is the cause itself.
        row = decide(Facts(kind, **{"complete": True, "passing": passing, **known}))
        assert sign(row) == directions[passing], (cause.id, row.id)
        tested += 1
    assert tested > 10


def test_no_cause_but_one_whose_failure_is_predicted_speaks_for_itself_by_passing(rules: RuleSet) -> None:
    """A session in which all is well cannot tell a straggler from a rank that took another path."""
    causes = ("rank-divergence", "straggler", "collective-mismatch", "timeout-too-short")
    rows = {}
    for name in causes:
        experiment = rules.causes[name].experiment
        known = {"control": "passes", "fact": "clean", "complete": True, "passing": experiment.passing}
        rows[name.replace("-", "_")] = decide(Facts(experiment.kind, **known))
    before = document(*(entry(name, 3.0 - 0.2 * index) for index, name in enumerate(causes)))
    after = feedback.apply(before, report(rules, **rows))
    assert [(item["cause"], item["confidence"]) for item in after["diagnoses"]] == [
        (item["cause"], item["confidence"]) for item in before["diagnoses"]
    ]


def limited(scores: list[float], ceiling: float) -> list[dict[str, Any]]:
    """Return entries as a diagnosis leaves them: confidences of their scores, the first at most ``ceiling``."""
    shares, _ = confidences(scores)
    names = ("straggler", "rank-divergence", "collective-mismatch")
    return [
        entry(names[index], scores[index], confidence=round(min(share, ceiling if index == 0 else 1.0), 3))
        for index, share in enumerate(shares)
    ]


@pytest.mark.parametrize("ceiling", [1.0, ALONE_CAP, SILENCE_CAP])
@pytest.mark.parametrize("scores", [[3.2], [5.0], [5.0, 1.6], [3.2, 3.0, 2.9], [8.0, 3.2]])
@pytest.mark.parametrize("row", table(), ids=lambda row: row.id)
def test_a_confidence_moves_as_the_row_says(
    row: DecisionRow, scores: list[float], ceiling: float, rules: RuleSet
) -> None:
    before = document(*limited(scores, ceiling))
    after = feedback.apply(before, report(rules, straggler=row))
    moved = of(after, "straggler")["confidence"] - of(before, "straggler")["confidence"]
    if sign(row) == 0:
        assert moved == 0
    else:
        assert sign(row) * moved >= 0
    again = feedback.apply(after, report(rules, straggler=row))
    assert of(again, "straggler")["confidence"] == of(after, "straggler")["confidence"]
    for item in again["diagnoses"]:
        assert item["confidence"] == of(after, item["cause"])["confidence"]


def test_the_fall_of_a_rival_does_not_raise_what_is_spoken_against(rules: RuleSet) -> None:
    rows = {row.id: row for row in table()}
    before = document(*limited([3.2, 3.2], 1.0))
    after = feedback.apply(before, report(rules, straggler=rows["another-cause"], rank_divergence=rows["refuted"]))
    assert of(after, "straggler")["confidence"] <= of(before, "straggler")["confidence"]


def test_what_silence_is_limited_to_stays_when_a_rival_falls(rules: RuleSet) -> None:
    rows = {row.id: row for row in table()}
    before = document(*limited([6.0, 3.2], SILENCE_CAP))
    after = feedback.apply(before, report(rules, rank_divergence=rows["refuted"]))
    assert of(after, "straggler")["confidence"] == SILENCE_CAP
