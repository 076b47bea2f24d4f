"""A part of the relations: what is done to recorded logs that must not change the answer."""

from __future__ import annotations

import random
import zlib

import pytest

from corpus.relations import transport
from corpus.relations.__main__ import WANTED, trials
from corpus.relations.collectors import WAYS, carried
from corpus.relations.table import RELATIONS
from corpus.relations.world import LONGEST, Run, diagnose, read

#: One run in so many is tried here; `make relations` tries all.
SHARE = 16


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return read(lambda case: zlib.crc32(case.id.encode()) % SHARE == 0)


def test_the_answers_hold(runs: list[Run]) -> None:
    misses = []
    tried = 0
    for relation in RELATIONS:
        for run in runs:
            for good, answer in trials(relation, run, runs):
                tried += 1
                if not good:
                    misses.append(f"{relation.name}: {run.case.id}: {run.answer} -> {answer}")
    assert tried > 20 * len(RELATIONS)
    assert len(misses) <= (1 - WANTED) * tried, "\n".join(misses)


def test_every_relation_is_tried(runs: list[Run]) -> None:
    """A relation for which no run is suitable would hold for nothing."""
    for relation in RELATIONS:
        assert any(trials(relation, run, runs) for run in runs), relation.name
    assert all(len(run.text) <= LONGEST for run in runs)


def test_the_answer_is_the_same_however_the_log_comes() -> None:
    tried = [trial for case in transport.logs(5 * SHARE) for trial in transport.trials(case)]
    assert len(tried) > 20 * len(transport.WAYS)
    for holds, wanted in (
        (lambda one: one.cause_holds, transport.SAME_CAUSE),
        (lambda one: one.culprit_holds, transport.SAME_CULPRIT),
    ):
        misses = [trial for trial in tried if not holds(trial)]
        assert len(misses) <= (1 - wanted) * len(tried), misses


def _seconds(text: str) -> float | None:
    incident = diagnose({"log": text}).to_dict()["incident"]
    return None if incident is None else incident["seconds"]


def test_a_collector_by_another_clock_makes_no_failure_longer() -> None:
    costs = []
    for case in transport.logs(6 * SHARE):
        text = case.log.read_text(encoding="utf-8", errors="replace")
        before = _seconds(text)
        for way in (one for one in WAYS if "in UTC" in one):
            after = _seconds(carried(way, text, random.Random(case.id)))
            if before is not None and after is not None:
                costs.append((before, after, way, case.id))
    assert len(costs) > 10
    assert not [one for one in costs if abs(one[0] - one[1]) > 60]  # more lines have a time now
