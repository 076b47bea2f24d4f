"""What a rank does on a GPU: an eager communicator, a log of NCCL's own, times of the collective alone, limits that hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nccl_triage.verify.collective_run import RankTrace
from tests.verify.gpu_host import Fault, Gpu, GpuHost, Machine, Torch, gpus
from tests.verify.gpu_sessions import Session, asked, verified

Job = Callable[..., list[GpuHost]]
pytestmark = pytest.mark.xdist_group("gpu-hosts")


def communicators(hosts: list[GpuHost]) -> list[dict[str, Any]]:
    return [entry for host in hosts for entry in host.communicators]


def traces(found: Session) -> list[RankTrace]:
    return [trace for trial in found.report.trials for trace in trial.result.ranks.values()]


def stages(found: Session) -> set[str]:
    """The stages at which the failing runs of the cause that stood first ended."""
    return {run["stage"] for run in found.controls if run["outcome"] != "passed"}


def test_communicators_are_eager(job: Job) -> None:
    hosts = job()
    found = verified(asked("collective-mismatch", world=4), hosts)
    assert {run["outcome"] for run in found.controls} == {"passed"}
    assert all(entry["eager"] for entry in communicators(hosts))


def faulty(gpu_hosts: Machine, **fault: Any) -> list[GpuHost]:
    """Return one host with two GPUs, of which the second does wrong in company: alone each is well."""
    return [gpu_hosts.host("gpu-a", (Gpu(), Gpu(faults=(Fault(world=2, **fault),))))]


Hung = tuple[Session, list[GpuHost]]


@pytest.fixture(scope="module")
def hung(gpu_hosts: Machine) -> Hung:
    """A session on a host on which every collective of two ranks hangs."""
    hosts = faulty(gpu_hosts, does="hang")
    return verified(asked("collective-mismatch", hosts=("gpu-a",)), hosts, timeout_factor=0.1), hosts


def test_a_failure_of_the_bootstrap_is_told_from_a_collectives(gpu_hosts: Machine, hung: Hung) -> None:
    hosts = faulty(gpu_hosts, at="init", does="raise")
    found = verified(asked("collective-mismatch", hosts=("gpu-a",)), hosts, timeout_factor=0.1)
    assert stages(found) == {"group"}
    assert stages(hung[0]) == {"warm"}
    kinds = [{item["kind"] for item in session.of()["findings"]} for session in (found, hung[0])]
    assert kinds[0] != kinds[1]


def test_nccl_writes_a_log_that_is_read(job: Job) -> None:
    hosts = job()
    found = verified(asked("network-link-fault", world=4), hosts)
    env = communicators(hosts)[-1]["env"]
    assert env["NCCL_DEBUG"] == "INFO"
    assert env["NCCL_DEBUG_FILE"]
    run = next(run for run in found.controls if len(run["hosts"]) == 2)
    # Which interface NCCL took, as its own log says.
    told = str({name: value for name, value in run.items() if name != "env"})
    assert "Socket" in told
    assert "eth0" in told


def test_a_collective_that_hangs_is_ended_by_the_watchdog_in_time(hung: Hung) -> None:
    found, hosts = hung
    waits = {int(entry["env"].get("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", 15000)) for entry in communicators(hosts)}
    assert max(waits) <= 2000
    failing = [run for run in found.of()["runs"] if run["outcome"] != "passed"]
    assert failing
    said = str([run["symptoms"] for run in failing])
    assert "watchdog" in said.lower(), said


def test_a_timeout_of_twelve_hours_is_scaled_down(gpu_hosts: Machine) -> None:
    wanted = asked("timeout-too-short", hosts=("gpu-a",), timeout_s=43200.0)
    found = verified(wanted, faulty(gpu_hosts, does="hang"), timeout_factor=0.05, budget=14.0)
    failing = [run for run in found.of()["runs"] if run["outcome"] != "passed"]
    # The watchdog of a run that would wait for half a day had never ended it.
    assert len(failing) >= 2
    assert all(run["seconds"] < 15 for run in failing)


def test_twenty_iterations_are_timed(job: Job) -> None:
    found = verified(asked("collective-mismatch", world=4), job())
    told = [trace for trace in traces(found) if trace.done and len(trace.details["done"].get("seconds", ())) > 1]
    assert told
    assert all(len(trace.details["done"]["seconds"]) >= 20 for trace in told)


def test_a_message_is_bound_by_free_memory_alone(job: Job) -> None:
    # A share of 1 / (4 x (1 + 2)) of 100 MiB would be 8 MiB; the message has 16.
    hosts = job(gpus(1, memory_total_mib=100, memory_used_mib=0, context_mib=0))
    found = verified(asked("collective-mismatch", numel=4 << 20, dtype="float32"), hosts)
    assert {run["numel"] for run in found.controls} == {4 << 20}
    assert {run["outcome"] for run in found.controls} == {"passed"}
    small = job(gpus(1, memory_total_mib=24, memory_used_mib=0, context_mib=0))
    limited = verified(asked("collective-mismatch", numel=16 << 20, dtype="float32"), small)
    assert {run["outcome"] for run in limited.controls} == {"passed"}
    assert "instead of 16,777,216" in limited.says


def test_eight_bit_floats_are_what_they_are_or_named(job: Job) -> None:
    found = verified(asked("collective-mismatch", op="_ALLGATHER_BASE", dtype="float8_e4m3fn"), job(gpus(1)))
    dtypes = {run["dtype"] for run in found.controls}
    assert dtypes == {"float8_e4m3fn"} or "float8" in found.says


@pytest.mark.parametrize("cause", ["rendezvous-failed", "port-in-use"])
def test_the_store_is_tried_without_a_communicator(job: Job, cause: str) -> None:
    hosts = job()
    found = verified(asked(cause, world=4), hosts)
    assert {run["outcome"] for run in found.controls} == {"passed"}
    # The gate alone may have made some: one GPU, then one trivial all-reduce.
    runs = len(found.of()["runs"])
    assert sum(entry["world"] == 4 and entry["rank"] == 0 for entry in communicators(hosts)) < runs


def test_ranks_wait_for_each_others_imports(gpu_hosts: Machine) -> None:

    hosts = [gpu_hosts.host("gpu-a", gpus(1)), gpu_hosts.host("gpu-b", gpus(1), torch=Torch(import_seconds=2.5))]
    found = verified(asked("collective-mismatch"), hosts, timeout_factor=0.05)
    assert {run["outcome"] for run in found.controls} == {"passed"}


def test_ranks_share_a_gpu_where_a_host_has_one(gpu_hosts: Machine) -> None:
    host = gpu_hosts.host("gpu-a", gpus(1))
    found = verified(asked("gpu-p2p-broken", hosts=("gpu-a",)), [host])
    assert {run["outcome"] for run in found.controls} == {"passed"}
    assert "share a GPU" in found.says
    assert found.outcome not in ("refuted", "confirmed")
