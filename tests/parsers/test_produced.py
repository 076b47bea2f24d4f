"""What parsers declare of the fields of their events holds for logs of every kind."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation import cases
from nccl_triage.observations.event import Context, Event
from nccl_triage.parsers import produced_signatures
from tests.scan_helpers import scan_text, undeclared

CORPUS = Path(__file__).parents[2] / "corpus"
#: Every so manieth log of the corpus is read.
EVERY = 12


def test_the_events_of_parsers_have_the_fields_that_they_declare(rules: RuleSet) -> None:
    seen: Counter[str] = Counter()
    for folder in ("recorded", "written"):
        for case in cases.read(CORPUS / folder)[::EVERY]:
            events = scan_text(case.log.read_text("utf-8", "replace"), rules).all_events()
            assert undeclared(events) == [], case.id
            seen.update(event.signature for event in events)
    assert len(seen.keys() & produced_signatures().keys()) >= 4


@pytest.mark.parametrize(("fields", "wrong"), [({"template": "x"}, 0), ({}, 1), ({"template": "x", "more": "y"}, 1)])
def test_a_field_too_many_or_too_few_is_found(fields: dict[str, str], wrong: int) -> None:
    assert len(undeclared([Event("line.salient", "log", 1, "x", Context(), fields=fields)])) == wrong
