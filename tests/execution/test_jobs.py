"""Inputs of several jobs are parted, and those of one stay one, whatever their files are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nccl_triage.api import diagnose, diagnose_jobs
from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation import cases
from nccl_triage.execution.jobs import Grouping

ROOT = Path(__file__).parents[2]
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def steps(rank: int = 0, hour: int = 10, loss: float = 2.0, number: int = 9) -> str:
    return "".join(
        f"2026-03-01 {hour:02d}:0{n}:00 [rank{rank}] step {n}/90 loss {loss - n / 10:.2f}\n" for n in range(number)
    )


def raised(text: str, rank: int = 0) -> str:
    lead = f"[rank{rank}]: "
    return f'{lead}Traceback (most recent call last):\n{lead}  File "/a/train.py", line 7, in <module>\n{lead}{text}\n'


def write(folder: Path, **files: str) -> list[str]:
    """Write logs; two underscores part folders."""
    paths = []
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".log")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        paths.append(str(path))
    return paths


def found(paths: Any, rules: RuleSet, grouping: Grouping = Grouping.BY_TRAITS) -> dict[str, str]:
    """Return the cause of each job, or its verdict."""
    jobs = diagnose_jobs(paths, rules=rules, grouping=grouping)
    return {job.name: job.diagnosis.cause or job.diagnosis.verdict for job in jobs}


def test_unrelated_logs_named_together_are_no_single_job(tmp_path: Path, rules: RuleSet) -> None:
    errors = (OOM, "KeyError: 'fr'", "ValueError: bad shape", OOM)
    names = ("base", "bigger", "small", "slow")
    logs = {
        name: steps(loss=2 + at / 7) + raised(error) for at, (name, error) in enumerate(zip(names, errors, strict=True))
    }
    paths = write(tmp_path, **logs)
    told = found(paths, rules)
    assert told == {
        "base.log": "gpu-out-of-memory",
        "bigger.log": "application-exception",
        "small.log": "application-exception",
        "slow.log": "gpu-out-of-memory",
    }
    assert len(found(paths, rules, Grouping.ONE)) == 1


def test_a_folder_of_job_folders(tmp_path: Path, rules: RuleSet) -> None:
    good = {f"good__rank{rank}": steps(rank) + "Training finished\n" for rank in range(2)}
    bad = {f"bad__rank{rank}": steps(rank, loss=3) + raised(OOM, rank) * rank for rank in range(2)}
    write(tmp_path, **good, **bad)
    assert found(str(tmp_path), rules) == {"bad": "gpu-out-of-memory", "good": "healthy"}


@pytest.mark.parametrize("name", ["slurm-4711_{}.out", "4711_{}.out", "train_4711_{}.out"])
def test_the_outputs_of_an_array(name: str, tmp_path: Path, rules: RuleSet) -> None:
    """Where a layout takes the number of a task for a rank, what the outputs say corrects it."""
    for task in range(4):
        text = "".join(f"step {n}/9 loss {task}.{n}\n" for n in range(9))
        (tmp_path / name.format(task)).write_text(text + ("Training finished\n" if task else raised(OOM)))
    told = found(str(tmp_path), rules)
    assert sorted(told.values()) == ["gpu-out-of-memory", "healthy", "healthy", "healthy"]
    assert len(set(told)) == 4


def test_a_report_about_a_host_belongs_to_the_jobs_of_its_folder(tmp_path: Path, rules: RuleSet) -> None:
    paths = write(tmp_path, trainer=steps() + raised("RuntimeError: CUDA error: unspecified launch failure"))
    (tmp_path / "dmesg.gpu07.log").write_text("[ 99.5] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")
    assert list(found(str(tmp_path), rules).values()) == ["gpu-hardware-fault"]
    assert found(paths, rules) != {paths[0]: "gpu-hardware-fault"}


def test_the_logs_of_two_nodes_with_any_names_are_one_job(tmp_path: Path, rules: RuleSet) -> None:
    for node, ranks in (("alpha", (0, 1)), ("beta", (2, 3))):
        write(tmp_path, **{node: "".join(map(steps, ranks))})
    assert len(found(str(tmp_path), rules)) == 1


def test_each_parts_what_is_not_surely_of_one_job(tmp_path: Path, rules: RuleSet) -> None:
    write(tmp_path, trainer=raised("KeyError: 'a'"), evaluator="ValueError: bad\n")
    assert len(found(str(tmp_path), rules)) == 1
    assert len(found(str(tmp_path), rules, Grouping.EACH)) == 2
    write(tmp_path / "ranks", rank0=steps(0), rank1=steps(1))
    assert len(found(str(tmp_path / "ranks"), rules, Grouping.EACH)) == 1, "these surely are"


def two_jobs() -> str:
    """Return a stream of the pods of two jobs: one failed, and the other one finished later."""
    lines = [
        f"[pod/{job}-worker-0/pytorch] 2026-03-01 10:00:{n:02d} step {n}/20 loss 2.{n}"
        for n in range(20)
        for job in ("bert", "llama")
        if job == "llama" or n < 9
    ]
    lines[18:18] = [f"[pod/bert-worker-0/pytorch] {line}" for line in raised("KeyError: 'label'").splitlines()]
    return "\n".join([*lines, "[pod/llama-worker-0/pytorch] Training finished"]) + "\n"


def test_two_jobs_in_one_stream(tmp_path: Path, rules: RuleSet) -> None:
    (tmp_path / "all.log").write_text(two_jobs())
    assert found(str(tmp_path), rules) == {"bert": "application-exception", "llama": "healthy"}


def test_of_two_jobs_in_one_stream_the_one_that_failed_is_diagnosed(tmp_path: Path, rules: RuleSet) -> None:
    log = tmp_path / "all.log"
    log.write_text(two_jobs())
    diagnosis = diagnose(log, rules=rules)
    assert diagnosis.cause == "application-exception"
    assert any("2 jobs" in note["en"] and "2 个作业" in note["zh"] for note in diagnosis.notes)


RUNS = [case for case in cases.read(ROOT / "corpus" / "recorded") if case.log.is_dir()][::12]


@pytest.mark.parametrize("folder", [case.log for case in RUNS], ids=[case.id for case in RUNS])
def test_a_recorded_job_stays_one_with_the_same_document(folder: Path, rules: RuleSet) -> None:
    (job,) = diagnose_jobs(folder, rules=rules)
    document, once = job.diagnosis.to_dict(), diagnose(folder, rules=rules).to_dict()
    assert {**document, "timing": None} == {**once, "timing": None}
