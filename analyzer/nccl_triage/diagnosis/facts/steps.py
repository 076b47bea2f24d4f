"""What the numbers of the steps say about ranks (``nccl_triage.steps`` makes the events)."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact


@fact(
    "pace.slow_ranks",
    "ranks whose steps took longer than those of their peers, again and again",
    blames=("its steps took longer than those of the others, again and again", "它的每步耗时一直比其他 rank 长"),
)
def _slow(case: Case) -> Fact | None:
    found = case.of("steps.slow_rank")
    ranks = case.ranks(found)
    return Fact(ranks, found[:3]) if ranks else None
