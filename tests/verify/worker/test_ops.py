"""The table of collectives: its numbers, its closed forms, and every row on real Gloo with what it returns spoilt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.verify.worker import ops
from nccl_triage.verify.worker.ops import OPERATIONS, operation

SOURCE = Path(ops.__file__).parents[3]
SCRIPT = Path(__file__).with_name("ops_world.py")
PEAKS = Path(__file__).with_name("ops_peaks.py")
#: Elements of a rank when the peak is measured: 24 MiB of float32, several pieces of a pattern.
NUMEL = 6 << 20
#: OpTypes with which ProcessGroupNCCL.cpp labels its work (Work.hpp of torch 2.13), and INIT for the group alone.
#: Left out: RECVANYSOURCE (NCCL has none) and _ALLREDUCE_SPARSE (an experimental branch of NCCL only).
PROCESS_GROUP_NCCL = {
    "ALLREDUCE", "ALLREDUCE_COALESCED", "BROADCAST", "REDUCE", "ALLGATHER", "_ALLGATHER_BASE", "ALLGATHER_coalesced",
    "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE", "ALLTOALL", "ALLTOALL_BASE", "SEND", "RECV", "COALESCED", "GATHER", "SCATTER",
    "BARRIER",
}  # fmt: skip
#: Rows that move nothing of which a result could be wrong.
DATALESS = {"BARRIER", "INIT"}
#: Rows whose result only some ranks hold (root 0, pair 0 -> 1); ``idle``: those that notice when nothing was moved.
HOLDERS = {"REDUCE": {0}, "GATHER": {0}, "SEND": {1}, "RECV": {1}}
WORLDS = {2: ("float32", "bfloat16", "int64", "uint8"), 3: ("float32", "float64", "float16", "int8", "int32", "bool")}
SIZES = {2: 96, 3: 97}


def test_all_operations_of_the_process_group_are_there() -> None:
    assert set(OPERATIONS) == PROCESS_GROUP_NCCL | {"INIT"}
    assert len(PROCESS_GROUP_NCCL) == 17
    assert all(name == row.name for name, row in OPERATIONS.items())
    with pytest.raises(KeyError):
        operation("ALLSUM")


@pytest.mark.parametrize(
    ("name", "out", "size", "factor"),
    [
        # NumelOut, S in bytes and bus factor for 1024 float32 on 8 ranks, by doc/PERFORMANCE.md of nccl-tests
        ("ALLREDUCE", 1024, 4096, 1.75),
        ("ALLREDUCE_COALESCED", 1024, 4096, 1.75),
        ("BROADCAST", 1024, 4096, 1.0),
        ("REDUCE", 1024, 4096, 1.0),
        ("_ALLGATHER_BASE", 8192, 32768, 0.875),
        ("ALLGATHER", 8192, 32768, 0.875),
        ("ALLGATHER_coalesced", 8192, 32768, 0.875),
        ("_REDUCE_SCATTER_BASE", 128, 4096, 0.875),
        ("REDUCE_SCATTER", 128, 4096, 0.875),
        ("ALLTOALL_BASE", 1024, 4096, 0.875),
        ("ALLTOALL", 1024, 4096, 0.875),
        ("SEND", 1024, 4096, 1.0),
        ("RECV", 1024, 4096, 1.0),
        ("COALESCED", 1024, 4096, 1.0),
        ("GATHER", 8192, 32768, 0.875),
        ("SCATTER", 8192, 32768, 0.875),
        ("BARRIER", 1024, 0, 1.0),
        ("INIT", 1024, 0, 1.0),
    ],
)
def test_sizes_and_bus_bandwidth(name: str, out: int, size: int, factor: float) -> None:
    row = operation(name)
    assert row.numel_out(1024, 8) == out
    assert row.bytes(1024, 8, 4) == size
    assert row.bus_factor(8) == pytest.approx(factor)


def test_two_ranks_and_one() -> None:
    assert operation("ALLREDUCE").bus_factor(2) == 1.0
    assert operation("_ALLGATHER_BASE").bus_factor(2) == 0.5
    assert operation("ALLREDUCE").bus_factor(1) == 0.0
    assert operation("_REDUCE_SCATTER_BASE").numel_out(1, 8) == 1


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - DATALESS))
@pytest.mark.parametrize("world", [1, 2, 8, 512])
def test_what_fits_is_the_largest_that_fits(name: str, world: int) -> None:
    row = operation(name)
    assert row.memory(1000, world, 4) >= 1000 * 4
    for room in (1 << 20, 3 << 30, 80 << 30):
        found = row.fitting(1 << 40, world, 4, room)
        if found > 1:
            assert row.memory(found, world, 4) <= room
        assert row.memory(found + 1, world, 4) > room
        assert row.fitting(found // 2 or 1, world, 4, room) == (found // 2 or 1), "what fits is left as it is"
    assert row.fitting(1 << 40, world, 4, 0) == 1


def test_a_rank_holds_no_more_than_is_reckoned(tmp_path: Path) -> None:
    """The peak of each operation's memory on Gloo, in processes of their own."""
    pytest.importorskip("torch", reason="the operations are tried on Gloo")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PEAKS), str(SOURCE), str(tmp_path), "3", str(NUMEL)],
        stderr=subprocess.PIPE,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        timeout=200,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    for name in set(OPERATIONS) - DATALESS:
        peak = max(json.loads(path.read_text()) for path in tmp_path.glob(f"{name}-*.json"))
        reckoned = operation(name).memory(NUMEL, 3, 4)
        assert peak <= reckoned, name
        assert reckoned <= 1.8 * peak + (16 << 20), f"{name} could be larger"


def test_only_what_waits_for_all_is_compared_in_time() -> None:
    waiting = {name for name, row in OPERATIONS.items() if row.symmetric}
    assert {"ALLREDUCE", "BARRIER", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "ALLTOALL"} <= waiting
    assert not waiting & {"BROADCAST", "REDUCE", "SEND", "RECV", "GATHER", "SCATTER", "INIT"}


def test_every_operation_on_gloo(tmp_path: Path) -> None:
    """A right result is right, one spoilt element is one wrong element, and what was not moved is noticed."""
    pytest.importorskip("torch", reason="the operations are tried on Gloo")
    worlds = [{"world": world, "sizes": [SIZES[world], 1], "dtypes": WORLDS[world]} for world in WORLDS]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), str(SOURCE), str(tmp_path), json.dumps(worlds)],
        stderr=subprocess.PIPE,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        timeout=100,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    for path in sorted(tmp_path.glob("world-*.json")):
        _, world, _, rank = path.stem.split("-")
        told = json.loads(path.read_text())
        assert len(told) == len(OPERATIONS) * (len(WORLDS[int(world)]) + 1)
        for case, found in told.items():
            name, dtype, numel = case.split()
            check(found, f"{case}, {path.stem}: {found}", name, dtype, int(numel), int(rank))
    assert len(list(tmp_path.glob("world-*.json"))) == sum(WORLDS)


def check(told: dict[str, Any], case: str, name: str, dtype: str, numel: int, rank: int) -> None:
    """Check what one rank tells of one operation."""
    assert "refused" not in told, case
    assert told["right"] == [0, 0, 0], case
    if name in DATALESS or rank not in HOLDERS.get(name, {rank}):
        return
    assert set(told["flipped"]) == {1}, case
    if numel > 1 and not (name == "BROADCAST" and rank == 0):
        # Two iterations make no difference to truth values that are only moved.
        assert told["idle"] > 0 and min(told["stale"][: 1 if dtype == "bool" else 2]) > 0, case


def test_a_table_without_torch() -> None:
    """The planner reads it: it must not import what it describes."""
    program = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); import nccl_triage.verify.worker.ops; print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == "False"
