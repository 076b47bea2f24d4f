"""Who did it: one process under two names, Ray actors by address, nodes that report their own death."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.api import diagnose
from nccl_triage.diagnosis.culprit_base import Culprit
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

NCCL_LINE = "h1:{pid}:{pid} [0] enqueue.cc:336 NCCL WARN Cuda failure 'invalid resource handle'\n"
RAISED = """[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/a/train.py", line 7, in <module>
[rank{rank}]:     dist.barrier()
[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2006, unhandled cuda error
"""


def test_the_failing_pid_is_the_only_failing_rank(rules: RuleSet) -> None:
    diagnosis = diagnose_text(NCCL_LINE.format(pid=501) + RAISED.format(rank=3), rules)
    assert diagnosis.candidates[0].culprits[0].rank == 3


@pytest.mark.parametrize(
    "text",
    [
        NCCL_LINE.format(pid=501) + NCCL_LINE.format(pid=502) + RAISED.format(rank=3),
        NCCL_LINE.format(pid=501) + RAISED.format(rank=3) + RAISED.format(rank=4),
    ],
    ids=["two pids", "two ranks"],
)
def test_with_several_failing_processes_none_is_taken_for_another(text: str, rules: RuleSet) -> None:
    assert diagnose_text(text, rules).candidates[0].culprits[0].rank is None


def test_an_actor_that_failed_in_its_constructor_goes_by_its_address(rules: RuleSet) -> None:
    text = (
        "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, "
        "ray::Engine.__init__() (pid=8515, ip=10.9.8.7, actor_id=dc00, repr=<Engine object at 0x7f>)\n"
        "AttributeError: 'torch.dtype' object has no attribute 'startswith'\n"
    )
    culprit = diagnose_text(text, rules).candidates[0].culprits[0]
    assert (culprit.address, culprit.pid) == ("10.9.8.7", 8515)


def test_a_node_that_reports_its_own_death_comes_before_one_that_others_name(rules: RuleSet) -> None:
    text = (
        '{"host_name":"head","label":"RAY_NODE_REMOVED","message":"The node with node id: 94ab and address: 10.0.0.7 and '
        'node name: 10.0.0.7 has been marked dead because the detector has missed too many heartbeats from it."}\n'
        '{"host_name":"w4","label":"RAYLET_MARKED_DEAD","message":"[Timeout] Exiting because this node manager has '
        'mistakenly been marked as dead by the GCS: GCS failed to check the health of this node for 5 times."}\n'
    )
    # Of two hosts, the one that does not complain of an address owns it; of three nobody knows.
    assert [c.host for c in diagnose_text(text, rules).candidates[0].culprits] == ["w4"]
    third = '{"host_name":"w5","label":"RAYLET_MARKED_DEAD","message":"[Timeout] Exiting because this node manager has '
    third += 'mistakenly been marked as dead by the GCS: GCS failed to check the health of this node for 5 times."}\n'
    assert [c.host for c in diagnose_text(text + third, rules).candidates[0].culprits] == ["w4", "w5", "10.0.0.7"]


STORE = "[c10d] TCP client failed to connect/validate to host 10.0.0.1:29501 - retrying (try=0, timeout=10000ms, delay=9010ms): "
STORE += "The client socket has timed out after 10000ms while trying to connect to (10.0.0.1, 29501)."
WAITED = "[rank{}]: torch.distributed.DistStoreError: wait timeout after 10000ms, keys: /default_pg/0//cpu//0/2"


@pytest.mark.parametrize(
    ("lost", "waiting", "culprits"),
    [
        ([2], [0, 1], [2]),  # the others have found the store and wait
        ([1, 2], [0], []),  # the store is there, most do not reach it: that is no rank's fault
    ],
)
def test_who_did_not_find_the_store(lost: list[int], waiting: list[int], culprits: list[int], rules: RuleSet) -> None:
    lines = [f"[rank{rank}]: {STORE}" for rank in lost] + [WAITED.format(rank) for rank in waiting]
    found = diagnose_text("\n".join(lines) + "\n", rules).candidates[0]
    assert found.id == "rendezvous-failed"
    assert [c.rank for c in found.culprits if c.rank is not None] == culprits


def test_both_ends_of_a_path_are_named_where_both_complain(rules: RuleSet) -> None:
    log = Path(__file__).parents[2] / "corpus" / "recorded" / "logs" / "net_mtu_hole_mid_w4.log"
    found = next(c for c in diagnose(log, rules=rules).candidates if c.id == "network-link-fault")
    assert [c.host for c in found.culprits] == ["gpu-node-02", "gpu-node-01"]


def test_the_node_of_an_actor_that_died_with_it_is_named(rules: RuleSet) -> None:
    text = (
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n"
        "\tclass_name: RayTrainWorker\n\tactor_id: 4473bb24\n\tpid: 6420\n\tnamespace: c53c8492\n\tip: 10.72.56.3\n"
        "The actor is dead because its node has died. Node Id: 677df2a9020c5db45e755b00\n"
    )
    culprit = diagnose_text(text, rules).candidates[0].culprits[0]
    assert culprit.address == "10.72.56.3"


@pytest.mark.parametrize(
    "line", ["INFO - TrainWorker - rank {}/2: group ready", "INFO Trainer[{}]: joined, world size 2"]
)
def test_a_rank_announced_by_an_actor_names_its_process(line: str, rules: RuleSet) -> None:
    text = "".join(f"(TrainWorker pid={9000 + rank}) {line.format(rank)}\n" for rank in (0, 1))
    text += (
        "ray.exceptions.RayTaskError(KeyError): ray::TrainWorker.train() (pid=9001, ip=10.0.0.1, actor_id=ebf4)\n"
        "  File \"train.py\", line 9, in train\nKeyError: 'task'\n"
    )
    assert diagnose_text(text, rules).candidates[0].culprits[0].rank == 1


BARRIER = "RuntimeError: Timed out initializing process group in store based barrier on rank: {}, for key: store_based_barrier_key:1 "
BARRIER += "(world_size=4, worker_count={}, timeout=0:10:00)"


@pytest.mark.parametrize(
    ("heard", "joined", "culprits"),
    [([0, 1, 3], 3, [2]), ([0, 3], 3, []), ([0, 1, 2, 3], 8, [])],
    ids=["one never joined", "one of those who joined is not heard", "keys of an earlier run"],
)
def test_who_never_reached_the_barrier_of_the_store(
    heard: list[int], joined: int, culprits: list[int], rules: RuleSet
) -> None:
    text = "".join(f"[rank{rank}]: {BARRIER.format(rank, joined)}\n" for rank in heard)
    fact = diagnose_text(text, rules).case.value("rendezvous.barrier_missing_ranks")
    assert (fact or []) == culprits


COUNTED = "torch.distributed.DistStoreError: Timed out after 9 seconds waiting for clients. {}/3 clients joined."
NO_KEY = "torch.distributed.DistStoreError: wait timeout after 8000ms, keys: /default_pg/0//cpu//0/0"


@pytest.mark.parametrize(
    ("joined", "waiting", "culprits"),
    [(2, [1], [2]), (2, [], []), (1, [], []), (1, [1], [2]), (2, [1, 2], [])],
    ids=[
        "one never joined",
        "one of those who joined is not heard",
        "most are missing",
        "more are heard",
        "all are heard",
    ],
)
def test_who_was_not_counted_by_the_store(joined: int, waiting: list[int], culprits: list[int], rules: RuleSet) -> None:
    text = f"[rank0]: {COUNTED.format(joined)}\n" + "".join(f"[rank{rank}]: {NO_KEY}\n" for rank in waiting)
    assert (diagnose_text(text, rules).case.value("rendezvous.barrier_missing_ranks") or []) == culprits


@pytest.mark.parametrize(
    ("address", "hosts"),
    [("::ffff:10.9.8.7", ["10.9.8.7"]), ("10.9.8.7", ["10.9.8.7"]), ("::ffff:127.0.0.1", []), ("head-0", ["head-0"])],
)
def test_the_master_that_nobody_reached_is_named_by_its_plain_address(
    address: str, hosts: list[str], rules: RuleSet
) -> None:
    text = (
        "torch.distributed.DistNetworkError: The client socket has timed out after 60s while trying to connect to "
        f"({address}, 29500).\n"
    )
    candidate = diagnose_text(text, rules).candidates[0]
    assert (candidate.id, [c.host for c in candidate.culprits]) == ("rendezvous-failed", hosts)


TIMED_OUT = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:563] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=70, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800076 milliseconds "
    "before timing out.\n"
)


@pytest.mark.parametrize(("reported", "left_out"), [([0, 1, 3], [2]), ([1, 2, 3], [0]), ([0, 3], []), ([0, 1, 2], [])])
def test_the_only_rank_that_did_not_report_the_timeout_is_named(
    reported: list[int], left_out: list[int], rules: RuleSet
) -> None:
    diagnosis = diagnose_text("".join(TIMED_OUT.format(rank=rank) for rank in reported), rules)
    assert [c.rank for c in diagnosis.candidates[0].culprits] == left_out


ASKED = (
    "[rank45]: torch.distributed.DistBackendError: [45] is setting up NCCL communicator and retrieving ncclUniqueId from "
    "[0] via c10d key-value store by key '0', but store->get('0') got error: {error}\n"
)


def test_who_waits_for_the_id_of_a_communicator_is_not_the_one_who_failed_to_give_it(rules: RuleSet) -> None:
    text = ASKED.format(error="wait timeout after 1800000ms, keys: //worker/attempt_0/default_pg/0//1//cuda//0")
    candidate = diagnose_text(text, rules).candidates[0]
    assert (candidate.id, [c.rank for c in candidate.culprits]) == ("rendezvous-failed", [0])


@pytest.mark.parametrize(("offered", "named"), [("lo:127.0.0.1", "master-0"), ("eth0:10.4.1.230", "worker-0")])
def test_who_offered_its_loopback_address_is_named_where_that_is_known(
    offered: str, named: str, rules: RuleSet
) -> None:
    text = (
        f"master-0:11:11 [0] NCCL INFO Bootstrap : Using [0]{offered}<0>\n"
        "worker-0:12:12 [0] NCCL INFO Bootstrap : Using [0]eth0:10.4.2.77<0>\n"
        "worker-0:12:58 [0] include/socket.h:382 NCCL WARN Connect to 127.0.0.1<42251> failed : Connection refused\n"
    )
    candidate = diagnose_text(text, rules).candidates[0]
    assert (candidate.id, [c.host for c in candidate.culprits]) == ("network-wrong-interface", [named])


def test_the_host_of_a_rank_may_stand_in_the_line_that_names_it(rules: RuleSet) -> None:
    text = (
        "[ib-44:1272:0:1277] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))\n"
        "ib-40:1098:1536 [7] NCCL INFO transport.cc:291 -> 2\n"
        "mpirun noticed that process rank 108 with PID 1272 on node ib-44 exited on signal 11 (Segmentation fault).\n"
    )
    culprit = diagnose_text(text, rules).candidates[0].culprits[0]
    assert (culprit.rank, culprit.host) == (108, "ib-44")


TASKS = "/job:jax_worker/replica:0/task:3\n/job:jax_worker/replica:0/task:1\n"
LISTED = "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: {}. Timed out task names:\n"


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (LISTED.format("PjRT_Client_Connect") + TASKS, [1, 3]),
        (LISTED.format("0_async_write_complete.0.1") + TASKS, [1, 3]),
        (
            "UNAVAILABLE: Task /job:jax_worker/replica:0/task:37 heartbeat timeout. This indicates that it failed\n",
            [37],
        ),
        ("devices of this run:\n" + TASKS, []),
        (LISTED.format("PjRT_Client_Connect") + "step 1\n" * 300 + TASKS, []),
    ],
    ids=["never registered", "at a later barrier", "silent", "a list of something else", "far below the header"],
)
def test_tasks_that_a_coordinator_lists(text: str, ranks: list[int], rules: RuleSet) -> None:
    assert (diagnose_text(text, rules).case.value("rendezvous.named_tasks") or []) == ranks


def test_a_loopback_address_is_no_host(rules: RuleSet) -> None:
    line = (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [{peer}]:2113: Connection refused\n"
    )
    own, other = (diagnose_text(line.format(peer=peer), rules).candidates[0] for peer in ("127.0.1.1", "10.4.7.12"))
    assert own.id == "network-wrong-interface"
    assert all(culprit.host is None for culprit in own.culprits)
    assert other.id != own.id


def first(text: str, rules: RuleSet) -> Culprit:
    return diagnose_text(text, rules).candidates[0].culprits[0]


@pytest.mark.parametrize(("name", "rank"), [("VllmWorker-3", 3), ("[5]", 5)])
def test_a_worker_of_vllm_that_died_is_the_rank_in_its_name(name: str, rank: int, rules: RuleSet) -> None:
    text = f"ERROR 08-12 09:14:31 [multiproc_executor.py:140] Worker proc {name} died unexpectedly, shutting down executor.\n"
    assert first(text, rules).rank == rank


def test_an_actor_of_verl_that_died_is_the_rank_in_its_name_with_pid_and_address(rules: RuleSet) -> None:
    text = (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "        class_name: create_colocated_worker_cls.<locals>.WorkerDict\n        actor_id: 6a0d\n        pid: 9145\n"
        "        name: mYkPGoWorkerDict_0:3\n        ip: 10.9.0.22\n"
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
        "unexpectedly exits with a connection error code 2. End of file.\n"
    )
    culprit = first(text, rules)
    assert (culprit.rank, culprit.pid, culprit.address) == (3, 9145, "10.9.0.22")


def test_the_host_of_a_peer_that_left_is_the_one_that_open_mpi_names(rules: RuleSet) -> None:
    text = (
        "An MPI communication peer process has unexpectedly disconnected.  This\n"
        "usually indicates a failure in the peer process (e.g., a crash or\notherwise exiting without calling MPI_FINALIZE first).\n"
        "  Local host: gpu-node-6\n  PID:        2211\n  Peer host:  gpu-node-7\n"
    )
    assert first(text, rules).host == "gpu-node-7"


def test_the_traceback_that_holds_the_deciding_line_tells_whose_it_is(rules: RuleSet) -> None:
    text = (
        "ray.exceptions.RayTaskError(RuntimeError): ray::WorkerDict.update() (pid=4411, ip=10.9.0.31, actor_id=a1, repr=<x>)\n"
        '  File "/opt/torch/serialization.py", line 798, in __exit__\n    self.file_like.write_end_of_file()\n'
        "RuntimeError: [enforce fail at inline_container.cc:659] . unexpected pos 1187758464 vs 1187758376\n"
    )
    assert first(text, rules).address == "10.9.0.31"


def test_the_host_whose_daemon_mpirun_lost(rules: RuleSet) -> None:
    text = (
        "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[21532,0],0] on node head-1\n"
        "  Remote daemon: [[21532,0],3] on node gpu-node-7\n\nThis is usually due to either a failure of the TCP network\n"
        "connection to the node, or possibly an internal failure of the daemon itself.\n"
    )
    assert first(text, rules).host == "gpu-node-7"


def test_an_exception_about_the_program_s_own_values_is_no_communication(rules: RuleSet) -> None:
    text = (
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/a/train.py", line 7, in main\n[rank1]:     timeouts["connection reset"]\n'
        "[rank1]: KeyError: 'connection reset'\n"
    )
    assert diagnose_text(text, rules).candidates[0].id == "application-exception"


LATE = "[rank0]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600037 milliseconds before timing out.\n"  # fmt: skip


@pytest.mark.parametrize(("slow", "named"), [([2], True), ([1, 2], False)])
def test_ranks_of_which_the_evidence_tells_in_words_are_named(slow: list[int], named: bool, rules: RuleSet) -> None:
    """Of half the ranks or more it tells what happened to all."""
    text = "".join(f"[rank{n}]: rank {n} of 4: load took {640.0 if n in slow else 3.1} s\n" for n in range(4))
    found = diagnose_text(text + LATE, rules).candidates[0]
    assert found.id == "straggler"
    by_evidence = [culprit.rank for culprit in found.culprits if "their own work" in culprit.why["en"]]
    assert by_evidence == (slow if named else [])
