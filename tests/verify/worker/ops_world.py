"""Run every operation on a real Gloo group of this process's children, and spoil what it returns: one JSON line a rank.

``python ops_world.py FOLDER OUT WORLDS``: FOLDER is where nccl_triage lies, OUT takes world-W-rank-R.json, and WORLDS is
a JSON list of {"world": ranks, "sizes": [elements], "dtypes": [names]}, each a group of its own; the second size is
tried with the first dtype only.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])

import torch
import torch.distributed as dist

from nccl_triage.verify.worker.ops import OPERATIONS, Operation
from nccl_triage.verify.worker.payload import Call

#: Types that are moved as bits.
BITS = (torch.float8_e4m3fn, torch.float8_e5m2)


class Idle:
    """torch.distributed whose collectives do nothing."""

    def __getattr__(self, name: str) -> Any:
        if name == "distributed_c10d":
            return self
        if name == "_get_default_group":
            return lambda: self
        found = getattr(dist, name)
        if isinstance(found, type) or not callable(found) or name in ("isend", "irecv"):
            return found
        return lambda *args, **kwargs: [] if name == "batch_isend_irecv" else self

    def allgather_into_tensor_coalesced(self, *args: Any) -> Any:
        return self

    def wait(self) -> None:
        pass


def outputs(wrong: Callable[[int], int]) -> list[Any]:
    """Return the tensors that an operation writes to: those that its check looks at."""
    held = [cell.cell_contents for cell in wrong.__closure__ or ()]
    flat = [item for value in held for item in (value if isinstance(value, list) else [value])]
    return [item for item in flat if isinstance(item, torch.Tensor)]


def spoil(tensor: Any, index: int) -> None:
    """Change one element as a flipped bit does."""
    if tensor.dtype in BITS:
        tensor = tensor.view(torch.uint8)
    value = tensor[index].item()
    tensor[index] = (not value) if tensor.dtype == torch.bool else value + 1


def spoilt(wrong: Callable[[int], int]) -> list[int]:
    """Return how many elements count as wrong for each of some positions that were spoilt alone."""
    found = []
    for tensor in outputs(wrong):
        for index in sorted({0, tensor.numel() // 2, tensor.numel() - 1}):
            kept = tensor.clone()
            spoil(tensor, index)
            found.append(wrong(0))
            tensor.copy_(kept)
    return found


def try_one(row: Operation, rank: int, world: int, numel: int, dtype: Any) -> dict[str, Any]:
    """Return what is counted as wrong after a real run, after one element was spoilt, and when nothing was moved."""
    call = Call(torch, dist, rank, world, numel, dtype, torch.device("cpu"))
    made = row.prepare(call)
    right = []
    for iteration in (1, 2, 0):
        made.fill(iteration)
        made.issue()
        right.append(made.wrong(iteration))
    flipped = spoilt(made.wrong)
    call.dist = Idle()
    stale = []
    for iteration in (1, 2):  # what the last real run left behind is no result of these
        made.fill(iteration)
        made.issue()
        stale.append(made.wrong(iteration))
    fresh = row.prepare(Call(torch, Idle(), rank, world, numel, dtype, torch.device("cpu")))
    fresh.fill(0)
    fresh.issue()
    return {"right": right, "flipped": flipped, "stale": stale, "idle": fresh.wrong(0)}


def run(rank: int, world: int, numels: list[int], dtypes: list[str], store: str) -> dict[str, Any]:
    """Return the results of one rank by operation, dtype and size; what the backend refuses is told as such."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=20)
    )
    found: dict[str, Any] = {}
    cases = itertools.product(OPERATIONS.items(), [(dtypes[0], numels[1]), *((dtype, numels[0]) for dtype in dtypes)])
    for (name, row), (dtype, numel) in cases:
        try:
            outcome = try_one(row, rank, world, numel, getattr(torch, dtype))
        except RuntimeError as error:
            outcome = {"refused": str(error)[:200]}
        found[f"{name} {dtype} {numel}"] = outcome
    dist.barrier()
    dist.destroy_process_group()
    return found


def fork(rank: int, wanted: dict[str, Any], out: Path) -> int:
    """Start one rank; its exit code tells whether it came to its end."""
    pid = os.fork()
    if pid:
        return pid
    code, world = 1, wanted["world"]
    try:
        found = run(rank, world, wanted["sizes"], wanted["dtypes"], f"{out}/store-{world}")
        (out / f"world-{world}-rank-{rank}.json").write_text(json.dumps(found))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> int:
    """Run the groups one after the other; return the worst exit code."""
    worst = 0
    for wanted in json.loads(sys.argv[3]):
        pids = [fork(rank, wanted, Path(sys.argv[2])) for rank in range(wanted["world"])]
        worst = max([worst, *(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)], key=abs)
    return worst


if __name__ == "__main__":
    sys.exit(main())
