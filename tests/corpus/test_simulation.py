"""Experiments that all pass contradict nothing that a log establishes, and a strange host moves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from corpus.verifier import simulation
from corpus.verifier.simulation import GROUNDS, Judged

#: Every so manieth case is diagnosed and verified here; ``python -m corpus.verifier.simulation`` takes all.
EVERY = 12


@pytest.fixture(scope="module")
def found() -> Sequence[Judged]:
    judged, without = simulation.collect([simulation.FOLDER], EVERY, 2, lambda text: None)
    assert without < len(judged) / len(GROUNDS) / 4
    return judged


def test_nothing_is_contradicted_that_a_log_establishes(found: Sequence[Judged]) -> None:
    assert len(found) > 3 * 30
    assert sum(item.established for item in found) > 10
    assert simulation.failures(found) == []


def test_nothing_runs_into_the_void(found: Sequence[Judged]) -> None:
    # On its own hosts most of what a collective can test is tested.
    own = [item for item in found if item.ground == GROUNDS[0].name and item.outcome != "not-testable"]
    assert sum(item.outcome == "not-run" for item in own) < len(own) / 4
    assert {"not-reproduced", "inconclusive"} <= {item.outcome for item in own}


def test_the_table_counts_what_counts(found: Sequence[Judged]) -> None:
    text = simulation.table(found)
    assert text.count("### On ") == len(GROUNDS)
    assert "0 of the established; 0 confirmed" in text


def test_what_must_not_be_is_found() -> None:
    own, strange = GROUNDS[0].name, GROUNDS[1].name
    good = Judged("a", own, "network-link-fault", "supported", "not-reproduced", "not-reproduced", False)
    bad = [
        replace(good, status="established", outcome="refuted"),
        replace(good, outcome="confirmed"),
        replace(good, ground=strange, moved=True),
        replace(good, ground=strange, outcome="refuted"),
    ]
    allowed = [good, replace(good, outcome="refuted"), replace(good, moved=True)]
    assert simulation.failures([*allowed, *bad]) == bad
