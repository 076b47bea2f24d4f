"""What the kernel says of the processes of a hanging job: who differs is named without stacks, and no crash where all live."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose
from nccl_triage.document.diagnosis import Diagnosis
from nccl_triage.engine.schema import RuleSet

WAITS = {"state": "S", "wchan": "futex_do_wait"}
STACK = 'Process {pid}: python train.py\nPython v3.11.7 (python3)\n\nThread {pid} (idle): "MainThread"\n    all_reduce (torch/distributed/distributed_c10d.py:2810)\n    train (train.py:9)\n'


def examined(folder: Path, rules: RuleSet, *last: dict[str, Any], **host: Any) -> Diagnosis:
    """Diagnose a folder of evidence of ranks, each with what the kernel said of it last, a second after a first look."""
    ranks = []
    for rank, state in enumerate(last):
        samples = [{"time": 10.0, "cpu_seconds": 4.0, "gpu": False, **state}]
        samples.append({**samples[0], "time": 11.0, "cpu_seconds": 4.0 + state.get("cpu", 0.0)})
        ranks.append(
            {"pid": 11 + rank, "rank": rank, "world_size": len(last), "command": "python train.py", "samples": samples}
        )
    made = {"kind": "nccl-triage-hang", "time": "now", "hosts": [{"host": "gn01", "ranks": ranks, **host}]}
    (folder / "hang.json").write_text(json.dumps(made, sort_keys=True), "utf-8")
    return diagnose(folder, rules=rules)


@pytest.mark.parametrize(
    ("odd", "cause", "stands"),
    [
        ({"state": "S", "wchan": "hrtimer_nanosleep"}, "rank-divergence", "hrtimer_nanosleep"),
        ({"state": "S", "wchan": "pipe_read"}, "rank-divergence", "pipe_read"),
        ({"state": "S", "syscall": "35 0x7ffd 0x0"}, "rank-divergence", "syscall_35"),
        ({"state": "R", "cpu": 0.97}, "straggler", "state R (CPU 0.97)"),
        ({"state": "D", "wchan": "rpc_wait_bit_killable"}, "straggler", "state D (rpc_wait_bit_killable)"),
    ],
)
def test_who_differs_from_most_is_named(
    tmp_path: Path, rules: RuleSet, odd: dict[str, Any], cause: str, stands: str
) -> None:
    best, document = (found := examined(tmp_path, rules, WAITS, odd, WAITS)).candidates[0], found.to_dict()
    assert (best.id, [(one.rank, one.pid) for one in best.culprits]) == (cause, [(1, 12)])
    assert document["headline"] == f"Possibly: Rank 1 is in {stands} and 2 others in futex_do_wait, by the kernel."
    assert document["outcome"]["state"] == "hung"


def test_a_stopped_process_is_named_although_its_stack_waits_like_the_others(tmp_path: Path, rules: RuleSet) -> None:
    for pid in (11, 12, 13):
        (tmp_path / f"stack.gn01.{pid}.txt").write_text(STACK.format(pid=pid), "utf-8")
    best = examined(tmp_path, rules, WAITS, WAITS, {"state": "T", "wchan": "do_signal_stop"}).to_dict()["diagnoses"][0]
    assert (best["cause"], [one["rank"] for one in best["culprits"]]) == ("straggler", [2])
    assert any("kill -CONT 13" in fix["commands"] for fix in best["fixes"])


@pytest.mark.parametrize(
    "states",
    [
        [WAITS, WAITS],
        [WAITS, {"state": "S", "wchan": "poll_schedule_timeout"}],
        [{"state": "T"}, {"state": "T"}],
        [{"state": "R", "cpu": 0.9}, {"state": "R", "cpu": 0.9}],
        [{"state": "S"}, {"state": "S"}],
    ],
)
def test_nobody_is_named_where_nobody_differs_from_most(
    tmp_path: Path, rules: RuleSet, states: list[dict[str, Any]]
) -> None:
    assert examined(tmp_path, rules, *states).verdict == "unknown"


def test_those_that_poll_wait_as_well_as_one_that_sleeps_between(tmp_path: Path, rules: RuleSet) -> None:
    """NCCL's processes take a whole processor while they wait for the GPU."""
    polls = {"state": "R", "cpu": 1.0, "gpu": True}
    best = examined(tmp_path, rules, polls, polls, {"state": "S", "wchan": "pipe_read"}, polls).candidates[0]
    assert (best.id, [one.rank for one in best.culprits]) == ("rank-divergence", [2])


def test_no_process_has_crashed_where_all_live(tmp_path: Path, rules: RuleSet) -> None:
    """The words of a stack remind the classifier of crashes."""
    for pid in (11, 12):
        (tmp_path / f"stack.gn01.{pid}.txt").write_text(STACK.format(pid=pid), "utf-8")
    dead = {"process-crashed", "host-out-of-memory", "job-preempted"}
    assert dead.isdisjoint(one.id for one in examined(tmp_path, rules, WAITS, WAITS).candidates)
    lost = examined(tmp_path, rules, WAITS, WAITS, {"gone": True})
    assert lost.case.value("hang.all_there") is None
    (tmp_path / "dmesg.log").write_text(
        "[Thu Nov 26 10:00:00 2026] Out of memory: Killed process 4711 (pt_data_worker) total-vm:9kB, anon-rss:8kB\n",
        "utf-8",
    )
    assert examined(tmp_path, rules, WAITS, WAITS).candidates[0].id == "host-out-of-memory", "a worker of a rank"


@pytest.mark.parametrize(
    ("code", "cause", "headline"),
    [
        (None, "rank-divergence", "Likely: Rank 2 on gn01 is gone: it has no process any more, and the others go on without it."),
        (0, "rank-divergence", "Likely: Rank 2 on gn01 exited with code 0 while the others went on."),
        (-9, "process-crashed", "Likely: Rank 2 on gn01 was killed by SIGKILL."),
        (-11, "process-crashed", "Likely: Rank 2 on gn01 crashed with SIGSEGV (segmentation fault)."),
        (3, "application-exception", "Likely: Rank 2 on gn01 exited with code 3."),
        ("x", "rank-divergence", "Likely: Rank 2 on gn01 is gone: it has no process any more, and the others go on without it."),
    ],
)  # fmt: skip
def test_a_rank_without_a_process_is_gone_and_its_exit_code_tells_more(
    tmp_path: Path, rules: RuleSet, code: object, cause: str, headline: str
) -> None:
    (tmp_path / "train.log").write_text("step 1/9 loss 2.0\nstep 2/9 loss 1.9\n", "utf-8")
    found = examined(tmp_path, rules, WAITS, WAITS, without_process=[2], exit_codes={"2": code})
    assert found.candidates[0].id == cause
    assert [one.rank for one in found.candidates[0].culprits] == [2]
    assert found.to_dict()["headline"] == headline
    assert found.to_dict()["outcome"]["state"] == "hung"
