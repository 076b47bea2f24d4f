"""What is put around a log changes neither what happened to its job nor where its lines are said to stand."""

from __future__ import annotations

import pytest

from corpus import compositions
from corpus.compositions import COMPOSITIONS, WELL, Composition
from nccl_triage.learned.ending import FAILED, FINISHED, NONE, RUNNING

LOG = "".join(f"line {n}\n" for n in range(1, 9)) + "the last one without an end"


@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda one: one.name)
def test_every_line_of_the_log_stands_where_it_is_said_to(composition: Composition) -> None:
    composed = composition.make(LOG).splitlines()
    for number, text in enumerate(LOG.splitlines(), 1):
        assert composed[composition.line(number) - 1] == text
    assert len(composed) == len(LOG.splitlines()) + composition.words.count("\n")


def test_names_are_unique_and_every_outcome_is_composed() -> None:
    assert len({one.name for one in COMPOSITIONS}) == len(COMPOSITIONS)
    assert {way.name for way, _, _ in compositions.of(LOG, FAILED)} >= {"closing-words", "time-limit", "lsf-exited"}
    assert not list(compositions.of(LOG, NONE))


def test_a_later_attempt_that_fails_makes_a_good_run_a_failure() -> None:
    later = [(way, then) for way, _, then in compositions.of(LOG, FINISHED) if then != FINISHED]
    assert [(way.name, way.keeps_cause, then) for way, then in later] == [("later-attempt", False, FAILED)]


def test_closing_words_of_a_shell_do_not_say_whether_the_job_finished() -> None:
    found = {way.name: then for way, _, then in compositions.of(LOG, RUNNING)}
    assert found["closing-words"] == WELL and found["lsf-done"] == FINISHED and found["warned-early"] == RUNNING
