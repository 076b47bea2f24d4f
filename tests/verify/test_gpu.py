"""The verifier on real NCCL, several ranks on one GPU; skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.probes import inventory
from nccl_triage.hosts.processes import ProcessLauncher
from nccl_triage.verify import runner
from nccl_triage.verify.assess import assess
from nccl_triage.verify.assessed_run import AssessedRun
from nccl_triage.verify.cluster import Cluster, worker
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Deadlines, Slot
from nccl_triage.verify.worker.ops import OPERATIONS, operation

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not inventory.likely_present() or not inventory.visible().gpus, reason="needs an NVIDIA GPU"),
    pytest.mark.xdist_group("gpu"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(ProcessLauncher([HostPlace("here", slots=4)], worker())) as made:
        made.greet(30)
        yield made


def on_nccl(cluster: Cluster, folder: Path, world: int, message: CollectiveMessage, **more) -> runner.RunResult:
    run = CollectiveRun(
        label=folder.name,
        slots=tuple(Slot(rank, 0) for rank in range(world)),
        message=message,
        backend="nccl",
        device="cuda",
        env={"NCCL_SOCKET_IFNAME": "lo", **more.pop("env", {})},
        per_rank_env={rank: {"NCCL_HOSTID": f"rank{rank}"} for rank in range(world)},
        **more,
    )
    return runner.execute(cluster, run, folder, Deadlines(), method="spawn")


@pytest.mark.parametrize("world", [1, 2, 4])
def test_every_operation_gives_right_results_on_nccl(cluster, tmp_path, world):
    more = tuple(
        CollectiveMessage(name, 1 << 12, dtype)
        for name in OPERATIONS
        if name != "INIT" and (world > 1 or not operation(name).pair)
        for dtype in ("float32", "bfloat16")
    )
    result = on_nccl(cluster, tmp_path / f"all-{world}", world, CollectiveMessage(), more=more)
    assert result.passed, [trace.error for trace in result.ranks.values()]
    assert all(len(trace.parts) == len(more) for trace in result.ranks.values())
    assert not any(part["wrong"] for trace in result.ranks.values() for part in trace.parts)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("sigkill", "process-crashed"),
        ("sigsegv", "process-crashed"),
        ("sigterm", "job-preempted"),
        ("sigstop", "rank-divergence"),
        ("absent", "rank-divergence"),
        ("leaves", "rank-divergence"),
        ("late", "straggler"),
        ("wrong-op", "collective-mismatch"),
        ("wrong-order", "collective-mismatch"),
        ("wrong-size", "collective-mismatch"),
        ("wrong-dtype", "collective-mismatch"),
        ("raise", "application-exception"),
        ("never-joins", "rendezvous-failed"),
    ],
)
def test_the_rank_at_fault_is_named_on_nccl(cluster, tmp_path, fault, cause):
    from nccl_triage.engine import load
    from nccl_triage.verify.assess import diagnose_own_logs

    result = on_nccl(cluster, tmp_path / fault, 3, CollectiveMessage(), faults={"1": {"name": fault, "seconds": 3.0}})
    found = assess(AssessedRun(result, ["here"], (), diagnose_own_logs(result, load.load(()))))
    assert found is not None
    assert (found.cause, found.ranks) == (cause, (1,))
    assert result.cleaned_s < 2.0


def test_ranks_of_one_host_on_one_gpu_are_refused_by_nccl(cluster, tmp_path):
    run = CollectiveRun("same", (Slot(0, 0), Slot(1, 0)), CollectiveMessage(), backend="nccl", device="cuda")
    result = runner.execute(cluster, run, tmp_path / "same", Deadlines(), method="spawn")
    if len(inventory.visible().gpus) > 1:
        pytest.skip("each rank has a GPU of its own here")
    assert not result.passed


def test_an_interface_that_does_not_exist_fails_in_set_up(cluster, tmp_path):
    result = on_nccl(cluster, tmp_path / "nosuch", 2, CollectiveMessage(), env={"NCCL_SOCKET_IFNAME": "nosuch0"})
    assert not result.passed
    assert result.stage in ("group", "warm")
