"""A real Ray job that hangs: its workers are found on the nodes or by the driver, and named by the ranks they gave themselves."""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nccl_triage.cli import cli
from tests.hang.hanging import wait_for
from tests.raylets import MARKS

pytestmark = [
    *MARKS,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]
WORLD = 3


class Trainer:
    """A rank whose job hangs at its third step: rank 1 is in a function of its own."""

    def __init__(self, rank: int, port: int, folder: str) -> None:
        self.rank, self.folder = rank, folder
        self.address = f"tcp://127.0.0.1:{port}"

    def pid(self) -> int:
        """Return the process of this worker."""
        return os.getpid()

    def fit(self) -> None:
        """Train until it hangs."""
        import torch
        import torch.distributed as dist

        os.environ.update(RANK=str(self.rank), WORLD_SIZE=str(WORLD))  # as Ray Train does
        dist.init_process_group("gloo", init_method=self.address, rank=self.rank, world_size=WORLD)
        for step in range(3):
            if step == 2:
                Path(self.folder, f"ready.{self.rank}").touch()
                self.export_report()
            dist.all_reduce(torch.ones(4))
            print(f"step {step} loss 1.0", flush=True)

    def export_report(self) -> None:
        """Do what needs no other rank, if this is rank 1."""
        import time

        if self.rank == 1:
            time.sleep(600)


def test_the_worker_that_is_elsewhere_is_named(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray: Any = importlib.import_module("ray")
    monkeypatch.chdir(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray.init(address=cluster.address, log_to_driver=False, logging_level="CRITICAL")
    try:
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        actor = ray.remote(num_cpus=0)(Trainer)
        workers = [actor.remote(rank, port, str(tmp_path)) for rank in range(WORLD)]
        pids = ray.get([worker.pid.remote() for worker in workers])
        for worker in workers:
            worker.fit.remote()
        wait_for(lambda: len(list(tmp_path.glob("ready.*"))) == WORLD, "the job hangs")
        words = ["hang", "--ray-address", cluster.address, "--wait", "0.5", "--out", "evidence"]
        result = CliRunner().invoke(cli, words, catch_exceptions=False)
        words = ["hang", "--pid", str(os.getpid()), "--wait", "0", "--out", "driven"]
        driven = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    finally:
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        ray.shutdown()
    assert result.exit_code == 0, result.output
    made = json.loads((tmp_path / "evidence/hang.json").read_text("utf-8"))
    assert made["job"].startswith("Ray session_")
    # Both nodes are on this host, and answer for the same processes: they count once.
    assert [sorted(one["pid"] for one in host["ranks"]) for host in made["hosts"]] == [sorted(pids)]
    ranks = {one["rank"]: one["pid"] for host in made["hosts"] for one in host["ranks"]}
    assert ranks == dict(enumerate(pids))
    assert driven.exit_code == 0, driven.output
    [host] = json.loads((tmp_path / "driven/hang.json").read_text("utf-8"))["hosts"]
    assert {one["rank"]: one["pid"] for one in host["ranks"]} == ranks
    names = {path.name for path in (tmp_path / "evidence").rglob("*") if path.is_file()}
    assert all(any(name.endswith(f"-{pid}.out") for name in names) for pid in pids)
    first, second = result.output[result.output.index("nccl-triage: Likely") :].splitlines()[:2]
    assert first.startswith("nccl-triage: Likely: Rank 1 on ")
    assert "is in Trainer.export_report (" in first and "2 others wait" in first
    assert "root cause: rank-divergence" in second and f"pid {pids[1]}" in second
