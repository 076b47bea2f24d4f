"""Where names stand: the rows of the table, each by its samples."""

from __future__ import annotations

import re

import pytest

from nccl_triage.redaction.contexts import Context, contexts, names_in

MATCH = [pytest.param(row, text, id=f"{row.id}-{i}") for row in contexts() for i, text in enumerate(row.match_samples)]
NOT = [pytest.param(row, text, id=f"{row.id}-{i}") for row in contexts() for i, text in enumerate(row.not_samples)]


@pytest.mark.parametrize(("row", "sample"), MATCH)
def test_a_sample_gives_its_name(row: Context, sample: str) -> None:
    text = re.sub("[«»]", "", sample)
    expected = re.findall("«([^»]+)»", sample)
    assert expected
    assert list(row.names(text)) == expected
    assert {(row.kind, name) for name in expected} <= set(names_in(text))


@pytest.mark.parametrize(("row", "sample"), NOT)
def test_a_counterexample_gives_none(row: Context, sample: str) -> None:
    assert list(row.names(sample)) == []


def test_ids_are_unique() -> None:
    assert len({row.id for row in contexts()}) == len(contexts())
