"""A part of the relations: what is done to recorded logs that must not change the answer."""

from __future__ import annotations

import zlib

import pytest

from corpus.relations.__main__ import WANTED, trials
from corpus.relations.table import RELATIONS
from corpus.relations.world import LONGEST, Run, read

#: One run in so many is tried here; `make relations` tries all.
SHARE = 12


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
