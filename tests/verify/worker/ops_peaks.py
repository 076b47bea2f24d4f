"""Run each operation on a Gloo group of this process's children and write down the peak of each rank's memory.

``python ops_peaks.py FOLDER OUT WORLD NUMEL``: FOLDER is where nccl_triage lies, OUT takes NAME-R.json with the bytes that
rank R held beyond what it held before, for NUMEL elements of float32.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, sys.argv[1])

import torch
import torch.distributed as dist

from nccl_triage.verify.worker.ops import OPERATIONS, Operation
from nccl_triage.verify.worker.payload import Call


def status(name: str) -> int:
    """Return a value of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def go(row: Operation, call: Call, iterations: int) -> None:
    """Run an operation with its checks."""
    made = row.prepare(call)
    for iteration in range(iterations):
        made.fill(iteration)
        made.issue()
        assert made.wrong(iteration) == 0


def peak(row: Operation, rank: int, world: int, numel: int, store: Path) -> int:
    """Return the most bytes that a run takes, after a small one has loaded what is needed."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    small, large = (Call(torch, dist, rank, world, n, torch.float32, torch.device("cpu")) for n in (64, numel))
    go(row, small, 2)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = status("VmRSS")
    go(row, large, 1)
    dist.barrier()
    return status("VmHWM") - before


def main() -> int:
    """Try every operation that moves data, each in new processes; return the worst exit code."""
    out, world, numel = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    worst = 0
    for name, row in OPERATIONS.items():
        if row.size == "none":
            continue
        pids = []
        for rank in range(world):
            pid = os.fork()
            if not pid:
                code = 1
                try:
                    found = peak(row, rank, world, numel, out / f"store-{name}")
                    (out / f"{name}-{rank}.json").write_text(json.dumps(found))
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            pids.append(pid)
        worst = max([worst, *(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) for pid in pids)])
    return worst


if __name__ == "__main__":
    sys.exit(main())
