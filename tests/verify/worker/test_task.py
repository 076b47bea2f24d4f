"""A rank that a launcher started: which it is, where the store is, and that nothing outlives it. torch is not needed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.hosts.probes import host
from nccl_triage.verify.worker import task
from nccl_triage.verify.worker.task import RefusedError, attempt, position
from tests.verify.worker_file import worker_file

RANKS = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
SLURM = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
BATCH_SHELL = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        (RANKS, (3, 1)),
        (SLURM, (2, 0)),
        (OPEN_MPI, (1, 1)),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, (3, 1)),
        ({**BATCH_SHELL, **OPEN_MPI}, (1, 1)),
        ({**SLURM, **RANKS}, (3, 1)),
        ({**SLURM, "RANK": "0", "WORLD_SIZE": "64"}, (2, 0)),
        ({**SLURM, "RANK": "one", "WORLD_SIZE": "4"}, (2, 0)),
    ],
)
def test_the_launcher_that_started_the_process_names_its_rank(
    environment: dict[str, str], wanted: tuple[int, int]
) -> None:
    assert position(environment, world=4, per_host=2) == wanted


@pytest.mark.parametrize("environment", [{}, {"RANK": "0"}, {"RANK": "4", "WORLD_SIZE": "4"}, {**RANKS, "RANK": "-1"}])
def test_no_rank_or_another_world_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(RefusedError):
        position(environment, world=4, per_host=4)


def test_two_starts_of_one_run_are_told_apart() -> None:
    steps = [attempt({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": step}) for step in ("1", "2")]
    assert len({*steps, attempt({"TORCHELASTIC_RUN_ID": "x"}), attempt({})}) == 4


def spec(**changes: Any) -> dict[str, Any]:
    """Return a run of two ranks that only has to start: its ranks are stopped before they come to a collective."""
    stages = ("start", "imported", "device", "store", "group", "entered", "warm", "done", "end")
    return {
        "label": "run-01", "plan": "p", "op": "ALLREDUCE", "numel": 16, "dtype": "float32", "world": 2,
        "backend": "gloo", "device": "cpu", "env": {}, "iterations": 3, "ranks_per_host": 2,
        "store": {"host": "auto", "port": 0}, "store_wait": 0.4, "store_timeout": 5, "timeout": 5,
        "limits": dict.fromkeys(stages, 60), "deadline": 60, **changes,
    }  # fmt: skip


def test_rank_0_tells_the_others_where_the_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "now")
    (tmp_path / "store.json").write_text(json.dumps({"host": "10.0.0.9", "port": 1, "attempt": "before"}))
    with pytest.raises(TimeoutError, match=r"rank 0 did not report within 0\.4 s"):
        task.meet(spec(), 1, tmp_path)
    told = task.meet(spec(), 0, tmp_path)
    assert told["port"] > 0
    assert task.meet(spec(), 1, tmp_path) == told
    assert [path.name for path in tmp_path.iterdir()] == ["store.json"], "it is moved into place at once"


def test_a_store_on_the_loopback_is_not_asked_for(tmp_path: Path) -> None:
    where = {"host": "127.0.0.1", "port": 29500}
    assert task.meet(spec(store=where), 1, tmp_path) == where
    assert task.meet(spec(store={**where, "port": 0}), 0, tmp_path)["host"] == "127.0.0.1"
    assert task.meet(spec(store={"host": "auto", "port": 29500}), 0, tmp_path)["port"] == 29500


def own_addresses() -> list[str]:
    return [entry["address"] for entry in host.interfaces() if not entry["loopback"]]


@pytest.mark.parametrize("name", [socket.gethostname(), socket.gethostname().upper(), *own_addresses()[:1]])
def test_a_store_is_where_the_plan_names_it_if_that_is_this_host(tmp_path: Path, name: str) -> None:
    told = task.meet(spec(store={"host": name, "port": 29500}), 0, tmp_path)
    assert (told["host"], told["port"]) == (name, 29500)
    assert task.meet(spec(store={"host": name, "port": 29500}), 1, tmp_path) == told


@pytest.mark.parametrize(
    "name", ["192.0.2.7", "head", "head.invalid", f"{socket.gethostname()}.evil.example", "-x", ""]
)
def test_a_store_elsewhere_is_neither_resolved_nor_told(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda wanted, *rest: asked.append(wanted) or real(wanted, *rest))
    told = task.meet(spec(store={"host": name, "port": 29500}), 0, tmp_path)
    assert told["host"] in {*own_addresses(), "127.0.0.1"}
    assert task.meet(spec(store={"host": name, "port": 29500}), 1, tmp_path) == told, "the others go where rank 0 is"
    assert set(asked) <= {socket.gethostname()}


def test_the_address_is_that_of_the_named_interface() -> None:
    assert task.address("lo") == ("127.0.0.1", "lo")
    with pytest.raises(LookupError, match="no-such"):
        task.address("no-such")


class Started:
    """A task as a launcher would start it, with what it has written."""

    def __init__(self, folder: Path, given: dict[str, Any], environment: dict[str, str]) -> None:
        (folder / "spec.json").write_text(json.dumps(given))
        worker = worker_file(folder)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "OMPI_", "PMI", "TORCHELASTIC"))}
        for name in RANKS:
            kept.pop(name, None)
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, str(worker), "task", str(folder / "spec.json"), str(folder / "results")],
            env={**kept, **environment},
            stderr=subprocess.PIPE,
            text=True,
        )

    def records(self, rank: int = 0) -> list[dict[str, Any]]:
        path = self.folder / "results" / "run-01" / f"rank-{rank}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def child(self) -> int:
        """Wait until the rank says that it has started and return its number."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for record in self.records():
                if record["stage"] == "start":
                    return int(record["pid"])
            time.sleep(0.01)
        raise AssertionError("the rank did not start")


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start tasks and leave none behind."""
    made: list[Started] = []

    def begin(given: dict[str, Any], **environment: str) -> Started:
        made.append(Started(tmp_path, given, environment))
        return made[-1]

    yield begin
    for each in made:
        each.process.kill()
        each.process.communicate()


FIRST = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}


def test_a_scheduler_that_ends_the_task_ends_its_rank_first(start: Start) -> None:
    begun = start(spec(), **FIRST)
    child = begun.child()
    begun.process.terminate()
    assert begun.process.wait(10) == 0
    end = begun.records()[-1]
    assert (end["stage"], end["killed"], end["code"], end["why"]) == ("exit", True, -9, "stopped by SIGTERM")
    assert gone(child)
    assert not (begun.folder / "results" / "run-01" / "store.json").exists()


def test_a_task_that_is_killed_takes_its_rank_with_it(start: Start) -> None:
    begun = start(spec(), **FIRST)
    child = begun.child()
    begun.process.send_signal(signal.SIGKILL)
    begun.process.wait(10)
    assert gone(child)


def test_the_time_for_a_run_ends_it(start: Start) -> None:
    begun = start(spec(deadline=0.6, limits={}), **FIRST)
    assert begun.process.wait(20) == 0
    end = begun.records()[-1]
    assert (end["killed"], end["why"]) == (True, "the time for this run is up")


def test_a_rank_without_a_store_says_so(start: Start) -> None:
    begun = start(spec(), **{**FIRST, "RANK": "1"})
    assert begun.process.wait(20) == 0
    stages = [record["stage"] for record in begun.records(1)]
    assert stages == ["task", "error"]
    assert "rank 0 did not report" in begun.records(1)[-1]["text"]


def test_a_process_that_is_no_rank_is_refused_with_the_reason(start: Start) -> None:
    for environment, words in (({}, "start this with srun, torchrun or mpirun"), ({**FIRST, "WORLD_SIZE": "3"}, "has 2 ranks")):  # fmt: skip
        begun = start(spec(), **environment)
        _, said = begun.process.communicate(timeout=20)
        assert begun.process.returncode == 2
        assert words in said
    assert not (begun.folder / "results").exists()


def test_a_result_that_cannot_be_written_is_said(start: Start, tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file where the folder should be")
    begun = start(spec(), **FIRST)
    _, said = begun.process.communicate(timeout=20)
    assert begun.process.returncode == 1
    assert "the result of rank 0 cannot be written" in said


@pytest.mark.parametrize(
    ("backend", "local", "told"), [("nccl", "0", True), ("nccl", "1", False), ("gloo", "0", False)]
)
def test_one_rank_of_a_host_tells_of_its_gpus(start: Start, backend: str, local: str, told: bool) -> None:
    begun = start(spec(backend=backend, deadline=0.3, limits={}), **{**FIRST, "LOCAL_RANK": local})
    assert begun.process.wait(20) == 0
    facts = begun.records()[0]["facts"]
    assert ("gpus" in facts) == told
    if told:
        assert {"gpus", "driver", "problem", "torch"} <= facts["gpus"].keys()
