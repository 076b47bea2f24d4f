"""A real job of Gloo that hangs: its processes dump their own stacks, and the one they wait for is named."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nccl_triage import diagnose

#: Rank 1 never gets its third batch; each rank writes where it stands to standard error, every second.
JOB = """
import faulthandler, os, sys, time
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        while dist.get_rank() == 1 and index > 1:
            time.sleep(3600)
        return torch.ones(4)

def train_step(batch):
    dist.all_reduce(batch)

def main():
    faulthandler.dump_traceback_later(1, repeat=True)
    dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=3)
    for batch in DataLoader(Samples(), batch_size=1):
        train_step(batch)

main()
"""
#: Seconds until a job that does not hang as it should counts as failed.
PATIENCE = 120.0


@contextlib.contextmanager
def job(folder: Path) -> Iterator[list[Path]]:
    """Run the job; gives the files of its ranks."""
    script = folder / "job.py"
    script.write_text(JOB)
    logs = [folder / "logs" / f"rank{rank}.log" for rank in range(3)]
    logs[0].parent.mkdir()
    variables = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    with contextlib.ExitStack() as stack:
        for rank, log in enumerate(logs):
            command = [sys.executable, str(script), str(folder / "store"), str(rank)]
            out = stack.enter_context(log.open("wb"))
            process = stack.enter_context(subprocess.Popen(command, stdout=out, stderr=out, env=variables))
            stack.callback(process.kill)
        yield logs


def stands(log: Path, function: str) -> bool:
    """Tell whether the last whole dump of a rank has a frame."""
    dumps = log.read_text("utf-8", "replace").split("Timeout (")
    return len(dumps) > 2 and f" in {function}\n" in dumps[-2]


def test_the_rank_that_the_others_wait_for_is_named_by_their_own_dumps(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with job(tmp_path) as logs:
        deadline = time.monotonic() + PATIENCE
        wanted = ("all_reduce", "__getitem__", "all_reduce")
        while not all(stands(log, function) for log, function in zip(logs, wanted, strict=True)):
            assert time.monotonic() < deadline, [log.read_text("utf-8", "replace")[-2000:] for log in logs]
            time.sleep(0.2)
    diagnosis = diagnose(tmp_path / "logs")
    best = diagnosis.candidates[0]
    assert best.id == "data-pipeline-failure"
    assert [culprit.rank for culprit in best.culprits] == [1]
    assert "__getitem__ (" in best.culprits[0].why["en"]
    (note,) = [note["en"] for note in diagnosis.notes if "dumped processes are" in note["en"]]
    assert "2 (rank 0, 2): all_reduce (torch/distributed/distributed_c10d.py:" in note
