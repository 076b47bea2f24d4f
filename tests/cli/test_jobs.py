"""Several jobs on the command line: the table, its files, notes and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import prepared

from .test_cli import environment

FAILED = "step 1/9 loss 2.{n}\nstep 2/9 loss 1.{n}\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
FINISHED = "step 1/9 loss 3.{n}\nstep 2/9 loss 2.{n}\ntraining finished\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the outputs of three jobs, of which two failed alike."""
    for number, text in ((4711, FAILED), (4712, FINISHED), (4713, FAILED)):
        (tmp_path / f"slurm-{number}.out").write_text(text.format(n=number))
    return tmp_path


def run(folder: Path, *args: str) -> tuple[int, str, str]:
    done = prepared.run(["--no-history", *args], stdin=b"", env=environment(), cwd=folder)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_table_is_printed(folder: Path) -> None:
    code, out, notes = run(folder, "slurm-*.out")
    assert (code, notes) == (0, ""), "ids tell jobs apart for certain"
    assert out.splitlines()[0] == "nccl-triage: 3 jobs: 2 with a known cause, 1 without a failure"
    assert out.splitlines()[1].split()[:3] == ["2", "jobs", "gpu-out-of-memory"]


def test_the_worst_decides_the_exit_code(folder: Path) -> None:
    assert run(folder, ".", "--exit-code", "-q")[0] == 1
    assert run(folder, "slurm-4712.out", "--exit-code", "-q")[0] == 0


def test_one_job_reads_all_as_one_and_each_contradicts_it(folder: Path) -> None:
    code, out, _ = run(folder, ".", "--one-job")
    assert (code, "jobs:" in out) == (0, False)
    code, out, error = run(folder, ".", "--one-job", "--each")
    assert (code, out) == (2, "")
    assert "--one-job and --each contradict each other" in error


def test_a_doubtful_choice_is_told(folder: Path) -> None:
    for number in (1, 2):
        (folder / f"run{number}.log").write_text(FINISHED.format(n=number))
    code, out, notes = run(folder, "run1.log", "run2.log")
    assert (code, out.count("\n")) == (0, 2)
    assert notes.splitlines() == [
        "nccl-triage: read as 2 jobs, by what the logs say and are called; --one-job reads them as one"
    ]


def test_a_path_among_several_that_names_nothing_is_told(folder: Path) -> None:
    code, out, notes = run(folder, "slurm-4712.out", "nothing.log", "*.nothing")
    assert code == 0
    assert out.startswith("nccl-triage: No failure")
    assert notes.splitlines() == [
        "nccl-triage: cannot read nothing.log: there is no such file",
        "nccl-triage: cannot read *.nothing: there is no such file",
    ]


def test_a_report_has_a_page_for_each_job(folder: Path) -> None:
    code, _, notes = run(folder, ".", "--report", "week.html")
    assert code == 0
    assert "with a page for each job in week-jobs" in notes
    index = (folder / "week.html").read_text()
    pages = sorted(page.name for page in (folder / "week-jobs").iterdir())
    assert len(pages) == 3
    assert all(f'href="week-jobs/{page}"' in index for page in pages)
    assert run(folder, ".", "--report", "week.html")[0] == 2, "nothing is overwritten"
    assert run(folder, ".", "--report", "week.html", "--force")[0] == 0


def test_formats(folder: Path) -> None:
    found = json.loads(run(folder, ".", "--format", "json")[1])
    assert found["counts"]["jobs"] == len(found["jobs"]) == 3
    lines = run(folder, ".", "--format", "ndjson")[1].splitlines()
    assert sorted(json.loads(line)["verdict"] for line in lines) == ["diagnosed", "diagnosed", "healthy"]
    assert run(folder, ".", "-o", "jobs.csv")[0] == 0
    assert (folder / "jobs.csv").read_text().count("\n") == 4
    code, out, error = run(folder, ".", "--format", "sarif")
    assert (code, out) == (2, "")
    assert "add --one-job" in error


def test_names_are_replaced_when_asked(folder: Path) -> None:
    _, out, _ = run(folder, str(folder), "--redact", "--format", "csv", "--report", "week.html")
    assert out.count("job-") == 3
    assert str(folder) not in out + (folder / "week.html").read_text()
