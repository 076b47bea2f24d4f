"""Logs read on the nodes of a real Ray cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose
from nccl_triage.errors import InputError, UsageError
from nccl_triage.execution.cluster.engine import RayEngine
from tests.raylets import MARKS, NODE, wait_for

pytestmark = MARKS

LOGS = Path(__file__).parents[3] / "corpus" / "written" / "logs"
OOM = "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
STEP = "step {step}/100 loss 2.5\n"


def document(*paths: str | Path, **options: Any) -> dict[str, Any]:
    found = diagnose([str(path) for path in paths], **options).to_dict()
    del found["timing"]
    return found


def log(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(STEP.format(step=step) for step in range(50)) + "".join(lines))
    return path


@contextlib.contextmanager
def third_node(cluster: Any) -> Iterator[tuple[Any, str]]:
    """A further raylet and its id."""
    node = cluster.add_node(**NODE)
    try:
        yield node, node.node_id
    finally:
        if node in cluster.worker_nodes:
            cluster.remove_node(node, allow_graceful=False)
        wait_for(lambda: living_nodes() == 2, "Ray notices")


def ids(cluster: Any) -> list[str]:
    return [node.node_id for node in (cluster.head_node, *cluster.worker_nodes)]


@pytest.fixture(scope="module", autouse=True)
def joined(cluster: Any) -> Iterator[Any]:
    """Ray as a driver has it that joined the cluster for its own purposes."""
    import ray

    ray.init(address=cluster.address, logging_level="CRITICAL", log_to_driver=False)
    yield ray
    assert ray.is_initialized()
    ray.shutdown()


def living_nodes() -> int:
    import ray

    return sum(node["Alive"] for node in ray.nodes())


def living_workers() -> int:
    """The actors of ours that Ray does not call dead."""
    import ray

    told = ray._private.state.actors().values()
    return sum(actor["ActorClassName"] == "Service" and actor["State"] != "DEAD" for actor in told)


def test_a_shared_folder_gives_what_this_machine_alone_finds(cluster: Any, tmp_path: Path) -> None:
    paths = sorted(LOGS.glob("S00*.log"))
    here = document(*paths)
    told: list[tuple[int, int | None]] = []
    engine = RayEngine(cluster.address, jobs=2)
    assert document(*paths, engine=engine, progress=lambda done, total: told.append((done, total))) == here
    assert here["excerpts"]
    size = sum(path.stat().st_size for path in paths)
    assert told[-1] == (size, size)
    wait_for(lambda: living_workers() == 0, "no worker is left")


def test_each_node_reads_its_own_files_and_what_several_see_is_read_once(cluster: Any, tmp_path: Path) -> None:
    first, second = ids(cluster)
    log(tmp_path / "a" / "rank0.log", OOM.format(rank=3))
    log(tmp_path / "b" / "rank0.log")
    found = document(f"node:{first}{tmp_path}/a", f"node:{second}{tmp_path}/b/*.log", engine=RayEngine(cluster.address))
    names, paths = zip(*(one["path"].split(":") for one in found["inputs"]), strict=True)
    assert sorted(paths) == [f"{tmp_path}/a/rank0.log", f"{tmp_path}/b/rank0.log"]
    host = min(names)
    assert sorted(names) == [host, f"{host}#2"]
    assert found["diagnoses"][0]["cause"] == "gpu-out-of-memory"
    assert found["diagnoses"][0]["culprits"][0]["host"] == host
    assert any("OutOfMemory" in line for line in found["excerpts"][0]["lines"])
    both = document(f"node:*{tmp_path}/*/*.log", engine=RayEngine(cluster.address))
    assert [one["path"] for one in both["inputs"]] == [f"{host}:{tmp_path}/{name}/rank0.log" for name in "ab"]
    assert both["notes"] == found["notes"]


def when(reached: Callable[[int, int | None], bool], act: Callable[[], None]) -> Callable[[int, int | None], None]:
    """A progress callback that does something once, in a thread: the scan goes on meanwhile."""
    threads: list[threading.Thread] = []

    def watch(done: int, total: int | None) -> None:
        if not threads and reached(done, total):
            threads.append(threading.Thread(target=act))
            threads[0].start()

    return watch


def test_nodes_that_die_or_hang_in_the_scan_are_told_and_the_rest_is_diagnosed(cluster: Any, tmp_path: Path) -> None:
    first, second = ids(cluster)
    log(tmp_path / "a" / "job.log", OOM.format(rank=3))
    for name in "bc":
        log(tmp_path / name / "job.log")
        os.mkfifo(tmp_path / name / "pipe")  # nobody writes: whoever reads it hangs
    with third_node(cluster) as (node, victim):
        kill = when(lambda done, total: done == total, lambda: cluster.remove_node(node, allow_graceful=False))
        paths = [f"node:{first}{tmp_path}/a"]
        paths += [
            f"node:{id_}{tmp_path}/{name}/{file}"
            for id_, name in ((victim, "b"), (second, "c"))
            for file in ("job.log", "pipe")
        ]
        found = document(*paths, engine=RayEngine(cluster.address, timeout=15.0), progress=kill)
    assert found["diagnoses"][0]["cause"] == "gpu-out-of-memory"
    hangs, dead = sorted(note for note in found["notes"] if "of node" in note)
    # What the node that hangs had read before still counts.
    assert hangs.startswith("1 of 2 files of node ")
    assert hangs.endswith("no news for 15 s")
    assert "only seem silent" in dead
    assert dead.endswith("died or cannot be reached")
    assert sorted(Path(one["path"]).parent.name for one in found["inputs"]) == ["a", "c"]
    assert "缺少节点" in " ".join(found["notes_zh"])
    wait_for(lambda: living_workers() == 0, "no worker is left")


def test_others_read_the_share_of_a_node_that_dies(cluster: Any, tmp_path: Path) -> None:
    paths = sorted(LOGS.glob("S0*.log"))[:30]
    here = document(*paths)
    with third_node(cluster) as (node, _):
        kill = when(lambda *_: True, lambda: cluster.remove_node(node, allow_graceful=False))
        found = document(*paths, engine=RayEngine(cluster.address), progress=kill)
    found["notes"] = [note for note in found["notes"] if "was lost during the scan" not in note]
    found["notes_zh"] = [note for note in found["notes_zh"] if "在扫描期间失联" not in note]
    assert found == here


class Reading:
    """A run over the cluster in which a worker has begun to read a pipe."""

    def __init__(self, cluster: Any, pipe: Path, *paths: str) -> None:
        os.mkfifo(pipe)
        words = ["--engine", "ray", "--ray-address", cluster.address, "--no-progress", "--format", "json"]
        command = [sys.executable, "-m", "nccl_triage", *paths, *words]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._pipe = pipe
        self._writers: list[int] = []

    def __enter__(self) -> Reading:
        wait_for(self._read, "the worker reads the pipe", 60.0)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        for writer in self._writers:
            os.close(writer)

    def _read(self) -> bool:
        with contextlib.suppress(OSError):
            self._writers.append(os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(self._writers)

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._writers[0], text.encode())

    def ended(self, number: signal.Signals) -> tuple[bytes, bytes]:
        self.process.send_signal(number)
        return self.process.communicate(timeout=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_scan_that_has_read_nothing_leaves_nothing(
    cluster: Any, tmp_path: Path, number: signal.Signals
) -> None:
    _, second = ids(cluster)
    with Reading(cluster, tmp_path / "pipe", f"node:{second}{tmp_path}/pipe") as reading:
        output, errors = reading.ended(number)
    assert output == b""
    told = b"interrupted\n" if number == signal.SIGINT else b"ended by SIGTERM\n"
    assert (reading.process.returncode, errors) == (128 + number, told)
    wait_for(lambda: living_workers() == 0, "no worker is left")


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_nodes_had_read_until_a_signal_is_diagnosed(cluster: Any, tmp_path: Path, goes_on: bool) -> None:
    first, second = ids(cluster)
    job = log(tmp_path / "a" / "job.log", OOM.format(rank=3))
    (tmp_path / "b").mkdir()
    pipe = tmp_path / "b" / "pipe"
    paths = (f"node:{first}{tmp_path}/a", f"node:{second}{job}", f"node:{second}{pipe}")
    with Reading(cluster, pipe, *paths) as reading:
        ends = threading.Event()

        def write() -> None:
            while goes_on and not ends.wait(0.05):
                reading.write(STEP.format(step=51))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            output, errors = reading.ended(signal.SIGINT)
        finally:
            ends.set()
            writer.join()
    assert reading.process.returncode == 130
    assert errors.startswith(b"nccl-triage: interrupted; the diagnosis of what was read until then:\n")
    found = json.loads(output)
    assert found["headline"].startswith("PARTIAL")
    assert found["interrupted"]["signal"] == "SIGINT"
    assert found["interrupted"]["bytes_read"] >= job.stat().st_size
    assert found["diagnoses"][0]["cause"] == "gpu-out-of-memory"
    assert found["diagnoses"][0]["culprits"][0]["rank"] == 3
    # Whoever reads on comes to an end at once; a read that hangs is given up.
    stopped = [Path(one["path"]).name for one in found["inputs"] if one.get("interrupted")]
    lost = [note for note in found["notes"] if "no news for 3 s" in note]
    assert (stopped, len(lost)) == ((["pipe"], 0) if goes_on else ([], 1))
    wait_for(lambda: living_workers() == 0, "no worker is left")


def test_names_and_paths_that_do_not_exist(cluster: Any, tmp_path: Path) -> None:
    engine = RayEngine(cluster.address)
    with pytest.raises(UsageError, match="no node of the Ray cluster is called elsewhere"):
        diagnose(["node:elsewhere/x.log"], engine=engine)
    with pytest.raises(InputError) as caught:
        diagnose([f"node:*{tmp_path}/*.log"], engine=engine)
    assert "no file matches" in str(caught.value.cause)
    assert caught.value.cause == caught.value.in_language("en")[1]
    log(tmp_path / "job.log")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is a pipe, which no other machine can read"):
        diagnose([tmp_path / "job.log", tmp_path / "pipe"], engine=engine)
