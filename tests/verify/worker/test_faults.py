"""Faults on purpose: whose they are, and that a misspelt one does not pass for a healthy rank."""

from __future__ import annotations

import pytest

from corpus.verifier.kinds import KINDS
from nccl_triage.verify.worker import faults

LATE = {"name": "late", "seconds": 1.5}


def test_a_fault_stays_with_its_rank_of_the_whole_job() -> None:
    spec = {"slots": [0, 5], "faults": {"5": LATE}}
    assert [faults.of(spec, rank).name for rank in (0, 1)] == ["", "late"]
    assert faults.of(spec, 1).seconds == 1.5
    assert faults.of({}, 0).name == ""


def test_a_name_that_no_fault_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no fault named 'lat'"):
        faults.of({"faults": {"0": {"name": "lat"}}}, 0)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_proof_makes_faults_that_exist(kind) -> None:
    for slot in range(kind.world):
        assert faults.of({"faults": kind.faults}, slot).name in ("", *faults.MEANINGS)
    assert {int(slot) for slot in kind.faults} == ({2} if kind.faults else set())
