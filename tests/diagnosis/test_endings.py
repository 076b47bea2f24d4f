"""Who ended, and how a log ends: ranks that launchers name, the one rank unheard of, waiting without end."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage import diagnose
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

TIMED_OUT = (
    "[rank{rank}]:[E101 08:00:00.000000001 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600013 "
    "milliseconds before timing out.\n"
)
FRAMES = """Traceback (most recent call last):
  File "/a/train.py", line 7, in <module>
    loader = {call}
  File "/opt/venv/lib/python3.11/site-packages/{file}", line 9, in {function}
    return {call}
torch.AcceleratorError: CUDA error: out of memory
"""


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("ERROR:composer.cli.launcher:Rank 2 crashed with exit code -11.", 2),
        ("Container rank 5 status failed cmd ['python', '-u', 'train.py'] code -6 log log/workerlog.5", 5),
        ("text_generation_launcher: Shard process was signaled to shutdown with signal 11 rank=3", 3),
    ],
    ids=["composer", "paddle", "text-generation-inference"],
)
def test_a_launcher_names_the_rank_that_ended(line: str, rank: int, rules: RuleSet) -> None:
    top = diagnose_text(line + "\n", rules).candidates[0]
    assert top.id == "process-crashed"
    assert [culprit.rank for culprit in top.culprits] == [rank]


def suspects(ranks: list[int], rules: RuleSet, more: str = "") -> set[int | None]:
    text = "".join(TIMED_OUT.format(rank=rank) for rank in ranks) + more
    return {culprit.rank for candidate in diagnose_text(text, rules).candidates for culprit in candidate.culprits}


def test_the_only_gap_among_ranks_that_timed_out_is_a_suspect(rules: RuleSet) -> None:
    assert suspects([0, 1, 3], rules) == {2}
    assert suspects([0, 2], rules) == {1}


@pytest.mark.parametrize("ranks", [[1], [0, 1, 2], [0, 3, 4]], ids=["too few", "no gap", "two gaps"])
def test_other_gaps_name_nobody(ranks: list[int], rules: RuleSet) -> None:
    assert suspects(ranks, rules) == set()


@pytest.mark.parametrize(
    ("call", "file", "function", "cause"),
    [
        ("tensor.pin_memory()", "torch/storage.py", "pin_memory", "host-out-of-memory"),
        ("tensor.to(device)", "torch/nn/modules/module.py", "convert", "gpu-out-of-memory"),
    ],
)
def test_memory_that_is_pinned_is_the_hosts(call: str, file: str, function: str, cause: str, rules: RuleSet) -> None:
    text = FRAMES.format(call=call, file=file, function=function)
    assert diagnose_text(text, rules).candidates[0].id == cause


@pytest.mark.parametrize(("minutes", "healthy"), [(1, True), (4, False)])
def test_a_log_that_ends_in_waiting_is_not_healthy(minutes: int, healthy: bool, rules: RuleSet) -> None:
    text = "INFO:     Application startup complete.\n"
    for minute in range(minutes):
        text += f"INFO 11-02 08:1{minute}:00 [shm_broadcast.py:466] No available shared memory broadcast block found\n"
    assert (diagnose_text(text, rules).verdict == "healthy") is healthy


READY = (
    "node1:41:52 [0] NCCL INFO ncclCommInitRank comm 0x55d0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 7000 "
    "commId 0x91b2 - Init COMPLETE\n"
)
UNHEARD = "node1:41:60 [0] ring.cc:130 NCCL WARN Segment of the wheel could not be turned\n"
STEP = "[rank0]: step {step}/100 loss 2.31\n"


@pytest.mark.parametrize(
    ("after", "healthy"),
    [("", False), ("node1:41:60 [0] NCCL INFO ring.cc:11 -> 3\n", False), (STEP.format(step=2), True)],
    ids=["nothing", "the way out", "the next step"],
)
def test_a_log_that_ends_in_a_warning_of_nccl_that_nobody_knows_is_not_healthy(
    after: str, healthy: bool, rules: RuleSet
) -> None:
    text = READY + STEP.format(step=1) + UNHEARD + after
    assert (diagnose_text(text, rules).verdict == "healthy") is healthy


@pytest.mark.parametrize(
    ("last", "healthy"),
    [
        ("2026-10-09 12:00:00 ERROR trainer: upload of the shard failed, giving up", False),
        ("FATAL: could not open the ledger", False),
        ("[rank0]: the error rate is 0.3, not a failure", True),
        ("2026-10-09 12:00:00 ERROR trainer: upload failed, again\n[rank0]: step 2/100 loss 2.30", True),
    ],
    ids=["level", "word", "in passing", "the next step"],
)
def test_a_log_that_ends_in_an_error_that_nobody_knows_is_not_healthy(last: str, healthy: bool, rules: RuleSet) -> None:
    assert (diagnose_text(STEP.format(step=1) + last + "\n", rules).verdict == "healthy") is healthy


def test_figures_of_several_engines_are_no_work_that_ranks_announce(rules: RuleSet) -> None:
    line = (
        "[rank{rank}]: INFO 06-03 14:0{minute}:10 [loggers.py:111] Engine 000: Avg prompt throughput: {tokens}.9 tokens/s, "
        "Avg generation throughput: {tokens}.1 tokens/s, Running: {rank}7 reqs, Waiting: 0 reqs, GPU KV cache usage: 9{rank}.1%, "
        "Prefix cache hit rate: 3{minute}.4%\n"
    )
    text = "".join(line.format(rank=r, minute=m, tokens=900 + 7 * r + m) for m in range(8) for r in range(4))
    assert diagnose_text(text, rules).verdict == "healthy"


INIT = """gpu-a:18:18 [0] NCCL INFO Bootstrap : Using eth0:10.6.3.32<0>
gpu-a:18:18 [0] NCCL INFO NET/Socket : Using [0]eth0:10.6.3.32<0>
"""
UP = "gpu-a:18:42 [0] NCCL INFO comm 0x7f01 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 2000 - Init COMPLETE\n"


@pytest.mark.parametrize(
    ("text", "verdict"), [(INIT, "unknown"), (INIT + UP, "unknown"), (INIT + "step 1/10 loss 2.31\n", "healthy")]
)
def test_a_log_that_ends_while_nccl_comes_up_is_not_called_healthy(text: str, verdict: str, rules: RuleSet) -> None:
    found = diagnose_text(text, rules)
    assert found.verdict == verdict
    if text == INIT:
        assert "during setup" in found.to_dict()["headline"]


CLOSED = '[rank{r}]: Traceback (most recent call last):\n[rank{r}]:   File "/app/train.py", line 41, in <module>\n[rank{r}]:     loss.backward()\n[rank{r}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.5]:24961\n'  # fmt: skip
REPORT = "[{n}]:\n  time      : 2025-11-27_21:03:54\n  host      : node-1\n  rank      : {r} (local_rank: {r})\n  exitcode  : {code} (pid: 40{r})\n  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"  # fmt: skip
AGENT = "E1127 21:03:54.382000 3388 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) local_rank: {r} (pid: 40{r}) of binary: /opt/venv/bin/python3\n"
STOPPED = "W1127 21:03:54.182000 3388 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 40{r} closing signal SIGTERM\n"


def ended(first: int, code: int, entries: list[tuple[int, int]], stopped: tuple[int, ...] = ()) -> str:
    """Return the log of three ranks of which 0 and 2 lose their connections, and what torchrun says of it."""
    steps = "".join(
        f"2025-11-27 21:03:4{n},311 [rank{r}] INFO train: step {n} loss 0.7\n" for n in range(3) for r in range(3)
    )
    told = "".join(STOPPED.format(r=r) for r in stopped) + AGENT.format(code=code, r=first)
    told += "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============\ntrain.py FAILED\n------------\nFailures:\n"
    told += "".join(REPORT.format(n=n, r=r, code=c) for n, (r, c) in enumerate(entries, 1))
    told += "Root Cause (first observed failure):\n" + REPORT.format(n=0, r=first, code=code)
    return steps + CLOSED.format(r=0) + CLOSED.format(r=2) + told


def test_a_silent_rank_left_by_itself_if_the_agent_had_nobody_to_stop(rules: RuleSet) -> None:
    left = diagnose_text(ended(0, 1, [(2, 1)]), rules)
    assert (left.cause, [c.rank for c in left.candidates[0].culprits]) == ("rank-divergence", [1])
    # A release that lists only failures also leaves out a rank that was running.
    assert diagnose_text(ended(0, 1, [(2, 1)], stopped=(1,)), rules).case.value("process.clean_exit_ranks") is None


def report(entries: list[tuple[int, int]], stopped: tuple[int, ...]) -> str:
    """Return what torchrun says of ranks whose own output is elsewhere: its files were redirected."""
    told = "".join(STOPPED.format(r=r) for r in stopped) + AGENT.format(code=1, r=0)
    told += "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============\ntrain.py FAILED\n------------\nFailures:\n"
    told += "".join(REPORT.format(n=n, r=r, code=c) for n, (r, c) in enumerate(entries, 1))
    return told + "Root Cause (first observed failure):\n" + REPORT.format(n=0, r=0, code=1)


def test_a_gap_in_the_report_of_all_workers_had_left_before(rules: RuleSet) -> None:
    left = diagnose_text(report([(1, -15), (3, 1), (4, -15)], (1, 4)), rules)
    assert (left.cause, [c.rank for c in left.candidates[0].culprits]) == ("rank-divergence", [2])
    # A worker that was stopped and ended well is not in the report either, nor are those of old releases.
    stopped = report([(1, -15), (3, 1), (4, -15)], (1, 2, 4))
    assert diagnose_text(stopped, rules).case.value("process.clean_exit_ranks") is None
    assert diagnose_text(report([(3, 1)], ()), rules).case.value("process.clean_exit_ranks") is None


@pytest.mark.parametrize("code", [-9, 1])
def test_of_ranks_that_all_ended_alike_the_first_is_not_named(code: int, rules: RuleSet) -> None:
    told = report([(r, code) for r in range(1, 4)], ()).replace("exitcode  : 1 ", f"exitcode  : {code} ")
    found = diagnose_text(told.replace("(exitcode: 1)", f"(exitcode: {code})"), rules)
    assert found.case.value("process.ended_alike") == code
    assert not [c for one in found.candidates for c in one.culprits if c.rank is not None]


def test_a_loopback_name_is_no_host_to_blame(rules: RuleSet) -> None:
    lines = (*(f"step {n}/9 loss 2.1" for n in range(3)), *CLOSED.format(r=0).splitlines()[:2], "KeyError: 'k'")
    found = diagnose_text("".join(f"localhost: {line}\n" for line in lines), rules)
    assert [c.host for c in found.candidates[0].culprits] in ([], [None])


def test_ranks_that_failed_together_without_words_are_no_exception_of_one(rules: RuleSet) -> None:
    found = diagnose_text(report([(1, 1), (2, -15), (3, 1)], (2,)), rules)
    assert found.case.value("process.failed_together") == 3
    assert found.verdict == "unknown"
    assert diagnose_text(report([(1, -15), (2, -15)], (1, 2)), rules).case.value("process.failed_together") is None


def test_the_silent_rank_that_left_first_with_an_error_was_ended_by_its_program(rules: RuleSet) -> None:
    first = diagnose_text(ended(1, 1, [(0, -15), (2, -15)], stopped=(0, 2)), rules)
    assert (first.cause, [c.rank for c in first.candidates[0].culprits]) == ("application-exception", [1])
    victim = diagnose_text(ended(0, 1, [(1, -15), (2, -15)], stopped=(1, 2)), rules)
    assert victim.cause != "application-exception", "a rank that lost a connection exits with 1 as well"


TOLD_TO_STOP = (
    "W0611 12:{minute}:10.160000 917 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting "
    "down workers\n"
    "W0611 12:{minute}:10.164000 917 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 1096 closing "
    "signal SIGTERM\n"
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 917 got signal: 15\n"
)
GAVE_CODE = (
    "E0611 12:02:00.273000 917 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) local_rank: 1 "
    "(pid: 997) of binary: /usr/bin/python3\n"
)
TIMED = "2026-06-11 {hour:02}:{minute:02}:{second:02} | INFO | rank={rank} | train:88 - step {step}/400 loss=2.{step}\n"
#: Where two ranks wait for a third, as Python's faulthandler dumps it.
DUMPED = (
    "Timeout (0:05:00)!\n"
    "Thread 0x00007f728c421b80 (most recent call first):\n"
    '  File "/opt/torch/distributed/distributed_c10d.py", line 3252 in all_reduce\n'
    '  File "/opt/train.py", line 46 in train_step\n'
    '  File "/opt/train.py", line 108 in <module>\n'
)
ELSEWHERE = (
    "Timeout (0:05:00)!\n"
    "Thread 0x00007f0a1a815b80 (most recent call first):\n"
    '  File "/opt/train.py", line 35 in train_step\n'
    '  File "/opt/train.py", line 108 in <module>\n'
)


def steps(hour: int = 12, last: int = 8) -> str:
    """Return the steps of two ranks, one each 10 seconds from the hour on."""
    return "".join(
        TIMED.format(hour=hour, minute=step // 6, second=step % 6 * 10, rank=rank, step=step)
        for step in range(last)
        for rank in range(2)
    )


@pytest.mark.parametrize(
    ("text", "before"),
    [
        (steps(), []),
        (steps() + GAVE_CODE.format(code=1), ["failed-before-stop"]),
        (steps() + GAVE_CODE.format(code=-15), []),
        (steps() + GAVE_CODE.format(code=143), []),
        (GAVE_CODE.format(code=1) + steps(), []),
        (steps() + DUMPED + ELSEWHERE + DUMPED, None),
    ],
    ids=["stepped", "failed", "stopped", "stopped by a shell", "went on after a restart", "hung by its stacks"],
)
def test_a_job_that_had_failed_or_hung_was_not_just_stopped(
    text: str, before: list[str] | None, rules: RuleSet
) -> None:
    found = diagnose_text(text + TOLD_TO_STOP.format(minute="02"), rules)
    known = bool(before or before is None)
    if before is not None:
        assert found.case.story.outcome.was_before_stop is bool(before)
        assert not before or found.case.story.outcome.decision.rule == f"outcome.{before[0]}"
    top = found.candidates[0]
    assert (found.verdict, top.id) != ("diagnosed", "job-preempted") if known else top.id == "job-preempted"
    assert known or (found.verdict == "diagnosed" and top.confidence > 0.9)


@pytest.mark.parametrize(
    ("text", "minute", "stalled"),
    [
        (steps(), "02", False),
        (steps(), "05", False),
        (steps(), "12", True),
        (steps(hour=8), "12", True),
        (steps(hour=8), "01", False),
        (steps(last=3), "12", False),
        (steps() + "Saving checkpoint to /out/step-8\n", "12", False),
    ],
    ids=["stepped", "paused", "long", "hours", "other time zone", "few steps", "saved"],
)
def test_no_step_for_much_longer_than_ever_before_is_a_hang(
    text: str, minute: str, stalled: bool, rules: RuleSet
) -> None:
    found = diagnose_text(text + TOLD_TO_STOP.format(minute=minute), rules)
    assert (found.case.story.outcome.decision.rule == "outcome.stalled-before-stop") is stalled
    assert (found.verdict == "diagnosed" and found.candidates[0].id == "job-preempted") is not stalled


def test_what_fails_after_the_stop_or_on_another_host_is_its_result(rules: RuleSet) -> None:
    stop, failed = TOLD_TO_STOP.format(minute="01"), GAVE_CODE.format(code=1)
    later = failed + TOLD_TO_STOP.format(minute="03").replace(" 917 ", " 918 ")
    # The hosts' lines may arrive in another order, and their launchers may be told to stop one after the other.
    for text in (stop + failed, failed + stop, stop + later):
        found = diagnose_text(steps() + text, rules)
        assert not found.case.story.outcome.was_before_stop
        assert (found.verdict, found.candidates[0].id) == ("diagnosed", "job-preempted")


def test_a_time_limit_is_the_reason_only_of_a_job_that_was_at_work(rules: RuleSet) -> None:
    limit = "slurmstepd: error: *** STEP 41.0 ON node0 CANCELLED AT 2026-06-11T12:{}:10 DUE TO TIME LIMIT ***\n"
    stopped = diagnose_text(steps() + limit.format("02") + TOLD_TO_STOP.format(minute="02"), rules)
    assert (stopped.verdict, stopped.candidates[0].id) == ("diagnosed", "job-preempted")
    hung = diagnose_text(steps() + limit.format("12") + TOLD_TO_STOP.format(minute="12"), rules)
    assert hung.case.story.outcome.state == "hung"
    assert (hung.verdict, hung.candidates[0].id if hung.candidates else "") != ("diagnosed", "job-preempted")


def test_a_host_that_is_stopped_last_fails_because_of_the_first(tmp_path: Path, rules: RuleSet) -> None:
    (tmp_path / "a.log").write_text(steps() + TOLD_TO_STOP.format(minute="01"), "utf-8")
    (tmp_path / "b.log").write_text(steps() + GAVE_CODE.format(code=1) + TOLD_TO_STOP.format(minute="03"), "utf-8")
    assert not diagnose(tmp_path, rules=rules).case.story.outcome.was_before_stop
    outcome = diagnose(tmp_path / "b.log", rules=rules).case.story.outcome
    assert outcome.decision.rule == "outcome.failed-before-stop"
