"""What the history adds to the decision on a restart: how often the same cause came back, and when another is not advised."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose
from nccl_triage.history import recurrence, store
from nccl_triage.history.incidents import Input, KeptIncident
from nccl_triage.history.memory import Memory
from nccl_triage.render import render
from tests.document import fields
from tests.history.made import NOW, failed

OOM = "step 3 loss 2.1\n[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
CRASH = (
    "step 3 loss 2.1\n"
    "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -11) local_rank: 2 "
    "(pid: 4711) of binary: /usr/bin/python\n"
    "Fatal Python error: Segmentation fault\n"
)
HANGUP = "step 3 loss 2.1\ntorch.distributed.elastic.multiprocessing.api.SignalException: Process 40112 got signal: 1\n"
WALLTIME = (
    "step 3 loss 2.1\n"
    f"slurmstepd: error: *** STEP 81234.0 ON gpu07 CANCELLED AT {datetime.fromtimestamp(NOW, timezone.utc):%FT%T} DUE TO "
    "TIME LIMIT ***\n"
)
XID = (
    "Feb  2 22:52:45 gpu07 kernel: NVRM: Xid (PCI:0000:cb:00): 79, pid='<unknown>', name=<unknown>, "
    "GPU has fallen off the bus.\n"
)


def document(folder: Path, text: str, earlier: list[KeptIncident], log: str = "slurm-1004.out") -> dict[str, Any]:
    """Return the document of a log whose job has a history."""
    path = folder / "history.sqlite"
    with store.writable(path) as history:
        for incident in earlier:
            history.keep(incident)
    (folder / log).write_text(text)
    made = diagnose(folder / log, further=[Memory(path, writes=False).recall]).to_dict()
    fields.check(made)
    return made


def before(
    folder: Path, cause: str, times: int, host: str | None = None, log: str = "slurm-{n}.out"
) -> list[KeptIncident]:
    """Return earlier failures of the job, whose logs differ in their number."""
    return [
        failed(
            host, cause, days=n, hosts=(), inputs=(Input(str(folder / log.format(n=1000 + n)), marks=(f"{n:08x}",)),)
        )
        for n in range(1, times + 1)
    ]


@pytest.mark.parametrize(
    ("text", "cause", "times", "decision", "said"),
    [
        (OOM, "gpu-out-of-memory", 0, "fix_first", ""),
        (OOM, "gpu-out-of-memory", 1, "fix_first", "The same cause ended this job once in the 14 days before."),
        (OOM, "gpu-out-of-memory", 3, "fix_first", "The same cause ended this job 3 times in the 14 days before."),
        (OOM, "process-crashed", 3, "fix_first", ""),
        (CRASH, "process-crashed", 2, "fix_first", "The same cause ended this job 2 times in the 14 days before."),
        (HANGUP, "terminal-hangup", 1, "restart", "The same cause ended this job once in the 14 days before."),
        (HANGUP, "terminal-hangup", 2, "undecided", "Restarts alone have not helped."),
    ],
)
def test_a_restart_that_did_not_help_is_not_advised_again(
    tmp_path: Path, text: str, cause: str, times: int, decision: str, said: str
) -> None:
    made = document(tmp_path, text, before(tmp_path, cause, times))
    found = made["restart"]
    assert found["decision"] == decision
    assert said in found["why"] and bool(said) == ("repeats" in found)
    if said:
        assert (found["repeats"]["times"], found["repeats"]["days"]) == (times, recurrence.DAYS)
        assert len(found["repeats"]["incidents"]) == times
        assert found["why"] != found["why_zh"]


def test_a_job_that_was_told_to_stop_goes_on_however_often(tmp_path: Path) -> None:
    found = document(tmp_path, WALLTIME, before(tmp_path, "job-preempted", 5))
    assert found["restart"]["decision"] == "restart"
    assert found["restart"]["repeats"]["times"] == 5


def test_a_host_that_fails_again_is_left_out_and_hosts_that_change_leave_it_open(tmp_path: Path) -> None:
    (tmp_path / "same").mkdir()
    same = document(tmp_path / "same", XID, before(tmp_path / "same", "gpu-hardware-fault", 3, "gpu07.example"))
    assert (same["restart"]["decision"], same["restart"]["exclude"]) == ("exclude_then_restart", ["gpu07"])
    assert "3 times" in same["restart"]["why"]
    others = document(tmp_path, XID, before(tmp_path, "gpu-hardware-fault", 2, "gpu03"))
    assert (others["restart"]["decision"], others["restart"]["exclude"]) == ("undecided", [])
    assert "on other hosts" in others["restart"]["why"]


def test_the_verdict_is_the_same_and_other_jobs_count_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    volatile = ("timing", "restart")
    without = document(tmp_path, CRASH, before(tmp_path / "elsewhere", "process-crashed", 5))
    assert "repeats" not in without["restart"], "logs of other names are other jobs"
    with_ = document(tmp_path, CRASH, before(tmp_path, "process-crashed", 5))
    assert {k: v for k, v in without.items() if k not in volatile} == {
        k: v for k, v in with_.items() if k not in volatile
    }


def test_the_first_screen_says_it_in_one_line(tmp_path: Path) -> None:
    made = document(tmp_path, HANGUP, before(tmp_path, "terminal-hangup", 2))
    lines = render(made, "text").decode().splitlines()
    (line,) = [line for line in lines if line.startswith("  restart: ")]
    assert line.startswith("  restart: Not decided: The same cause ended this job 2 times") and len(line) <= 100
    assert len(lines) <= 15
    assert "同一原因" in render(made, "text", lang="zh").decode()
    assert "2 times in the 14 days" in render(made, "brief").decode()


def test_paths_differ_in_numbers_only() -> None:
    names = recurrence.job_names(["/logs/slurm-1001.out", "/logs/slurm-17.out", "<stdin>", "node1:/tmp/x.log"])
    assert names == {"/logs/slurm-0.out"}
