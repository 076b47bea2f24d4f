"""How a run ended, told from its last lines, whatever program printed them."""

from __future__ import annotations

import pytest

from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.store import Observations
from tests.scan_helpers import diagnose_text, scan_text

STEPS = "".join(f"step {n}/10 loss 2.{n}\n" for n in range(1, 10))
LAST = "step 10/10 loss 2.0\n"
INIT = "gpu-a:18:18 [0] NCCL INFO Bootstrap : Using eth0:10.6.3.32<0>\n"
TIMED_OUT = "[rank0]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600030 milliseconds before timing out.\n"  # fmt: skip
ENGINE = "INFO 06-02 20:18:27 core.py:159] init engine (profile, create kv cache, warmup model) took 102.28 seconds\n"
WAITS = "INFO 05-19 09:42:12 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds.\n"
LEAVES = "[rank0]:[W1206 18:44:12.715298746 ProcessGroupNCCL.cpp:1250] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.\n"  # fmt: skip
BROKEN = "[rank1]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:24001\n"  # fmt: skip
INTERRUPTED = '^CTraceback (most recent call last):\n  File "/app/train.py", line 90, in <module>\n    main()\nKeyboardInterrupt\n'


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (STEPS, "running"),
        (STEPS + "Training completed.\n", "finished"),
        (STEPS + "Job 'raysubmit_8Zk2pW' succeeded\n", "finished"),
        (STEPS + "Benchmark run finished successfully in 512 s\n", "finished"),
        (STEPS + "INFO:     Application shutdown complete.\n", "finished"),
        (STEPS + LAST + BROKEN, "finished"),
        (STEPS + LEAVES + BROKEN, "finished"),
        (STEPS + BROKEN + LEAVES, "failed"),
        (STEPS + BROKEN, "failed"),
        (STEPS + TIMED_OUT, "hung"),
        (STEPS + TIMED_OUT + BROKEN, "hung"),
        (STEPS + BROKEN + TIMED_OUT, "failed"),
        (STEPS + INTERRUPTED, "stopped"),
        (STEPS + "ValueError: bent\n" + INTERRUPTED, "failed"),
        (STEPS + INTERRUPTED + "worker-3 exited with code 130\n", "stopped"),
        (STEPS + INTERRUPTED + "worker-3 exited with code -9\n", "failed"),
        (STEPS + TIMED_OUT + "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-06-03T18:00:00 ***\n", "hung"),
        (STEPS + "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-06-03T18:00:00 DUE TO TIME LIMIT ***\n", "stopped"),
        (STEPS + "INFO 11-02 08:12:00 [shm_broadcast.py:466] No available shared memory broadcast block found\n" * 4, "hung"),
        (STEPS + 'Traceback (most recent call last):\n  File "/app/train.py", line 90, in <module>\n', "failed"),
        (STEPS + "2026-10-09 12:00:00 ERROR trainer: the upload failed\n", "failed"),
        (INIT, "cut"),
        (ENGINE, "cut"),
        (ENGINE + "INFO:     Application startup complete.\n", "running"),
        (LEAVES, "finished"),
        ("Requested train epochs: 10; iterations: 158\n", "none"),
        (WAITS * 3, "hung"),
        (WAITS * 3 + ENGINE, "cut"),
        ("#       size         count      type   redop    root     time   algbw   busbw #wrong\n", "hung"),
        ("some text of somebody\n" * 9, "none"),
    ],
)  # fmt: skip
def test_the_outcome(text: str, state: str, rules: RuleSet) -> None:
    found = diagnose_text(text, rules)
    assert found.case.story.outcome.state == state
    assert (found.verdict == "healthy") is (state in ("finished", "running"))


def test_what_ends_before_an_end_accuses_nobody(rules: RuleSet) -> None:
    assert diagnose_text(INIT, rules).verdict == "unknown"
    assert diagnose_text("", rules).verdict == "unknown"


def test_a_finished_rank_is_not_a_finished_job(rules: RuleSet) -> None:
    ranks = "".join(f"[rank{rank}]: step 1/9 loss 2.1\n" for rank in range(3))
    one = ranks + "[rank0]: training finished\n" + BROKEN
    assert diagnose_text(one, rules).verdict != "healthy"
    every = ranks + "".join(f"[rank{rank}]: training finished\n" for rank in range(3)) + BROKEN
    assert diagnose_text(every, rules).verdict == "healthy"


RESULT = (
    "Result(metrics={'loss': 0.06, 'step': 5}, checkpoint=None, error=None, path='/r/run', metrics_dataframe=  loss)\n"
)
THREAD = (
    "(Cleaner pid=24380) Exception in thread CleanerMonitor:\n"
    "(Cleaner pid=24380) Traceback (most recent call last):\n"
    '(Cleaner pid=24380)   File "/app/monitor.py", line 9, in run\n'
    "(Cleaner pid=24380)     self.ask()\n"
    "(Cleaner pid=24380) {}\n"
)


def test_threads_that_ask_a_cluster_that_is_gone_undo_no_end(rules: RuleSet) -> None:
    gone = THREAD.format("ray.exceptions.RpcError: Timed out while waiting for GCS to become available.")
    assert diagnose_text(STEPS + RESULT + gone, rules).verdict == "healthy"
    assert diagnose_text(STEPS + RESULT + THREAD.format("KeyError: 'label'"), rules).verdict != "healthy"
    assert (
        diagnose_text(STEPS + RESULT.replace("error=None", "error=ValueError('x')") + gone, rules).verdict != "healthy"
    )


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({"rank0.log": 3, "rank1.log": 3}, "cut"),
        ({"rank0.log": 10, "rank1.log": 10}, "running"),
        ({"rank0.log": 3, "rank1.log": 3, "console.log": 3}, "running"),
        ({"train.log": 3}, "running"),
    ],
)
def test_files_of_ranks_do_not_tell_that_the_job_goes_on(files: dict[str, int], state: str, rules: RuleSet) -> None:
    found = Observations()
    for name, steps in files.items():
        rank = f"[rank{name[4]}]: " if name.startswith("rank") else ""
        text = "".join(f"{rank}step {n}/10 loss 2.{n}\n" for n in range(1, steps + 1))
        found.absorb(scan_text(text, rules, name))
    told = diagnose_observations(found, rules)
    assert told.case.story.outcome.state == state
    assert (told.verdict == "healthy") is (state != "cut")
    assert ("the scheduler" in str(told.to_dict(similar=False)["not_seen"])) is (state == "cut")
