"""What looks like a cause and is a consequence, and long work that everybody waits for."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

WATCHDOG = (
    "[rank{rank}]:[E908 22:31:40.118844071 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600008 milliseconds "
    "before timing out.\n"
)
BAR = "Train:   0%|          | {step}/400 [{clock}<60:07:11, {rate}]\n"
KILLED = """Traceback (most recent call last):
  File "tools/train.py", line 113, in <module>
    mp.spawn(main, nprocs=2)
  File "/opt/venv/lib/python3.8/site-packages/torch/multiprocessing/spawn.py", line 130, in join
    raise ProcessExitedException(
torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL
"""
ORPHAN = """Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/opt/lib/python3.8/multiprocessing/spawn.py", line 116, in spawn_main
    exitcode = _main(fd, parent_sentinel)
  File "/opt/lib/python3.8/multiprocessing/spawn.py", line 126, in _main
    self = {call}
{error}
"""
FROM_PARENT = "reduction.pickle.load(from_parent)"
CUT = "_pickle.UnpicklingError: pickle data was truncated"


def first(text: str, rules: RuleSet) -> str:
    return diagnose_text(text, rules).candidates[0].id


@pytest.mark.parametrize("error", [CUT, "EOFError: Ran out of input"])
def test_a_child_of_a_dying_parent_is_a_victim(error: str, rules: RuleSet) -> None:
    named = [c.id for c in diagnose_text(KILLED + ORPHAN.format(call=FROM_PARENT, error=error), rules).candidates]
    assert named[0] in ("host-out-of-memory", "process-crashed")
    assert not {"storage-fault", "application-exception"} & set(named)


def test_a_file_that_is_cut_off_is_the_storage_s_fault(rules: RuleSet) -> None:
    assert first(ORPHAN.format(call="pickle.load(file)", error=CUT), rules) == "storage-fault"


def waits(rates: list[str], rules: RuleSet) -> list[str]:
    bars = "".join(BAR.format(step=n + 1, clock=f"{9 * n + 9}:02", rate=rate) for n, rate in enumerate(rates))
    lines = "".join(WATCHDOG.format(rank=rank, seq=2214, op="BROADCAST") for rank in (1, 2, 3))
    late = "[rank0]:[E908 22:31:41.003302716 ProcessGroupNCCL.cpp:1870] [PG ID 0 PG GUID 0(default_pg) Rank 0] "
    late += (
        "Received a dump signal due to a collective timeout from  rank 3 and we will try our best to dump the debug "
    )
    late += "info. Last enqueued NCCL work: 2213, last completed NCCL work: 2213.\n"
    return [candidate.id for candidate in diagnose_text(bars + lines + late, rules).candidates]


def test_steps_as_long_as_the_time_out_leave_no_room(rules: RuleSet) -> None:
    """One incident showed it, so that it is a candidate only."""
    assert "timeout-too-short" in waits(["542.44s/it", "559.41s/it"], rules)[:2]


@pytest.mark.parametrize(
    "rates", [["2.44s/it", "2.41s/it"], ["559.41s/it"], ["1.2it/s", "559.41s/it"], ["800.1s/it", "812.0s/it"]]
)
def test_other_steps_say_nothing_of_the_time_out(rates: list[str], rules: RuleSet) -> None:
    found = waits(rates, rules)
    assert found[0] == "rank-divergence"
    assert "timeout-too-short" not in found[1:2]


def test_an_all_gather_that_was_aborted_tells_of_no_parameters(rules: RuleSet) -> None:
    compared = (
        "[rank2]: RuntimeError: DDP expects same model across all ranks, but Rank 2 has 8 params, while rank 0 has "
    )
    late = "".join(WATCHDOG.format(rank=rank, seq=1, op="ALLGATHER") for rank in range(4))
    assert first(compared + "inconsistent 0 params.\n", rules) == "collective-mismatch"
    assert first(late + compared + "inconsistent 6 params.\n", rules) == "collective-mismatch"
    candidates = diagnose_text(late + compared + "inconsistent 0 params.\n", rules).candidates
    assert all(c.id != "collective-mismatch" or c.confidence < 0.5 for c in candidates)


def test_a_faulting_kernel_alone_establishes_no_crash(rules: RuleSet) -> None:
    text = "[rank0]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
    assert all(c.confidence < 0.5 for c in diagnose_text(text, rules).candidates if c.id == "process-crashed")


def test_hccl_is_no_exception_of_the_program(rules: RuleSet) -> None:
    text = (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/a/train.py", line 7, in main\n'
        "[rank0]:     dist.barrier()\n"
        "[rank0]: RuntimeError: create_config:build/x.ts:102 HCCL function error: "
        "hcclCommInitRootInfoConfig(numRanks, &rootInfo, rank, config, &(comm->hcclComm_)), error code is 4\n"
    )
    assert "application-exception" not in [c.id for c in diagnose_text(text, rules).candidates]


def test_the_address_of_a_dead_actor_is_that_of_its_own_lines_or_of_the_report(rules: RuleSet) -> None:
    died = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    block = "\tclass_name: RayWorkerWrapper\n\tactor_id: 6a0d\n\tpid: 9145\n\tip: 10.9.0.22\n"
    end = (
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: x\n"
    )
    worker = "(RayWorkerWrapper pid=9145, ip=10.9.0.22) Fatal Python error: Segmentation fault\n"
    for text in (died + block + end, worker + died + block + end):
        culprits = [c for candidate in diagnose_text(text, rules).candidates for c in candidate.culprits]
        assert {c.address or c.host for c in culprits if c.pid == 9145} <= {"10.9.0.22"}
        assert culprits


TRACE = '[rank{r}]: Traceback (most recent call last):\n[rank{r}]:   File "/app/train.py", line {line}, in <module>\n[rank{r}]:     {code}\n[rank{r}]:   File "/opt/venv/lib/python3.11/site-packages/{file}", line 711, in {name}\n[rank{r}]:     raise\n[rank{r}]: {what}\n'  # fmt: skip


def test_a_request_to_a_server_that_is_not_named_is_the_program_s_own(rules: RuleSet) -> None:
    """It is not known to go to a part of the job, while the other ranks lost their connections to this one."""
    closed = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.5]:24961"
    others = "".join(
        TRACE.format(r=r, line=41, code="loss.backward()", file="torch/autograd/graph.py", name="run", what=closed)
        for r in (0, 2)
    )
    asked = {"r": 1, "line": 22, "code": "shard = requests.get(url)", "file": "requests/adapters.py", "name": "send"}
    reset = "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))"
    found = diagnose_text(TRACE.format(**asked, what=reset) + others, rules)
    assert (found.cause, [c.rank for c in found.candidates[0].culprits]) == ("application-exception", [1])
    server = "requests.exceptions.ConnectionError: HTTPConnectionPool(host='10.0.0.7', port=8000): Max retries exceeded with url: /generate (Caused by NewConnectionError('Connection refused'))"
    named = diagnose_text(TRACE.format(**asked, what=server) + others, rules)
    assert named.cause != "application-exception", "the server may be one of the job"


def test_whoever_asks_for_a_result_did_not_use_up_the_memory(rules: RuleSet) -> None:
    """A controller raises again what became of another process, and the one that was killed need not be the one that grew."""
    text = (
        'Traceback (most recent call last):\n  File "/app/main.py", line 4, in <module>\n    ray.get(task)\n'
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::TaskRunner.run() (pid=32025, ip=10.9.0.2, actor_id=c6e6)\n"
        '  File "/app/main.py", line 122, in run\n    scores = ray.get(reward.score.remote(step))\n'
        "ray.exceptions.OutOfMemoryError: 1 worker(s) were killed due to the node running low on memory. Memory on the node"
        " (IP: 10.9.0.22, ID: 76b0) was 9.54GB used / 10.00GB limit (0.954)\n"
        "Selected to kill: (Actor(f6d5): job ID=01000000, lease ID=0400, task name=RewardWorker.__init__,"
        " required resources={}, pid=32236, actual memory used=4.89GB\n"
    )
    found = diagnose_text(text, rules)
    assert found.cause == "host-out-of-memory"
    assert [(c.pid, c.address) for c in found.candidates[0].culprits] == [(None, "10.9.0.22")]
