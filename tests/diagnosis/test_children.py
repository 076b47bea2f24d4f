"""Children of launchers that say little: mp.spawn, home-made launchers, threads, command lines that are refused."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

READY = "".join(
    f"I1122 19:48:06.258000 {7392 + rank} run.py:74] joined: rank {rank} of 4 on node-a\n" for rank in range(4)
)
SPAWNED = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 211, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 2 terminated with the following error:
Traceback (most recent call last):
  File "/app/train.py", line 7, in step
    {line}
{error}
"""
STOPPED = (
    "W1122 19:48:09.480000 7390 torch/multiprocessing/spawn.py:165] Terminating process {pid} via signal SIGTERM\n"
)
LOST = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:6025"
)


def test_a_traceback_that_spawn_hands_on_is_the_child_s(rules: RuleSet) -> None:
    text = READY + SPAWNED.format(line="x = data[k]", error="KeyError: 'pixels'")
    top = diagnose_text(text, rules).candidates[0]
    assert top.id == "application-exception"
    assert [culprit.rank for culprit in top.culprits] == [2]


def test_the_child_that_spawn_need_not_stop_had_left(rules: RuleSet) -> None:
    stopped = "".join(STOPPED.format(pid=pid) for pid in (7392, 7393))
    text = READY + stopped + SPAWNED.format(line="dist.all_reduce(x)", error=LOST)
    top = diagnose_text(text, rules).candidates[0]
    assert top.id == "rank-divergence"
    assert [culprit.rank for culprit in top.culprits] == [3]


def test_when_spawn_stops_all_others_nobody_had_left(rules: RuleSet) -> None:
    stopped = "".join(STOPPED.format(pid=pid) for pid in (7392, 7393, 7395))
    found = diagnose_text(READY + stopped + SPAWNED.format(line="dist.all_reduce(x)", error=LOST), rules)
    assert found.case.fact("process.left_children") is None


@pytest.mark.parametrize(("first", "ranks"), [(0, [2]), (1, [])], ids=["counted from 0", "counted from 1"])
def test_a_worker_s_number_is_its_rank_where_launchers_count_from_0(
    first: int, ranks: list[int], rules: RuleSet
) -> None:
    codes = {first: 1, first + 1: 1, 2: -11}
    text = "".join(f"launcher: Worker-{number} exited with code {code}\n" for number, code in codes.items())
    top = diagnose_text(text, rules).candidates[0]
    assert top.id == "process-crashed"
    assert [culprit.rank for culprit in top.culprits if culprit.rank is not None] == ranks


@pytest.mark.parametrize(("codes", "verdict"), [((0, 0), "healthy"), ((0, 1), "unknown")])
def test_processes_that_all_end_in_order_are_well(codes: tuple[int, ...], verdict: str, rules: RuleSet) -> None:
    ready = "".join(f"run rank={rank} joined: rank {rank} of 2 on node-a\n" for rank in range(2))
    trouble = 'Traceback (most recent call last):\n  File "/a/up.py", line 3, in send\nTimeoutError: timed out\n'
    ends = "".join(f"trainer-{rank} exited with code {code}\n" for rank, code in enumerate(codes))
    assert diagnose_text(ready + trouble + ends, rules).verdict == verdict


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("train.py: error: the following arguments are required: --data", "application-exception"),
        ("python3: can't open file '/a/train.py': [Errno 2] No such file or directory", "launch-failed"),
    ],
    ids=["missing argument", "missing script"],
)
def test_a_command_line_that_is_refused(line: str, cause: str, rules: RuleSet) -> None:
    assert diagnose_text(line + "\n", rules).candidates[0].id == cause


DEEPSPEED = """[2026-06-03 00:17:27,841] [INFO] [launch.py:158:main] nnodes=1, num_local_procs=2, node_rank=0
[2026-06-03 00:17:27,841] [INFO] [launch.py:245:main] process 588 spawned with command: ['python3', '-u', 'ds.py', '--local_rank=0']
[2026-06-03 00:17:27,845] [INFO] [launch.py:245:main] process 589 spawned with command: ['python3', '-u', 'ds.py', '--local_rank=1']
step 35 loss 2.0399
"""
CLOSED = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/app/ds.py", line 31, in <module>
[rank0]:     eng.backward(loss)
[rank0]: RuntimeError: [/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:31668.
"""
LEFT = "[2026-06-03 00:17:35,849] [INFO] [launch.py:285:main] Process {pid} exits successfully.\n"
ENDED = "[2026-06-03 00:17:36,852] [ERROR] [launch.py:259:sigkill_handler] ['python3', 'ds.py', '--local_rank=1'] exits with return code = 1\n"


def test_a_rank_that_deepspeed_saw_leave_while_another_waited(rules: RuleSet) -> None:
    top = diagnose_text(DEEPSPEED + CLOSED + LEFT.format(pid=589) + ENDED, rules).candidates[0]
    assert (top.id, [culprit.rank for culprit in top.culprits]) == ("rank-divergence", [1])


def test_all_ranks_that_deepspeed_saw_leave(rules: RuleSet) -> None:
    assert diagnose_text(DEEPSPEED + LEFT.format(pid=589) + LEFT.format(pid=588), rules).verdict == "healthy"


def test_the_batch_in_deepspeeds_sentence_is_no_world_size(rules: RuleSet) -> None:
    case = diagnose_text(
        DEEPSPEED + "AssertionError: Check batch related parameters. train_batch_size is not equal to "
        "micro_batch_per_gpu * gradient_acc_step * world_size 10 != 4 * 1 * 2\n",
        rules,
    ).case
    assert case.identity.world_size in (None, 2)


@pytest.mark.parametrize(
    ("detail", "cause"),
    [
        ("Input should be 0, 1, 2 or 3 [type=enum, input_value=7, input_type=int]", "application-exception"),
        (
            "Extra inputs are not permitted [type=extra_forbidden, input_value=1, input_type=int]",
            "framework-version-incompatibility",
        ),
    ],
)
def test_a_wrong_value_is_no_unknown_key(detail: str, cause: str, rules: RuleSet) -> None:
    text = f"""[rank0]: Traceback (most recent call last):
[rank0]:   File "/app/ds.py", line 12, in <module>
[rank0]:     engine = deepspeed.initialize(model=m, config=cfg)
[rank0]: pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig
[rank0]: stage
[rank0]:   {detail}
"""
    assert diagnose_text(text, rules).candidates[0].id == cause
