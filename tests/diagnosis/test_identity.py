"""How many ranks the job has, where no line says it outright."""

from __future__ import annotations

import pytest

from nccl_triage.diagnosis.case import Case
from nccl_triage.engine.schema import RuleSet
from scan_helpers import diagnose_text, scan_text

GATHER = (
    "[E ProcessGroupNCCL.cpp:474] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=46175, "
    "OpType={op}, NumelIn={n}, NumelOut={out}, Timeout(ms)=1800000) ran for 1800014 milliseconds before timing out.\n"
)


def gathers(ranks: range | list[int], size: int, op: str = "_ALLGATHER_BASE") -> str:
    return "".join(GATHER.format(r=rank, op=op, n=1000, out=1000 * size) for rank in ranks)


def world(text: str, rules: RuleSet) -> int | None:
    return Case(scan_text(text, rules), rules).identity.world_size


def test_a_gather_that_nearly_all_ranks_time_out_in_tells_the_world_and_who_is_silent(rules: RuleSet) -> None:
    text = gathers([rank for rank in range(64) if rank != 39], 64)
    assert world(text, rules) == 64
    found = diagnose_text(text, rules).to_dict()
    assert [c["rank"] for c in found["diagnoses"][0]["culprits"]] == [39]
    assert next(r for r in found["job"]["ranks"] if r["rank"] == 39)["state"] in ("root", "missing")


@pytest.mark.parametrize(
    "text",
    [
        gathers(range(3), 4),  # an excerpt of three lines
        gathers(range(10), 64),  # too few of the ranks to say that the others are silent
        gathers(range(8, 16), 8),  # a subgroup: its members have higher ranks
        gathers(range(8), 8, op="ALLREDUCE"),
    ],
)
def test_what_does_not_tell_the_world(text: str, rules: RuleSet) -> None:
    assert world(text, rules) is None
