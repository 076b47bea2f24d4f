from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.ingest.layout_conditions import Siblings, strip_compression
from nccl_triage.ingest.layouts import settle
from nccl_triage.observations.store import SourceInfo
from tests.prefix_reading import read_path

WORKER = "0123456789abcdef0123456789abcdef0123456789abcdef01234567"
FIELDS = ("layout", "rank", "local_rank", "host", "pid", "attempt", "stream")


def said(path: str, siblings: list[str] | None = None) -> dict[str, Any]:
    info = read_path(path, Siblings(siblings or []))
    return {name: getattr(info, name) for name in FIELDS if getattr(info, name) is not None}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "logs/none_ab12cd34/attempt_0/3/stderr.log",
            {"layout": "torchrun", "attempt": 0, "local_rank": 3, "stream": "stderr"},
        ),
        (
            "node1/none_ab12cd34/attempt_2/0/stdout.log",
            {"layout": "torchrun", "attempt": 2, "local_rank": 0, "stream": "stdout", "host": "node1"},
        ),
        ("evidence/stack.gpu07.8123", {"layout": "stacks", "host": "gpu07", "pid": 8123}),
        ("stack.train-worker.example.org.91.txt", {"layout": "stacks", "host": "train-worker.example.org", "pid": 91}),
        ("stack.trace.12", {}),
        ("x/attempt_1/7/error.json", {"layout": "torchrun", "attempt": 1, "local_rank": 7}),
        ("x/attempt_1/filtered_stderr.log", {"layout": "torchrun", "attempt": 1, "stream": "stderr"}),
        (
            f"logs/worker-{WORKER}-01000000-4120.out",
            {"layout": "ray-worker", "pid": 4120, "stream": "stdout"},
        ),
        (f"logs/worker-{WORKER}-ffffffff-17.err.1", {"layout": "ray-worker", "pid": 17, "stream": "stderr"}),
        (f"python-core-worker-{WORKER}_991.log", {"layout": "ray-core-worker", "pid": 991}),
        ("python-core-driver-01000000ffffffff_8.log", {"layout": "ray-core-worker", "pid": 8}),
        ("raylet.out", {"layout": "ray-raylet", "stream": "stdout"}),
        ("raylet.err.2", {"layout": "ray-raylet", "stream": "stderr"}),
        ("gcs_server.out", {"layout": "ray-gcs", "stream": "stdout"}),
        ("job-driver-raysubmit_8Zk2pW.log", {"layout": "ray-driver"}),
        ("log_monitor.log", {"layout": "ray-helper"}),
        ("dashboard_agent.log", {"layout": "ray-helper"}),
        ("runtime_env_agent.log", {"layout": "ray-component"}),
        ("4711_3.out", {"layout": "slurm", "rank": 3, "stream": "stdout"}),
        ("4711_3_log.err", {"layout": "slurm", "rank": 3, "stream": "stderr"}),
        ("4711_2_3_log.out", {"layout": "slurm", "rank": 3, "stream": "stdout"}),
        ("slurm-4711.out", {"layout": "slurm", "stream": "stdout"}),
        ("train-4711-gpu07-3.out", {"layout": "slurm", "rank": 3, "host": "gpu07", "stream": "stdout"}),
        (
            "t_4711_gpu-node-01_3.err",
            {"layout": "slurm", "rank": 3, "host": "gpu-node-01", "stream": "stderr"},
        ),
        ("nccl.gpu07.4120.log", {"layout": "nccl-debug-file", "host": "gpu07", "pid": 4120}),
        ("nccl_debug_gpu07_4120.txt", {"layout": "nccl-debug-file", "host": "gpu07", "pid": 4120}),
        ("nccl-gpu-node-01-4120.log", {"layout": "nccl-debug-file", "host": "gpu-node-01", "pid": 4120}),
        ("NCCL_DEBUG.localhost.77", {"layout": "nccl-debug-file", "host": "localhost", "pid": 77}),
        ("nccl.4120.log", {"layout": "nccl-debug-file", "pid": 4120}),
        ("rank3.log", {"layout": "rank-file", "rank": 3}),
        ("rank_3.out", {"layout": "rank-file", "rank": 3, "stream": "stdout"}),
        ("rank-03.err", {"layout": "rank-file", "rank": 3, "stream": "stderr"}),
        ("rank0.err.log", {"layout": "rank-file", "rank": 0, "stream": "stderr"}),
        ("RANK_12.txt.gz", {"layout": "rank-file", "rank": 12}),
        ("worker3.log", {"layout": "rank-file", "rank": 3}),
        ("worker_3.log", {"layout": "rank-file", "rank": 3}),
        ("node0_rank3.log", {"layout": "rank-file", "rank": 3, "host": "node0"}),
        ("rank3_gpu07.log", {"layout": "rank-file", "rank": 3, "host": "gpu07"}),
        ("rank3.gpu07.4120.log", {"layout": "rank-file", "rank": 3, "host": "gpu07", "pid": 4120}),
        ("trainer_rank_3_of_8.log", {"layout": "rank-file", "rank": 3}),
        ("global_rank_11_local_rank_3.log", {"layout": "rank-file", "rank": 11, "local_rank": 3}),
        ("rank3_pid4120.log", {"layout": "rank-file", "rank": 3, "pid": 4120}),
        ("rank_3/info.log", {"layout": "rank-folder", "rank": 3}),
        ("1/rank.03/stdout", {"layout": "rank-folder", "rank": 3, "stream": "stdout"}),
        ("node-2/rank3.log", {"layout": "rank-file", "rank": 3, "host": "node-2"}),
        ("restart_1/rank3.log", {"layout": "rank-file", "rank": 3, "attempt": 1}),
        ("gpu3.log", {"layout": "rank-file", "local_rank": 3}),
        ("local_rank3.log", {"local_rank": 3}),
        ("nccl_trace_rank_5", {"layout": "flight-recorder", "rank": 5}),
        ("comm_lib_trace_rank_12.json", {"layout": "flight-recorder", "rank": 12}),
        ("gpu07.log", {"layout": "host-file", "host": "gpu07"}),
        ("10.0.0.5.log", {"layout": "host-file", "host": "10.0.0.5"}),
        ("train-worker-3.log", {"layout": "kubernetes", "host": "train-worker-3"}),
        ("llama-master-0_pytorch.log", {"layout": "kubernetes", "host": "llama-master-0"}),
        ("ray-head-x7k2p.log", {"layout": "kubernetes", "host": "ray-head-x7k2p"}),
        ("mypod-7d9f8b6c5d-bcdfg.log", {"layout": "kubernetes", "host": "mypod-7d9f8b6c5d-bcdfg"}),
        (
            "ns_train-worker-1_0f3c2b1a-1111-2222-3333-444455556666/pytorch/2.log",
            {"layout": "kubernetes", "host": "train-worker-1", "attempt": 2},
        ),
        (
            f"train-worker-1_default_pytorch-{'0a' * 32}.log",
            {"layout": "kubernetes", "host": "train-worker-1"},
        ),
        (f"{'0a' * 32}-json.log", {"layout": "docker"}),
    ],
)
def test_paths_that_say_something(path: str, expected: dict[str, Any]) -> None:
    assert said(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "train.log",
        "run3.log",
        "job4711.log",
        "step100.log",
        "3.log",
        "log.3",
        "train.log.1",
        "2025-06-03.log",
        "20250603_1.log",
        "20250603_141431.log",
        "trainer3.log",
        "gpu07-3.log",
        "llama-7b-3.log",
        "lora_rank16.log",
        "rank8_alpha16.log",
        "lowrank8.log",
        "crank3.log",
        "node_rank_1.log",
        "noderank1.log",
        "tp_rank_3.log",
        "dp-rank-3.log",
        "nodes4/run.log",
        "nccl_allreduce_1024.log",
        "nccl-tests-128.log",
        "nccl-2.21.5.log",
        "timed_out.log",
        "A001.log",
        "net_hostname_127_w4.log",
        "nccl_version_mismatch_221_227_w2.log",
        "tokenise_rank0_w4.log",
        "srun_style_rank0_sigkill_w4.log",
        "hang_at_rank3.log",
        "",
        "/",
    ],
)
def test_paths_that_say_nothing(path: str) -> None:
    assert said(path) == {}


@pytest.mark.parametrize("path", ["slurm-4711_3.out", "4711.0.out", "train_4711_3.out", "job3.err"])
def test_array_tasks_steps_and_jobs_are_no_ranks(path: str) -> None:
    assert "rank" not in said(path)


@pytest.mark.parametrize(
    ("path", "siblings", "rank"),
    [
        ("3.log", [f"{n}.log" for n in range(8)], 3),
        ("3.err", [f"{n}.{end}" for n in range(4) for end in ("out", "err")], 3),
        ("11.log", [f"{n}.log" for n in range(8, 16)], 11),  # the second node
        ("3.log.gz", ["0.log.gz", "1.log.gz", "3.log.gz"], 3),
        ("log.3", [f"log.{n}" for n in range(4)], 3),
        ("trainer3.log", [f"trainer{n}.log" for n in range(4)], 3),
        ("train_4711_3.out", [f"train_4711_{n}.out" for n in range(4)], 3),
        ("exp7_rank_3_of_the_run.log", [f"exp7_rank_{n}_of_the_run.log" for n in range(4)], 3),
        ("gpu07-3.log", ["gpu07-0.log", "gpu07-1.log", "gpu07-3.log", "gpu08-2.log"], 3),
        # Not ranks:
        ("3.log", ["1.log", "2.log", "3.log"], None),
        ("4712.log", ["4711.log", "4712.log", "4713.log", "4714.log"], None),
        ("3.log", ["3.log", "train.log", "0.txt.bak"], None),
        ("log.3", ["log.1", "log.2", "log.3"], None),  # rotated
        ("4711_3.out", ["4711_1.out", "4711_2.out", "4711_3.out"], None),  # an array
        ("train_4711_3.out", ["train_4711_3.out", "train_4712_0.out", "train_4713_1.out"], None),
        ("worker-4120.log", ["worker-4120.log", "worker-4133.log"], None),  # pids
        ("0.log", ["0.log", "70000.log"], None),
        ("0.log", ["0.log", "4711.log"], None),
        ("5.log", ["4.log", "5.log"], None),
        ("run-3.log", [f"run-{n}.log" for n in range(4)], None),
    ],
)
def test_numbers_that_need_their_neighbours(path: str, siblings: list[str], rank: int | None) -> None:
    assert said(path, siblings).get("rank") == rank


def test_many_siblings_are_read_once() -> None:
    names = [f"{n}.log" for n in range(3000)]
    siblings = Siblings(names)
    assert [read_path(name, siblings).rank for name in names] == list(range(3000))


def infos(*paths: str) -> list[SourceInfo]:
    siblings = Siblings(path.rsplit("/", 1)[-1] for path in paths)
    found = [read_path(path, siblings) for path in paths]
    settle(found)
    return found


def test_a_rank_on_two_hosts_is_a_local_rank() -> None:
    found = infos("node0_rank0.log", "node0_rank1.log", "node1_rank0.log", "node1_rank1.log")
    assert [(info.rank, info.local_rank, info.host) for info in found] == [
        (None, 0, "node0"),
        (None, 1, "node0"),
        (None, 0, "node1"),
        (None, 1, "node1"),
    ]


def test_folders_of_nodes_count_as_hosts() -> None:
    found = infos("node0/rank0.log", "node0/rank1.log", "node1/rank0.log", "node1/rank1.log")
    assert [(info.rank, info.local_rank) for info in found] == [(None, 0), (None, 1), (None, 0), (None, 1)]


def test_ranks_that_go_on_from_host_to_host_stay() -> None:
    found = infos("node0_rank0.log", "node0_rank1.log", "node1_rank2.log", "node1_rank3.log")
    assert [info.rank for info in found] == [0, 1, 2, 3]


def test_out_and_err_of_a_rank_are_no_two_hosts() -> None:
    found = infos("rank0.out", "rank0.err", "rank1.out", "rank1.err")
    assert [info.rank for info in found] == [0, 0, 1, 1]


def test_one_slurm_task_a_host_may_be_the_node() -> None:
    found = infos("t-4711-gpu07-0.out", "t-4711-gpu08-1.out")
    assert [(info.rank, info.host) for info in found] == [(None, "gpu07"), (None, "gpu08")]
    found = infos(*(f"t-4711-gpu07-{n}.out" for n in (0, 1)), *(f"t-4711-gpu08-{n}.out" for n in (2, 3)))
    assert [info.rank for info in found] == [0, 1, 2, 3]


def test_the_path_is_kept() -> None:
    assert read_path("a/b/rank3.log").path == "a/b/rank3.log"


@pytest.mark.parametrize("ending", [".gz", ".zst", ".xz", ".bz2", ".GZ"])
def test_compression_endings_are_stripped(ending: str) -> None:
    assert strip_compression(f"rank3.log{ending}") == "rank3.log"


def test_long_hostile_names_are_read_quickly() -> None:
    import time

    started = time.perf_counter()
    for name in (
        "rank" * 60,
        "a-" * 120 + "1",
        "gpu-node-" * 27 + ".log",
        "1_" * 120 + ".log",
        "node" + "-1a" * 80,
    ):
        read_path(name, Siblings([name]))
    assert time.perf_counter() - started < 2
