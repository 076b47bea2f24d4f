"""Dumped stacks: a hang that somebody looked into is no healthy log, and who stands elsewhere is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage import diagnose
from nccl_triage.checks import samples
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts import stacks as dumped
from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text, scan_text

HEAD = 'Process {pid}: python pretrain.py\nPython v3.10.12 (/usr/bin/python3.10)\n\nThread {pid} (idle): "MainThread"\n'
TAIL = "    train_step (my_training.py:421)\n    <module> (pretrain.py:239)\n"


def dump(pid: int, *inner: str, tail: str = TAIL) -> str:
    """Return what py-spy prints of a process with these innermost frames."""
    return HEAD.format(pid=pid) + "".join(f"    {frame}\n" for frame in inner) + tail


def waits(pid: int) -> str:
    return dump(pid, "all_reduce (torch/distributed/distributed_c10d.py:2810)")


LOADS = ("wait (threading.py:320)", "get (queue.py:180)", "_try_get_data (torch/utils/data/dataloader.py:1133)")
LAUNCHER = dump(7, "SimpleElasticAgent._invoke_run (torch/distributed/elastic/agent/server/api.py:923)")
WORKER = dump(
    40,
    "Corpus.__getitem__ (corpus.py:88)",
    "fetch (torch/utils/data/_utils/fetch.py:54)",
    "_worker_loop (torch/utils/data/_utils/worker.py:374)",
)


def test_launchers_and_workers_of_loaders_are_no_ranks(rules: RuleSet) -> None:
    case = Case(scan_text(LAUNCHER + waits(11) + waits(12) + dump(13, *LOADS) + WORKER, rules), rules)
    assert case.value("stacks.dumped") == 3
    assert case.value("stacks.elsewhere") == 1
    assert case.value("stacks.elsewhere_doing") == ["data"]
    assert case.value("stacks.loading_frame") == "Corpus.__getitem__ (corpus.py:88)"


def test_the_process_that_waits_for_data_is_named(rules: RuleSet) -> None:
    diagnosis = diagnose_text(waits(11) + dump(13, *LOADS) + waits(12), rules)
    assert diagnosis.candidates[0].id == "data-pipeline-failure"
    assert diagnosis.candidates[0].culprits[0].pid == 13
    assert diagnosis.candidates[0].status != "established"
    assert diagnosis.to_dict()["headline"].startswith("Likely: pid 13 waits for its DataLoader: ")


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        ("_exit_function (multiprocessing/util.py:360)", "rank-divergence"),
        ("main_loop (ray/_private/worker.py:876)", "rank-divergence"),
        ("interaction (pdb.py:357)", "rank-divergence"),
        ("wait (torch/utils/file_baton.py:51)", "straggler"),
        ("_save (torch/serialization.py:1219)", "straggler"),
        ("open (pathlib.py:1044)", "straggler"),
    ],
)
def test_what_needs_no_other_rank_tells_the_cause(rules: RuleSet, frame: str, cause: str) -> None:
    diagnosis = diagnose_text(waits(11) + waits(12) + dump(13, frame), rules)
    assert diagnosis.candidates[0].id == cause
    assert [one.pid for one in diagnosis.candidates[0].culprits] == [13]


def test_a_majority_elsewhere_blames_nobody(rules: RuleSet) -> None:
    case = Case(scan_text(waits(11) + dump(12, *LOADS) + dump(13, *LOADS), rules), rules)
    assert case.value("stacks.elsewhere") is None
    assert case.value("stacks.diverging") == 2


def test_who_waits_at_another_place_than_the_majority_is_apart(rules: RuleSet) -> None:
    other = dump(14, "barrier (torch/distributed/distributed_c10d.py:4159)", tail="    evaluate (my_eval.py:30)\n")
    case = Case(scan_text(waits(11) + waits(12) + waits(13) + other, rules), rules)
    assert case.value("stacks.apart") == 1
    assert case.value("stacks.apart_frame") == (
        "barrier (torch/distributed/distributed_c10d.py:4159) < evaluate (my_eval.py:30)"
    )
    assert case.value("stacks.together") is None


def test_another_line_of_the_same_function_is_the_same_place(rules: RuleSet) -> None:
    other = waits(14).replace(":421", ":431")
    case = Case(scan_text(waits(11) + waits(12) + other, rules), rules)
    assert case.value("stacks.apart") is None
    assert case.value("stacks.together") == 3


def test_some_generate_and_some_have_left(rules: RuleSet) -> None:
    gather = "all_gather_coalesced (deepspeed/runtime/zero/partition_parameters.py:1344)"
    generating = [dump(pid, gather, "_sample (transformers/generation/utils.py:3465)") for pid in (11, 12, 13)]
    diagnosis = diagnose_text("".join(generating) + dump(14, gather), rules)
    assert diagnosis.candidates[0].id == "sharded-generate"
    assert diagnosis.candidates[0].culprits[0].pid == 14


def test_equal_stacks_prove_nothing_but_are_not_healthy(rules: RuleSet) -> None:
    document = diagnose_text(waits(11) + waits(12), rules).to_dict()
    assert document["verdict"] == "unknown"
    assert document["headline"] == "The job hung; its stacks do not show why."
    assert "are: 2 (pid 11, 12): all_reduce (" in document["notes"][0]
    assert "All wait in the same place" in document["notes"][0]


def calls(pid: int, *called: str, line: int = 421) -> str:
    """Return the stack of a process that waits in what the job's own code called, the innermost function first."""
    frames = [f"{name} (torch/distributed/distributed_c10d.py:{2800 + at})" for at, name in enumerate(called)]
    wrapper = "_exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)"
    return dump(pid, *frames, wrapper, tail=TAIL.replace("421", str(line)))


def test_two_that_wait_in_different_collectives_are_the_finding(rules: RuleSet) -> None:
    diagnosis = diagnose_text(calls(11, "broadcast", line=34) + calls(12, "all_reduce", line=37), rules)
    document = diagnosis.to_dict()
    assert document["headline"] == (
        "Likely: All wait, and not in the same collective: pid 11 in broadcast (my_training.py:34), "
        "pid 12 in all_reduce (my_training.py:37)."
    )
    assert diagnosis.candidates[0].id == "collective-mismatch"
    assert [one.pid for one in diagnosis.candidates[0].culprits] == [11, 12], "either may be wrong"
    assert not any("same place" in str(note) for note in document["notes"])


@pytest.mark.parametrize(
    ("others", "culprits"),
    [
        (("all_reduce", "all_reduce", "all_reduce", "barrier"), [14]),
        # Two are through a subgroup's call in which one of the others is and the last one is not.
        (("broadcast", "broadcast", "all_reduce", "barrier"), [13, 14]),
        (("broadcast", "broadcast", "barrier", "barrier"), []),
    ],
)
def test_who_is_in_another_collective_than_most_is_named(
    rules: RuleSet, others: tuple[str, ...], culprits: list[int]
) -> None:
    diagnosis = diagnose_text("".join(calls(11 + at, name) for at, name in enumerate(others)), rules)
    assert diagnosis.candidates[0].id == "collective-mismatch"
    assert sorted(one.pid or 0 for one in diagnosis.candidates[0].culprits) == culprits


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("send",), ("irecv",)),  # one's message is the other's
        (("all_gather", "all_gather_object"), ("_object_to_tensor", "all_gather_object")),
    ],
)
def test_the_call_of_the_jobs_own_code_counts(rules: RuleSet, first: tuple[str, ...], second: tuple[str, ...]) -> None:
    case = Case(scan_text(calls(11, *first) + calls(12, *second), rules), rules)
    assert case.value("stacks.calls") is None
    assert case.value("stacks.together") == 2


@pytest.mark.parametrize(("gpu", "apart"), [("no", 1), ("yes", None)])
def test_another_line_counts_where_nobody_runs_ahead_of_a_gpu(rules: RuleSet, gpu: str, apart: int | None) -> None:
    seen = "".join(SEEN.format(pid, rank, "futex_do_wait", gpu) for rank, pid in enumerate((11, 12, 13)))
    stacks = calls(11, "all_reduce") + calls(12, "all_reduce") + calls(13, "all_reduce", line=423)
    case = Case(scan_text(stacks + seen, rules), rules)
    assert case.value("stacks.apart") == apart
    assert case.value("stacks.together") == (None if apart else 3)


def test_all_wait_for_the_lock_of_a_build_that_nobody_does(rules: RuleSet) -> None:
    lock = ("wait (torch/utils/file_baton.py:50)", "load (torch/utils/cpp_extension.py:1927)")
    together = diagnose_text(dump(11, *lock) + dump(12, *lock), rules).to_dict()
    assert "All wait for a build lock" in together["notes"][0]
    builder = dump(12, "communicate (subprocess.py:1209)", "load (torch/utils/cpp_extension.py:1927)")
    assert "lock of a build" not in diagnose_text(dump(11, *lock) + builder, rules).to_dict()["notes"][0]


def test_of_repeated_dumps_the_last_one_counts(rules: RuleSet) -> None:
    case = Case(scan_text(dump(13, *LOADS) + waits(11) + waits(13), rules), rules)
    assert [one.waits for one in dumped.of_case(case)] == [True, True]


def test_a_dump_that_does_not_tell_whose_it_is_names_nobody(rules: RuleSet) -> None:
    def bare(frame: str) -> str:
        return f'Timeout (0:10:00)!\nThread 0x00007f01 (most recent call first):\n{frame}  File "t.py", line 3 in <module>\n'

    waiting = bare('  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 9 in all_reduce\n')
    loading = bare('  File "/v/site-packages/torch/utils/data/dataloader.py", line 9 in _try_get_data\n')
    diagnosis = diagnose_text(waiting + loading + waiting, rules)
    assert diagnosis.candidates[0].id == "data-pipeline-failure"
    assert diagnosis.candidates[0].culprits == []


def test_a_users_activity_is_known_and_checked(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "mine.yaml").write_text(
        "activities:\n  - id: feature-store\n    stands: elsewhere\n    frame: '\\(feature_store/'\n"
        "    meaning: Reads features.\n    match: ['get (feature_store/client.py:9)']\n    not: ['get (store.py:1)']\n"
    )
    mine = load.load((tmp_path,))
    assert samples.check_activities(mine) == []
    case = Case(scan_text(waits(11) + dump(13, "get (feature_store/client.py:9)"), mine), mine)
    assert case.value("stacks.elsewhere_doing") == ["feature-store"]


def test_samples_that_do_not_fit_are_found(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "mine.yaml").write_text(
        "activities:\n  - id: mine\n    stands: waiting\n    frame: 'reduce \\('\n    meaning: x\n"
        "    match: ['gather (a.py:1)']\n    not: ['reduce (a.py:1)']\n"
    )
    found = samples.check_activities(load.load((tmp_path,)))
    assert [one.rule for one in found] == ["mine", "mine"]


BLOCKED = "May  1 10:02:11 gpu07 kernel: INFO: task python:4123 blocked for more than 120 seconds.\n"
FRAMES = """May  1 10:02:11 gpu07 kernel: Call Trace:
May  1 10:02:11 gpu07 kernel:  __schedule+0x2cd/0x890
May  1 10:02:11 gpu07 kernel:  io_schedule+0x46/0x80
May  1 10:02:11 gpu07 kernel:  {frame}
May  1 10:02:11 gpu07 kernel:  vfs_write+0xb9/0x270
"""
STEPS = "".join(f"[2025-05-01 10:00:{n:02d}] step {n}/100 loss 2.1\n" for n in range(10))
LATE = (
    "[rank0]:[E501 10:30:10.000000000 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=101, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=1800000) ran for 1800029 "
    "milliseconds before timing out.\n"
)


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        ("ll_file_write_iter+0x1a5/0x3b0 [lustre]", "storage-fault"),
        ("cxiWaitEventWait+0x1d4/0x2b0 [mmfslinux]", "storage-fault"),
        ("nfs_wait_bit_killable+0x11/0x60 [nfs]", "storage-fault"),
        ("os_acquire_rwlock_read+0x31/0x40 [nvidia]", None),
        ("futex_wait_queue+0x60/0x90", None),
    ],
)
def test_the_stack_of_a_blocked_process_tells_where_it_waits(frame: str, cause: str | None, rules: RuleSet) -> None:
    found = diagnose_text(STEPS + BLOCKED + FRAMES.format(frame=frame) + LATE, rules)
    assert found.cause == cause
    if cause == "storage-fault":
        assert [culprit.host for culprit in found.candidates[0].culprits] == ["gpu07"]
        # The same frames far behind belong to something else (a kill for memory dumps its stack, too).
        far = "".join(f"step {n}/100\n" for n in range(10, 90)) + FRAMES.format(frame=frame)
        assert diagnose_text(STEPS + BLOCKED + far + LATE, rules).cause != "storage-fault"


def test_stacks_dumped_beside_a_log_whose_job_looks_at_work(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"[rank{rank}]: step {step} loss 2.1\n" for step in range(9) for rank in range(3)))
    assert diagnose(str(log)).verdict == "healthy"
    for pid, text in ((11, waits(11)), (12, waits(12)), (13, dump(13, *LOADS))):
        (tmp_path / f"stack.gpu07.{pid}").write_text(text)
    found = diagnose(str(tmp_path)).to_dict()
    assert (found["outcome"]["state"], found["diagnoses"][0]["cause"]) == ("hung", "data-pipeline-failure")
    assert [culprit["pid"] for culprit in found["diagnoses"][0]["culprits"]] == [13]


def test_a_job_that_dumps_its_own_stacks_at_intervals_is_at_work(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("".join(f"[rank0]: step {step} loss 2.1\n" for step in range(9)))
    stack = 'Timeout (0:10:00)!\nThread 0x00007f1 (most recent call first):\n  File "train.py", line 88 in train\n'
    (tmp_path / "rank1.stacks").write_text(stack)
    assert diagnose(str(tmp_path)).verdict == "healthy"


SEEN = "nccl-triage hang: host=gn01 pid={} rank={} local_rank=0 world_size=3 state=S wchan={} gpu={} runs: python pretrain.py\n"
OWN = ("export (pretrain.py:31)",)


@pytest.mark.parametrize(
    ("wchan", "gpu", "away"),
    [("futex_do_wait", "no", 1), ("hrtimer_nanosleep", "yes", 1), ("poll_schedule_timeout", "yes", None)],
)
def test_own_code_needs_no_other_rank_where_no_gpu_is_waited_for(
    rules: RuleSet, wchan: str, gpu: str, away: int | None
) -> None:
    seen = "".join(SEEN.format(pid, rank, wchan, gpu) for rank, pid in enumerate((11, 12, 13)))
    case = Case(scan_text(waits(11) + waits(12) + dump(13, *OWN) + seen, rules), rules)
    assert case.value("stacks.elsewhere") == away


def test_who_moved_between_two_dumps_is_slow_and_not_stuck(rules: RuleSet) -> None:
    seen = "".join(SEEN.format(pid, rank, "futex_do_wait", "no") for rank, pid in enumerate((11, 12, 13)))
    first, second = ("export (pretrain.py:31)",), ("compress (pretrain.py:47)", "export (pretrain.py:33)")
    still = waits(11) + waits(12)
    diagnosis = diagnose_text(still + dump(13, *first) + still + dump(13, *second) + seen, rules)
    assert diagnosis.candidates[0].id == "straggler"
    assert [one.pid for one in diagnosis.candidates[0].culprits] == [13]
    notes = [str(note) for note in diagnosis.to_dict()["notes"]]
    assert any(
        "1 of 3 processes (rank 2) moved between two dumps: they run, and are not blocked." in note for note in notes
    )
    stuck = diagnose_text(2 * (still + dump(13, *first)) + seen, rules)
    assert stuck.candidates[0].id == "rank-divergence"


@pytest.mark.parametrize(("cpu", "cause"), [("0.97", "straggler"), ("0.01", "rank-divergence")])
def test_who_takes_processor_time_is_slow_and_not_stuck(rules: RuleSet, cpu: str, cause: str) -> None:
    seen = "".join(SEEN.format(pid, rank, "-", "no") for rank, pid in enumerate((11, 12, 13)))
    seen = seen.replace("gpu=no", "gpu=no cpu=0.00").replace("pid=13", "pid=99")
    busy = SEEN.format(13, 2, "-", "no").replace("gpu=no", f"gpu=no cpu={cpu}")
    assert diagnose_text(waits(11) + waits(12) + dump(13, *OWN) + seen + busy, rules).candidates[0].id == cause


def test_a_job_of_which_most_processes_move_does_not_hang(tmp_path: Path, rules: RuleSet) -> None:
    log = "".join(f"step {step}/100 loss {2 - step / 100:.2f}\n" for step in range(1, 9))
    (tmp_path / "train.log").write_text(log, "utf-8")
    for pid in (11, 12, 13):
        twice = waits(pid) + dump(
            pid, "linear (my_layers.py:7)", "forward (my_model.py:20)", tail=TAIL.replace("421", "417")
        )
        (tmp_path / f"stack.gn01.{pid}.txt").write_text(twice if pid != 12 else 2 * waits(pid), "utf-8")
    assert diagnose(tmp_path, rules=rules).to_dict()["outcome"]["state"] == "running"
    for pid in (11, 13):
        polls = dump(pid, "poll (my_queue.py:7)") + dump(pid, "ready (my_queue.py:20)", "poll (my_queue.py:8)")
        (tmp_path / f"stack.gn01.{pid}.txt").write_text(polls, "utf-8")
    assert diagnose(tmp_path, rules=rules).to_dict()["outcome"]["state"] == "hung"


def test_a_worker_of_ray_that_runs_own_code_is_not_idle(rules: RuleSet) -> None:
    loop = "    Worker.main_loop (ray/_private/worker.py:1069)\n"
    busy = dump(13, *OWN, tail=loop)
    case = Case(scan_text(waits(11) + waits(12) + busy, rules), rules)
    assert case.value("stacks.elsewhere") is None
    case = Case(scan_text(waits(11) + waits(12) + dump(13, tail=loop), rules), rules)
    assert case.value("stacks.elsewhere_doing") == ["idle"]


def test_a_rank_that_dumps_itself_is_known_by_its_number(tmp_path: Path, rules: RuleSet) -> None:
    """Faulthandler tells no pid; torchrun's log folder tells the rank."""
    for rank, frame in enumerate(["all_reduce", "export_report", "all_reduce"]):
        file = (
            "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py" if rank != 1 else "/home/a/fh.py"
        )
        folder = tmp_path / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        stack = f'  File "{file}", line 4 in {frame}\n  File "/home/a/fh.py", line 7 in train\n'
        (folder / "stderr.log").write_text(f"Current thread 0x00007f (most recent call first):\n{stack}", "utf-8")
    seen = "".join(SEEN.format(20 + rank, rank, "hrtimer_nanosleep" if rank == 1 else "-", "yes") for rank in range(3))
    (tmp_path / "seen.log").write_text(seen, "utf-8")
    found = diagnose(tmp_path, rules=rules)
    assert found.candidates[0].id == "rank-divergence"
    assert [one.rank for one in found.candidates[0].culprits] == [1]
    assert found.case.value("stacks.elsewhere_frame").startswith("export_report (")
