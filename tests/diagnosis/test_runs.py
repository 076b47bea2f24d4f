"""Several runs in one log, signs of trouble without an error line, and logs that end in the middle."""

from __future__ import annotations

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

WITH = "w:{0}:{0} [{1}] NCCL INFO Channel 00/0 : {1}[{1}] -> 0[0] via P2P/IPC\n"
OFF = "w:{0}:{0} [{1}] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"
STOPPED = "W0624 22:41:20.114000 3298 torch/distributed/elastic/agent/server/api.py:739] Received 15 death signal, shutting down workers\n"
SCALE = "| WARNING: overflow detected, setting loss scale to: {}\n"


def test_a_process_that_nobody_knew_and_comes_up_behind_a_stopped_launcher_is_the_next_run(rules: RuleSet) -> None:
    again = WITH.format(10, 1) + STOPPED + OFF.format(20, 1)
    worked = diagnose_text(again + "step 1 loss 2.0\n", rules)
    assert worked.verdict == "healthy"
    assert [run["state"] for run in worked.to_dict()["runs"]] == ["stopped", "running"]
    assert [run["state"] for run in diagnose_text(again + STOPPED, rules).to_dict()["runs"]] == ["stopped", "stopped"]


def test_a_second_run_without_p2p_of_which_nothing_bad_is_known_speaks_against_p2p(rules: RuleSet) -> None:
    shared = "w:20:20 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct\n"
    diagnosis = diagnose_text(WITH.format(10, 1) + STOPPED + OFF.format(20, 1) + shared, rules)
    assert diagnosis.cause == "gpu-p2p-broken"


def test_an_error_before_a_stop_is_what_failed(rules: RuleSet) -> None:
    raised = 'Traceback (most recent call last):\n  File "/a/train.py", line 7, in <module>\nKeyError: 7\n'
    assert diagnose_text("step 1 loss 2.0\n" + raised + STOPPED, rules).to_dict()["outcome"]["state"] == "failed"
    assert diagnose_text("step 1 loss 2.0\n" + STOPPED + raised, rules).to_dict()["outcome"]["state"] == "stopped"


def test_a_loss_scale_that_keeps_falling_is_divergence_and_a_few_steps_are_not(rules: RuleSet) -> None:
    falling = "".join(SCALE.format(0.5**n) for n in range(1, 9))
    assert diagnose_text(falling, rules).cause == "numerical-divergence"
    assert diagnose_text(SCALE.format(32768.0) + "step 2 loss 2.0\nstep 3 loss 1.9\n", rules).verdict == "healthy"


def test_a_traceback_cut_off_is_no_healthy_log(rules: RuleSet) -> None:
    cut = 'Traceback (most recent call last):\n  File "/a/train.py", line 7, in <module>\n'
    assert diagnose_text("step 1 loss 2.0\n" + cut, rules).verdict == "unknown"


def test_a_log_without_an_end_says_what_to_do_if_the_job_hangs(rules: RuleSet) -> None:
    diagnosis = diagnose_text("step 1 loss 2.0\nstep 2 loss 1.9\n", rules)
    assert diagnosis.verdict == "healthy"
    assert any("py-spy dump" in note["en"] for note in diagnosis.notes)


def test_a_connection_retried_once_is_no_failure_where_the_job_went_on(rules: RuleSet) -> None:
    retry = "n1:1:2 [0] NCCL INFO Call to connect returned Connection refused, retrying\n"
    assert diagnose_text(retry + "step 1 loss 2.0\nstep 2 loss 1.9\n", rules).verdict == "healthy"
    assert diagnose_text(retry * 3, rules).cause == "network-firewall-port"
