"""A GPU that stands still while its host runs on: all issue everything, and only the counters tell the ranks apart."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.api import diagnose
from nccl_triage.engine.schema import RuleSet
from nccl_triage.recorder.compare import RecorderComparison, compare
from tests.recorder import build

#: Sixteen ranks: pairs share tensors, quads share experts. Calls issued by then in each group.
WORLD, ISSUED = 16, {"pair": 42_830, "quad": 20_545}


def members(rank: int, group: str) -> list[int]:
    size = 2 if group == "pair" else 4
    first = rank - rank % size
    return list(range(first, first + size))


def dumps(stuck: dict[int, int], kept: int = 6, op: str = "all_to_all") -> dict[int, dict[str, Any]]:
    """Return dumps of a job in which ``stuck`` ranks finished that many calls less; all others wait for the last ones."""
    made = {}
    for rank in range(WORLD):
        config: dict[str, Any] = {}
        status: dict[str, Any] = {}
        entries = []
        for number, group in enumerate(ISSUED):
            own = members(rank, group)
            name = str(10 + 20 * number + own[0])
            config[name] = {"name": name, "desc": group, "ranks": str(own)}
            done = ISSUED[group] - 2 - stuck.get(rank, 0)
            status[name] = {
                "last_enqueued_collective": ISSUED[group],
                "last_started_collective": -1,
                "last_completed_collective": done,
            }
            for record in range(done + 1, min(done + kept, ISSUED[group]) + 1):
                entries.append(build.entry(record, record, (op, 8, "scheduled"), name, group))
        made[rank] = {"version": "2.10", "pg_config": config, "pg_status": status, "entries": entries}
    return made


def unfinished(found: RecorderComparison) -> set[int]:
    return {rank for finding in found.of("unfinished") for rank in finding.ranks}


@pytest.mark.parametrize("stuck", [{12: 12, 14: 12}, {9: 12, 14: 12}, {0: 3}, {5: 40}])
def test_who_has_not_finished_what_its_group_finished(stuck: dict[int, int]) -> None:
    found = compare(build.table(dumps(stuck)))
    assert unfinished(found) == set(stuck)
    for finding in found.of("unfinished"):
        assert finding.others and finding.lines[0].rank in stuck
        assert {line.rank for line in finding.lines} - set(stuck), "both sides are shown"


def test_nobody_where_all_finished_as_much_or_a_dump_was_one_call_earlier() -> None:
    assert not unfinished(compare(build.table(dumps({}))))
    assert not unfinished(compare(build.table(dumps({3: 1}))))


def test_nobody_where_most_are_behind_or_the_operation_has_a_root() -> None:
    assert not unfinished(compare(build.table(dumps(dict.fromkeys(range(0, WORLD, 2), 9)))))
    assert not unfinished(compare(build.table(dumps({12: 12}, op="broadcast"))))


def test_the_diagnosis_names_the_ranks_and_never_another_path(tmp_path: Path, rules: RuleSet) -> None:
    for rank, document in dumps({9: 12, 14: 12}).items():
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document, 2))
    found = diagnose(tmp_path, rules=rules).to_dict(similar=False)
    first = found["diagnoses"][0]
    assert first["cause"] == "gpu-hardware-fault" and first["status"] == "possible"
    assert {culprit["rank"] for culprit in first["culprits"]} == {9, 14}
    assert "rank-divergence" not in {one["cause"] for one in found["diagnoses"] if one["confidence"] >= 0.2}
