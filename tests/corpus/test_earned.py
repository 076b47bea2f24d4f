"""Knowledge is earned: what counts, and that the claims in ``rules/earned.yaml`` are true."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus.gate import earned
from nccl_triage import diagnose
from nccl_triage.checks.earned import claims
from nccl_triage.diagnosis.case import BLAMES, fact_names
from nccl_triage.diagnosis.culprit import METHODS
from nccl_triage.diagnosis.culprit_base import BY_RANK, BY_SPEAKER, FAMILIES, NAMED
from nccl_triage.engine.schema import FAMILIES as OF_CAUSES
from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation import cases

ROOT = Path(__file__).parents[2]
OOM = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
#: Every so manieth claim is tried.
EVERY = 12


def test_every_way_in_the_lists_of_families_exists_and_every_method_stands_in_one() -> None:
    assert set(FAMILIES) == set(OF_CAUSES)
    listed = {way for ways in FAMILIES.values() for way in ways}
    assert listed <= {*METHODS, *(name for name in fact_names() if name in BLAMES)}
    assert set(METHODS) <= {*listed, "message", "evidence-facts"}
    assert listed >= BY_SPEAKER | BY_RANK | NAMED


def test_what_held_in_a_case(tmp_path: Path, rules: RuleSet) -> None:
    log = tmp_path / "log"
    log.write_text(OOM, "utf-8")
    found = diagnose(log, rules=rules)
    shown = earned.shown(found.case, [candidate.weighed for candidate in found.candidates])
    assert "gpu-out-of-memory/oom-exception" in shown["rows"]
    assert "cuda.oom" in shown["signatures"]
    assert shown["methods"] == {"exception"}
    assert "exception.ranks" in shown["facts"]
    assert set(shown["facts"]) <= set(fact_names())


def test_what_did_not_hold_is_not_counted(tmp_path: Path, rules: RuleSet) -> None:
    log = tmp_path / "log"
    log.write_text("step 1/2 loss 2.1\nstep 2/2 loss 2.0\nTraining completed.\n", "utf-8")
    found = diagnose(log, rules=rules)
    shown = earned.shown(found.case, [])
    assert not any(name.startswith("gpu-out-of-memory/") for name in shown["rows"])
    assert not shown["methods"]


@pytest.mark.parametrize("kind", ["rows", "facts", "methods"])
def test_what_is_claimed_of_an_incident_is_true(kind: str, rules: RuleSet) -> None:
    logs = {
        f"{folder.name}/{case.id}": case.log
        for folder in (ROOT / "corpus" / "recorded", ROOT / "corpus" / "written")
        for case in cases.read(folder)
    }
    tried = 0
    for name, incidents in sorted(claims()[kind].items())[::EVERY]:
        for one in incidents:
            if one in logs:
                found = diagnose(logs[one], rules=rules)
                found.to_dict()
                assert name in earned.shown(found.case, [c.weighed for c in found.candidates])[kind], (name, one)
                tried += 1
    assert tried


def test_tests_that_are_claimed_exist() -> None:
    for ids in claims().values():
        for name, shown in ids.items():
            for one in shown:
                if one.startswith("tests/"):
                    path, _, function = one.partition("::")
                    assert f"def {function.rpartition('::')[2]}(" in (ROOT / path).read_text("utf-8"), name
