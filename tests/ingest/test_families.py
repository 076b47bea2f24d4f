"""What names of logs tell of the job: ids, ranks, hosts, streams and folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.ingest import pods
from nccl_triage.ingest.families import are_siblings, families, like_ranks
from tests.prefix_reading import find_sources


def grouped(folder: Path, *names: str) -> list[list[str]]:
    """Return the names of each family of logs in a folder."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("step 1 loss 2.0\n")
    found = families(find_sources([str(folder)], None)[0])
    return [sorted(str(Path(s.path).relative_to(folder)) for s in family.sources) for family in found]


@pytest.mark.parametrize(
    "names",
    [
        ("rank0.log", "rank1.log", "rank2.log", "rank3.log"),
        ("rank0.err.log", "rank0.out.log", "rank1.err.log", "rank1.out.log"),
        ("gpu-node-01_rank0.log", "gpu-node-02_rank0.log"),
        ("attempt_1_rank0.log", "rank0.log"),
        ("node-1/rank0.log", "node-2/rank8.log"),
        ("job.err", "job.out"),
        ("train_err.log", "train_out.log"),
        ("err_40387279.err", "res_40387279.out"),
        ("a/slurm-47110.out", "b/launcher-47110.log"),
        ("train-4711-gpu07.out", "train-4711-gpu08.out"),
        ("llama-master-0.log", "llama-worker-0.log", "llama-worker-1.log"),
        ("trainer.log", "trainer.log.1"),
        ("dmesg.gpu07.log", "dmesg.gpu08.log", "nccl.gpu07.4120.log"),
    ],
)
def test_logs_of_one_job(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert grouped(tmp_path, *names) == [sorted(names)]


@pytest.mark.parametrize(
    "names",
    [
        ("slurm-4711.out", "slurm-4712.out"),
        ("slurm-4711_1.out", "slurm-4711_2.out"),
        ("train.o48211", "train.o48212"),
        ("a/rank0.log", "b/rank0.log"),
        ("bert-worker-0.log", "llama-worker-0.log"),
        ("run1.log", "run2.log"),
        ("base.log", "bigger.log"),
    ],
)
def test_logs_that_may_be_of_several(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert grouped(tmp_path, *names) == [[name] for name in names]


@pytest.mark.parametrize(
    ("names", "siblings"),
    [
        (("run1.log", "run2.log"), True),
        (("part0.txt", "part1.txt"), False),
        (("trainer.log", "launcher.log"), False),
        (("a/train.log", "b/train.log"), True),
        (("a/trainer.log", "b/rollout.log"), False),
    ],
)
def test_names_differ_as_those_of_two_jobs_do(tmp_path: Path, names: tuple[str, str], siblings: bool) -> None:
    grouped(tmp_path, *names)
    one, two = families(find_sources([str(tmp_path)], None)[0])
    assert are_siblings(one, two, like_ranks([one, two])) is siblings


@pytest.mark.parametrize(
    ("name", "job", "role"),
    [
        ("llama-sft-worker-0", "llama-sft", "worker"),
        ("llama-sft-master-0", "llama-sft", "master"),
        ("job-1-worker-3", "job-1", "worker"),
        ("ray-a1-head-x7k2p", "ray-a1", "head"),
        ("mypod-7d9f8b6c5d-bcdfg", "mypod", None),
        ("train-3", "train", None),
        ("workers-0-2", "", "worker"),
        ("gpu07.cluster.example.org", "gpu", None),
    ],
)
def test_a_pod_names_its_job(name: str, job: str, role: str | None) -> None:
    assert pods.read(name) == (job, role)
