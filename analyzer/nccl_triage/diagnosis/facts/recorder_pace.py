"""Flight recorder dumps: ranks for which the others wait in call after call."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.diagnosis.flight_recorder import event
from nccl_triage.recorder.lines import group_name
from nccl_triage.recorder.pace import Slow, slow_ranks


@fact("recorder.pace", "what the dumps show of ranks for which the others wait in call after call")
def _pace(case: Case) -> Fact | None:
    table = case.observations.recorder
    if not table:
        return None
    hosts = {rank: info.host for rank, info in case.identity.ranks.items() if info.host}
    found = slow_ranks(table, hosts)
    if not found:
        return None
    lines = [line for slow in found if (line := table.standings[(slow.group, slow.rank)].last) is not None]
    return Fact(found, [event(line) for line in lines[:4]])


def slow(case: Case) -> list[Slow]:
    """Return what the dumps show of slow ranks."""
    found: list[Slow] = case.value("recorder.pace", [])
    return found


@fact(
    "recorder.slow_ranks",
    "ranks for which the others wait in call after call, by the times in the dumps",
    blames=(
        "by the flight recorders the others waited for it in call after call",
        "flight recorder 显示其他 rank 一次又一次地等待它",
    ),
)
def _ranks(case: Case) -> Fact | None:
    found = case.fact("recorder.pace")
    return Fact([one.rank for one in slow(case)], found.events) if found is not None else None


@fact(
    "recorder.slow_surely",
    "the same, where calls were late themselves: measured on the GPU, or by a back end that waits for each call",
    blames=(
        "by the flight recorders the others waited for it in call after call",
        "flight recorder 显示其他 rank 一次又一次地等待它",
    ),
)
def _surely(case: Case) -> Fact | None:
    found = case.fact("recorder.pace")
    ranks = [one.rank for one in slow(case) if one.how == "gpu" or _blocks(case, one)]
    return Fact(ranks, found.events) if ranks and found is not None else None


def _blocks(case: Case, slow: Slow) -> bool:
    """Tell whether a call ends before the next one is issued: with NCCL, ranks may issue calls far ahead of their GPU."""
    return case.observations.recorder.standings[(slow.group, slow.rank)].backend == "gloo"


@fact("recorder.slow_by", "by how much a slow rank is late, and in how many calls of which group")
def _by(case: Case) -> Fact | None:
    found = slow(case)
    if not found:
        return None
    worst = max(found, key=lambda one: one.seconds)
    name = group_name(worst.group.name, worst.group.desc)
    return Fact(f"{worst.seconds:.2g} s in {worst.times} of {worst.calls} calls of group {name}")
