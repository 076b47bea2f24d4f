"""A rank that others wait for again and again is told from one whose clock is wrong."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from corpus.flight.__main__ import HERE
from nccl_triage import diagnose
from nccl_triage.observations.recorder_table import MAX_KEPT, Arrival, RecorderTable, count, pack, unpack
from nccl_triage.recorder.pace import Slow, _late, slow_ranks
from tests.recorder import build

RANKS, STEPS, CALLS = 4, 30, 3
Delay = Callable[[int, int], float]
ONE_HOST = dict.fromkeys(range(RANKS), "node")


def dumps(delay: Delay, clock: Delay, backend: str = "gloo", at_once: int = CALLS) -> dict[int, dict[str, Any]]:
    """Return the dumps of steps of blocking calls: work, then some calls at once; times in seconds by rank and step."""
    random = Random(1)
    made = {rank: build.dump([("all_reduce", 8)] * STEPS * at_once, RANKS) for rank in range(RANKS)}
    now = 0.0
    for step in range(STEPS):
        for call in range(at_once):
            came = {rank: now + (0.2 + delay(rank, step)) * (not call) + random.random() / 1000 for rank in made}
            now = max(came.values()) + 0.002
            for rank, document in made.items():
                entry = document["entries"][step * at_once + call]
                entry["time_created_ns"] += (
                    round((came[rank] + clock(rank, step)) * 1e9) - entry["record_id"] * 1_000_000
                )
                entry["profiling_name"] = f"{backend}:all_reduce"
    return made


def slow(delay: Delay, clock: Delay = lambda rank, step: 0.0, hosts: dict[int, str] | None = None, **how: Any) -> list[Slow]:  # fmt: skip
    return slow_ranks(build.table(dumps(delay, clock, **how)), hosts or {})


def late(rank: int, step: int) -> float:
    return 0.3 * (rank == 2)


def nobody(rank: int, step: int) -> float:
    return 0.0


def apart(rank: int, step: int) -> float:
    """Four hosts, whose clocks differ by seconds."""
    return -7.0 * rank


@pytest.mark.parametrize("clock", [nobody, apart])
def test_who_is_late_after_its_own_work_and_in_time_otherwise(clock: Delay) -> None:
    (found,) = slow(late, clock)
    assert (found.rank, found.how, found.times, found.calls) == (2, "turns", STEPS, STEPS * CALLS)
    assert found.seconds == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize(
    ("delay", "clock"),
    [
        (nobody, apart),
        (nobody, lambda rank, step: 4.0 * (rank == 1 and step > 10)),  # its clock is set
        (nobody, lambda rank, step: 0.02 * step * (rank == 1)),  # its clock runs fast
        (lambda rank, step: 0.3 * (step % RANKS == rank), nobody),  # each in its turn
        (lambda rank, step: 0.3 * (rank == 2 and step % 10 == 9), nobody),  # saves a checkpoint now and then
        (lambda rank, step: 0.01 * (rank == 2), nobody),  # too little to matter
        (lambda rank, step: 0.3 * (rank < 2), nobody),  # half of them
    ],
)
def test_who_is_no_straggler(delay: Delay, clock: Delay) -> None:
    assert slow(delay, clock) == []


def test_what_may_be_a_wrong_clock_is_decided_by_a_clock_that_ranks_share() -> None:
    """One call a step: the rank is late in each of them."""
    assert slow(late, at_once=1) == []
    assert [(one.rank, one.how) for one in slow(late, hosts=ONE_HOST, at_once=1)] == [(2, "host")]


def test_how_long_calls_ran_on_the_gpu_needs_no_clock() -> None:
    made = dumps(nobody, apart)
    for rank, document in made.items():
        for entry in document["entries"]:
            entry["duration_ms"] = 1.5 if rank == 3 else 240.25
    assert [(one.rank, one.how) for one in slow_ranks(build.table(made), {})] == [(3, "gpu")]


def test_only_the_last_calls_are_kept_and_parts_meet_in_any_order() -> None:
    packed = pack([Arrival(seq, seq * 10, -1) for seq in range(200)])
    assert count(packed) == MAX_KEPT and [one.seq for one in unpack(packed)] == list(range(200 - MAX_KEPT, 200))
    parts = [build.table({rank: document}) for rank, document in dumps(late, apart).items()]
    found = []
    for order in (parts, parts[::-1]):
        whole = RecorderTable()
        for part in order:
            whole.absorb(part)
        found.append(slow_ranks(whole, {}))
    assert found[0] == found[1] != []


@pytest.mark.parametrize(("backend", "weight"), [("gloo", "strong"), ("nccl", "weak")])
def test_the_diagnosis_weighs_it(backend: str, weight: str, tmp_path: Path) -> None:
    """With NCCL calls may be issued far ahead of the GPU: what is issued late need not be late there."""
    for rank, document in dumps(late, apart, backend).items():
        if rank != 2:
            last = {**document["entries"][-1], "record_id": 999, "collective_seq_id": 999, "state": "scheduled"}
            document["entries"].append({**last, "retired": False})
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document, 2))
    found = diagnose(tmp_path, model=None).to_dict()
    straggler = next(one for one in found["diagnoses"] if one["cause"] == "straggler")
    assert [one["rank"] for one in straggler["culprits"]] == [2]
    says = [one["weight"] for one in straggler["evidence"] if "0.3 s in 30 of" in one["says"]]
    assert says == [weight] and any("rank 2 repeatedly came later" in note for note in found["notes"])


@pytest.mark.parametrize("odd", [0, 2])
def test_real_processes_one_of_which_works_longer(odd: int) -> None:
    found = diagnose(HERE / "sets" / f"slow-{odd}", model=None).to_dict()
    assert found["diagnoses"][0]["cause"] == "straggler" and found["diagnoses"][0]["culprits"][0]["rank"] == odd


def test_two_of_eight_may_be_slow() -> None:
    behind = {
        rank: [0.4 + rank / 1000 if rank in (3, 6) and not at % 3 else 0.0 for at in range(60)] for rank in range(8)
    }
    assert sorted(_late(behind, 0.05)) == [3, 6]
    assert _late({**behind, 1: behind[6], 2: behind[3]}, 0.05) == {}
