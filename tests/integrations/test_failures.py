"""``explain_failures``: real ranks that fail, and everything that must not hurt them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from .conftest import EXAMPLES, PATIENCE, ROOT, Job, program
from .pages import block

HEAD = "from nccl_triage.integrations import explain_failures\n"
FAILS = "raise ValueError('sample 7 has 3 tokens, expected 4')\n"


def test_importing_it_costs_nothing() -> None:
    code = "import sys; import nccl_triage.integrations as i; i.explain_failures('logs'); print(*sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "analyzer")}
    loaded = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    ours = {name for name in loaded.split() if name.startswith("nccl_triage")}
    assert ours == {
        "nccl_triage", "nccl_triage._version", "nccl_triage.integrations", "nccl_triage.integrations.failures",
    }  # fmt: skip
    assert not set(loaded.split()) & {"torch", "click", "yaml", "orjson", "subprocess", "logging"}


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_the_failed_rank_of_a_real_job_writes_one_report(job: Job) -> None:
    """The example of the page: files of the ranks in the same folder, and a traceback that does not wait."""
    shutil.copytree(EXAMPLES / "python", job.folder / "python")
    env = {**job.env, "OMP_NUM_THREADS": "1", "PATH": f"{Path(program('torchrun')).parent}:{os.environ['PATH']}"}
    words = ["bash", "-c", block("python.md", "torchrun")]
    result = subprocess.run(words, cwd=job.folder, env=env, capture_output=True, check=False, timeout=PATIENCE)
    code, stderr = result.returncode, next(job.logs.rglob("1/stderr.log")).read_text(encoding="utf-8")
    assert code == 1
    assert "[rank1]: ValueError: sample 7 has 3 tokens, expected 4" in stderr
    assert stderr.index("[rank1]: ValueError") < stderr.index("nccl-triage: "), "the traceback does not wait"
    assert job.names() >= {"nccl-triage-HOST-rank1.log", "nccl-triage-HOST.txt", "nccl-triage-HOST.html"}
    assert "nccl-triage-HOST-2.txt" not in job.names()
    assert "root cause: application-exception" in job.text("nccl-triage-HOST.txt")
    assert "culprit: rank 1" in job.text("nccl-triage-HOST.txt")
    assert "sample 7 has 3 tokens" in job.text("nccl-triage-HOST.html")


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_failed_init_is_explained(job: Job) -> None:
    script = (
        "import datetime, torch.distributed as dist\n"
        f"{HEAD}explain_failures('logs')\n"
        "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=1))\n"
    )
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "RANK": "1", "WORLD_SIZE": "2"}
    code, stderr = job.run(script, **where)
    assert code == 1
    assert job.names() == {"nccl-triage-HOST-rank1.log", "nccl-triage-HOST.txt", "nccl-triage-HOST.html"}
    assert "DistNetworkError" in job.text("nccl-triage-HOST-rank1.log")
    assert "nccl-triage: report written to" in stderr


def test_ranks_that_fail_together_write_one_report_and_stay_until_it_is_there(job: Job) -> None:
    processes = [job.start(f"{HEAD}explain_failures('logs')\n{FAILS}", RANK=str(rank)) for rank in range(3)]
    ends = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    assert sum("report written to" in end for end in ends) == 1
    ranks = {f"nccl-triage-HOST-rank{rank}.log" for rank in range(3)}
    assert job.names() == {*ranks, "nccl-triage-HOST.txt", "nccl-triage-HOST.html"}


def test_exit_code_and_traceback_are_those_of_a_program_without_it(job: Job) -> None:
    plain = job.run(f"{HEAD}0\n{FAILS}")
    code, stderr = job.run(f"{HEAD}explain_failures('logs')\n{FAILS}")
    assert code == plain[0] == 1
    assert stderr.startswith(plain[1])
    assert stderr[len(plain[1]) :].count("\n") == 2
    again = job.run(f"{HEAD}explain_failures('logs')\n{FAILS}")
    assert again[0] == 1
    first, second = "nccl-triage-HOST", "nccl-triage-HOST-2"
    assert job.names() == {f"{name}{end}" for name in (first, second) for end in (".log", ".txt", ".html")}


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()", 0),
        ("import os\nif os.fork() == 0: 1 / 0\nos.wait()", 0),
        ("import os; os._exit(5)", 5),
        ("import sys; sys.excepthook = sys.__excepthook__; 1 / 0", 1),
    ],
)
def test_what_is_no_failure_of_a_rank_writes_nothing(job: Job, end: str, code: int) -> None:
    assert job.run(f"{HEAD}explain_failures('logs')\n{end}\n")[0] == code
    assert not job.logs.exists()


BROKEN = {
    "the disk is full": (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9, 9))",
        "no diagnosis is written",
    ),
    "no thread": ("import threading; threading.Thread.start = None", ""),
    "no such Python": ("import sys; sys.executable = '/nowhere/python'", "no diagnosis: "),
    "no stderr": ("import sys; sys.stderr = None", ""),
    "the hook before fails": ("def hook(*_): raise OSError('broken')\nimport sys; sys.excepthook = hook", "OSError"),
    "the folder of the job is gone": (
        "import os; os.mkdir('x'); os.chdir('x'); os.rmdir('../x')",
        "no diagnosis is written",
    ),
    "the interpreter dies": (
        "import sys; sys.executable = '/bin/false'",
        "no diagnosis: the analysis ended with code 1",
    ),
}


@pytest.mark.parametrize("why", BROKEN)
def test_the_job_ends_as_ever_when_something_of_ours_breaks(job: Job, why: str) -> None:
    break_it, said = BROKEN[why]
    begun = time.monotonic()
    code, stderr = job.run(f"{HEAD}{break_it}\nexplain_failures('logs')\n{FAILS}")
    assert code == 1
    assert said in stderr
    # Python shows how the broken hook was called.
    assert "nccl_triage/integrations" not in stderr or why == "the hook before fails", "no traceback of ours"
    if why != "no stderr":
        assert "ValueError: sample 7 has 3 tokens, expected 4" in stderr
    assert time.monotonic() - begun < 30
    if why == "the disk is full":
        assert job.names() == set(), "nothing half written"


@pytest.mark.parametrize("logs", ["/proc/logs", "/dev/null/logs", "train.py/logs"])
def test_a_folder_that_cannot_be_written_is_said_in_a_sentence(job: Job, logs: str) -> None:
    code, stderr = job.run(f"{HEAD}explain_failures({logs!r})\n{FAILS}")
    assert code == 1
    assert "ValueError: sample 7" in stderr
    assert "nccl-triage: no diagnosis is written: " in stderr


def test_an_analysis_that_hangs_is_killed_at_the_deadline(job: Job) -> None:
    os.mkfifo(job.folder / "pipe")
    code, stderr = job.run(f"{HEAD}explain_failures('pipe', deadline=2)\n{FAILS}")
    assert code == 1
    assert "nccl-triage: no diagnosis: the time limit has passed" in stderr
    assert "the time limit has passed" in next(job.folder.glob("*.txt")).read_text()
    assert not list(_children(job.folder))


def test_ctrl_c_ends_the_waiting(job: Job) -> None:
    os.mkfifo(job.folder / "pipe")
    process = job.start(f"{HEAD}explain_failures('pipe')\n{FAILS}")
    _until(lambda: bool(list(_children(job.folder))))
    process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=10)[1]
    assert process.returncode == 1
    assert "KeyboardInterrupt" not in stderr
    _until(lambda: not list(_children(job.folder)))


def test_the_report_is_finished_when_the_rank_is_killed_meanwhile(job: Job) -> None:
    process = job.start(f"{HEAD}explain_failures('logs')\n{FAILS}", RANK="4")
    _until(lambda: bool(list(_children(job.folder))))
    process.kill()
    process.communicate(timeout=10)
    _until(lambda: "nccl-triage-HOST.html" in job.names() and "culprit" in job.text("nccl-triage-HOST.txt"))
    assert "sample 7 has 3 tokens" in job.text("nccl-triage-HOST.txt")


def test_a_module_in_the_folder_of_the_job_is_not_run_by_the_analysis(job: Job) -> None:
    (job.folder / "orjson.py").write_text("open('imported', 'w')")
    (job.folder / "src").mkdir()
    (job.folder / "src" / "train.py").write_text(f"{HEAD}explain_failures('logs')\n{FAILS}")
    env = {**job.env, "PYTHONPATH": f":{job.env['PYTHONPATH']}"}  # an empty entry is the current folder
    subprocess.run([sys.executable, "src/train.py"], cwd=job.folder, env=env, check=False, timeout=PATIENCE)
    assert "nccl-triage-HOST.html" in job.names()
    assert not (job.folder / "imported").exists()


def test_it_serves_as_context_and_as_decorator(job: Job) -> None:
    script = (
        f"{HEAD}import multiprocessing, sys\n"
        "@explain_failures('logs')\n"
        f"def rank(): {FAILS}"
        "hook = sys.excepthook\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=rank)\n"
        "    child.start(); child.join(); print(child.exitcode, file=sys.stderr)\n"
        "    before = sys.excepthook\n"
        "    try:\n"
        "        with explain_failures('logs', redact=True): raise KeyError('fr')\n"
        "    except KeyError: print('caught', sys.excepthook is before, file=sys.stderr)\n"
    )
    code, stderr = job.run(script)
    assert code == 0
    assert "\n1\n" in stderr
    assert "caught True" in stderr
    assert {"nccl-triage-HOST.log", "nccl-triage-HOST-2.log"} <= job.names()
    assert "sample 7" in job.text("nccl-triage-HOST.txt")


def test_logs_in_one_file_get_the_report_beside_them(job: Job) -> None:
    (job.folder / "train.log").write_text("NCCL version 2.27.5+cuda12.9\nstep 1 loss 3.0\n")
    code, _ = job.run(f"{HEAD}explain_failures('train.log')\n{FAILS}", RANK="0", LC_ALL="zh_CN.UTF-8")
    assert code == 1
    text = next(job.folder.glob("nccl-triage-*.txt")).read_text(encoding="utf-8")
    assert "rank 0 失败" in text
    assert "sample 7 has 3 tokens" in text


def _children(folder: Path) -> Iterator[int]:
    """Yield the processes that analyse logs of a folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes()
            if b"nccl_triage.integrations.child" in words and str(folder).encode() in words:
                yield int(path.parent.name)


def _until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 30
    while True:
        with contextlib.suppress(OSError):
            if condition():
                return
        assert time.monotonic() < deadline
        time.sleep(0.02)
