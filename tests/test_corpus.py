"""The shipped corpus: its index is sound, and what the tool says of it does not get worse."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation import cases, run
from nccl_triage.evaluation.score import score

CORPUS = Path(__file__).parents[1] / "corpus"


@pytest.fixture(scope="module")
def outcomes(rules: RuleSet):
    return run.run(cases.read(CORPUS), rules)


def test_the_index_names_existing_logs_and_known_causes(rules: RuleSet) -> None:
    known = {*rules.causes, "healthy", "unknown"}
    found = cases.read(CORPUS)
    assert len({case.id for case in found}) == len(found)
    for case in found:
        assert case.log.exists()
        assert set(case.acceptable) <= known
        if case.evidence_line and case.log.is_file():
            assert case.evidence_line <= len(case.log.read_bytes().splitlines())


def test_every_log_is_in_the_index() -> None:
    named = {case.log for case in cases.read(CORPUS)}
    assert {*CORPUS.glob("*/*.log"), *CORPUS.glob("runs/*")} == named


def test_accuracy(outcomes) -> None:
    found, baselines = outcomes
    scores = score(found)
    assert scores.top1 is not None
    assert scores.top1 >= 0.95
    assert scores.healthy == 1.0
    for baseline in baselines.values():
        assert scores.top1 > (score(baseline).top1 or 0)


def test_every_diagnosis_becomes_a_valid_document(rules: RuleSet) -> None:
    import json

    import jsonschema

    from nccl_triage import diagnose
    from nccl_triage.render import render

    schema = json.loads((CORPUS.parent / "reports" / "schema" / "report.schema.json").read_text())
    for case in cases.read(CORPUS):
        document = diagnose(case.log, rules=rules).to_dict()
        jsonschema.validate(json.loads(render(document, "json")), schema)
        for kind in ("text", "markdown", "html"):
            assert render(document, kind)
