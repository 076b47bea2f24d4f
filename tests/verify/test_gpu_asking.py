"""Hosts are asked before anything is planned: the GPUs of each host are those that its own agent reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nccl_triage.cli import cli
from nccl_triage.engine import load
from nccl_triage.verify import preflight
from nccl_triage.verify.worker.ops import OPERATIONS
from tests.verify.gpu_host import Fault, Gpu, GpuHost, Machine, Torch, gpus
from tests.verify.gpu_sessions import alone, asked, ranks_of, settings, verified

Job = Callable[..., list[GpuHost]]
pytestmark = pytest.mark.xdist_group("gpu-hosts")
SEED = Path(__file__).parents[2] / "corpus" / "written" / "logs" / "S001-openrlhf-broadcast-two-networks.log"
BUSY = Gpu(processes=((4242, 40000),), memory_used_mib=40001, utilisation=97)


def ready(hosts: list[GpuHost], monkeypatch: pytest.MonkeyPatch, **given: Any) -> dict[str, Any]:
    """Return what preflight says of some hosts, with few collectives that this machine can bear."""
    monkeypatch.setattr(
        preflight, "OPERATIONS", {name: OPERATIONS[name] for name in ("ALLREDUCE", "SEND")}, raising=False
    )
    for name in ("LARGE_GPU", "MIDDLE"):
        monkeypatch.setattr(preflight, name, 1 << 12, raising=False)
    with alone():
        return preflight.preflight(settings(hosts, **given), load.load())


def states(document: dict[str, Any]) -> dict[str, str]:
    return {check["id"]: f"{check['state']} {check['says']}" for check in document["checks"]}


# whose GPUs


def test_a_login_node_without_gpus_runs_nccl_on_all_gpus_of_the_hosts(gpu_hosts: Machine, job: Job) -> None:
    hosts = job(gpus(3))
    found = verified(asked("network-link-fault", world=6), hosts, here=gpu_hosts.host("login"))
    assert {run["backend"] for run in found.controls} == {"nccl"}
    assert [host.used for host in hosts] == [{0, 1, 2}] * 2
    assert {run["world_size"] for run in found.controls} == {6}


def test_a_busy_gpu_of_the_asking_host_masks_no_other_hosts(gpu_hosts: Machine, job: Job) -> None:
    hosts = job(gpus(2))
    login = gpu_hosts.host("login", (BUSY, Gpu()))
    verified(asked("network-link-fault", world=4), hosts, here=login)
    assert [host.used for host in hosts] == [{0, 1}] * 2
    assert login.used == set()
    own = {gpu["uuid"] for gpu in login.told["gpus"]}
    assert not any(uuid in str(entry) for host in hosts for entry in host.communicators for uuid in own)


def test_gpus_in_use_on_one_host_are_left_out_there_alone(job: Job) -> None:
    hosts = job((Gpu(), BUSY, Gpu()), gpus(3))
    verified(asked("network-link-fault", world=6), hosts)
    assert hosts[0].used == {0, 2}
    assert hosts[1].used == {0, 1, 2}


def test_all_gpus_of_a_host_in_use_are_a_reason_that_names_it(job: Job) -> None:
    hosts = job((BUSY, BUSY), gpus(2))
    found = verified(asked("gpu-p2p-broken", world=4, culprits=[{"host": "gpu-a"}]), hosts, backend="nccl")
    assert found.outcome == "not-run"
    assert "gpu-a" in found.says
    assert "4242" in found.says
    assert hosts[0].used == set()
    assert verified(asked("network-link-fault", world=4), hosts, backend="nccl", allow_busy=True).outcome != "not-run"
    assert hosts[0].used == {0, 1}


def test_ranks_per_host_is_a_count(job: Job) -> None:
    hosts = job(gpus(4))
    verified(asked("network-link-fault", world=8), hosts, ranks_per_host=2)
    assert [len(host.used) for host in hosts] == [2, 2]


def test_preflight_runs_as_many_ranks_on_each_host_as_it_is_told(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = job(gpus(8))
    found = ready(hosts, monkeypatch, ranks_per_host=8, timeout_factor=1.0)
    assert [sorted(set(ranks_of(host))) for host in hosts] == [list(range(8))] * 2
    assert max(run["world_size"] for run in found["runs"]) == 16
    assert states(found)["collectives"].startswith("ok"), states(found)
    assert found["verdict"] == "ready", states(found)


def test_preflight_takes_all_gpus_where_nothing_is_said(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = job(gpus(2), gpus(3))
    ready(hosts, monkeypatch, timeout_factor=1.0)
    assert [host.used for host in hosts] == [{0, 1}, {0, 1, 2}]


def test_preflight_names_the_host_whose_gpu_is_lost(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ready(job(gpus(2), (Gpu(), Gpu(fault="lost"))), monkeypatch)
    assert found["verdict"] == "not-ready"
    said = states(found)["gpu-health"]
    assert "gpu-b" in said
    assert "GPU 1" in said


# the accused


def test_the_accused_gpu_is_in_the_run(job: Job) -> None:
    hosts = job(gpus(8))
    culprits = [{"host": "gpu-b", "rank": 14, "gpu": 6}]
    verified(asked("gpu-hardware-fault", world=16, culprits=culprits), hosts, ranks_per_host=2)
    assert 6 in hosts[1].used


def test_the_accused_gpu_that_gives_wrong_data_is_named(job: Job) -> None:
    broken = tuple(Gpu(faults=(Fault(does="wrong"),) if index == 3 else ()) for index in range(4))
    culprits = [{"host": "gpu-b", "rank": 7, "gpu": 3}]
    found = verified(asked("gpu-hardware-fault", world=8, culprits=culprits), job(gpus(4), broken))
    assert found.outcome in ("confirmed", "supported")
    assert [finding["hosts"] for finding in found.of()["findings"]] == [["gpu-b"]]


def test_the_state_of_a_remote_gpu_comes_from_its_own_agent(gpu_hosts: Machine, job: Job) -> None:
    bad = Gpu(recovery_action="GPU Reset", ecc_uncorrected=3)
    culprits = [{"host": "gpu-b", "rank": 3, "gpu": 1}]
    wanted = asked("gpu-hardware-fault", world=4, culprits=culprits)
    assert verified(wanted, job(gpus(2), (Gpu(), bad)), here=gpu_hosts.host("login")).outcome == "confirmed"
    # The asking host's own broken GPU is nobody's of the job.
    asking = gpu_hosts.host("login", (bad, bad))
    found = verified(wanted, job(gpus(2)), here=asking)
    assert found.outcome not in ("confirmed", "supported")
    assert found.unmoved


def test_a_fault_of_another_gpu_confirms_nothing_of_the_accused(job: Job) -> None:
    bad = Gpu(recovery_action="GPU Reset")
    culprits = [{"host": "gpu-b", "rank": 3, "gpu": 1}]
    found = verified(asked("gpu-hardware-fault", world=4, culprits=culprits), job((bad, Gpu()), gpus(2)))
    assert found.outcome not in ("confirmed", "supported", "refuted")


def test_a_gpu_accused_by_its_address_on_the_bus_is_found(job: Job) -> None:
    hosts = job(gpus(4))
    address = hosts[1].told["gpus"][2]["bus"][4:-2]
    culprits = [{"host": "gpu-b", "why": f"Xid 79 on GPU {address.lower()}"}]
    verified(asked("gpu-hardware-fault", world=8, culprits=culprits), hosts, ranks_per_host=1)
    assert 2 in hosts[1].used


# modes of GPUs, builds of torch


def test_exclusive_process_mode_takes_one_rank_on_each_gpu(job: Job) -> None:
    hosts = job(gpus(2, compute_mode="Exclusive_Process"))
    found = verified(asked("network-link-fault", world=4), hosts)
    assert {run["outcome"] for run in found.controls} == {"passed"}
    assert [host.used for host in hosts] == [{0, 1}] * 2


def test_two_ranks_do_not_share_a_gpu_in_exclusive_process_mode(gpu_hosts: Machine) -> None:
    host = gpu_hosts.host("gpu-a", gpus(1, compute_mode="Exclusive_Process"))
    found = verified(asked("gpu-p2p-broken", hosts=("gpu-a",)), [host], backend="nccl")
    assert found.outcome == "not-run"
    assert "xclusive" in found.says


@pytest.mark.parametrize(
    ("gpu", "torch", "words"),
    [(Gpu(mig=True), Torch(), "MIG"), (Gpu(compute_mode="Prohibited"), Torch(), "rohibited")],
)
def test_gpus_that_take_no_program_say_so(job: Job, gpu: Gpu, torch: Torch, words: str) -> None:
    found = verified(asked("gpu-p2p-broken", world=4), job((gpu, gpu), torch=torch), backend="nccl")
    assert found.outcome == "not-run"
    assert words in found.says


def test_a_mig_instance_that_is_chosen_takes_one_rank(gpu_hosts: Machine) -> None:
    first = gpu_hosts.host("gpu-a", (Gpu(mig=True),))
    instance = first.told["gpus"][0]["instances"][1]
    hosts = [gpu_hosts.host(name, (Gpu(mig=True),)) for name in ("gpu-a", "gpu-b")]
    instances = [host.told["gpus"][0]["instances"][1] for host in hosts]
    assert instances[0] == instance
    chosen = [
        gpu_hosts.host(host.name, host.spec.gpus, env={"CUDA_VISIBLE_DEVICES": uuid})
        for host, uuid in zip(hosts, instances, strict=True)
    ]
    found = verified(asked("network-link-fault"), chosen, backend="nccl")
    assert {run["outcome"] for run in found.controls} == {"passed"}
    assert [entry["uuid"] for host in chosen for entry in host.communicators[:1]] == instances


def test_a_host_whose_driver_does_not_match_its_library_says_so(job: Job) -> None:
    found = verified(asked("gpu-p2p-broken", world=4), job(gpus(2), smi="mismatch"), backend="nccl")
    assert found.outcome == "not-run"
    assert "mismatch" in found.says


def test_releases_of_nccl_are_read_from_each_host(gpu_hosts: Machine) -> None:
    hosts = [gpu_hosts.host("gpu-a", gpus(1), nccl="2.27.5"), gpu_hosts.host("gpu-b", gpus(1), nccl="2.28.9")]
    found = verified(asked("nccl-version-conflict"), hosts)
    assert found.outcome == "confirmed"


# the command line


def test_the_command_line_verifies_on_hosts_that_it_is_told(gpu_hosts: Machine, job: Job) -> None:
    hosts = job(gpus(1))
    words = ["verify", str(SEED), "--format", "json", "--patience", "0.3", "--wait", "60", "--quiet", "--suspects", "1"]
    for host in hosts:
        words += ["--host", host.option]
    with alone(), gpu_hosts.host("login").here():
        result = CliRunner().invoke(cli, words)
    assert result.exit_code in (0, 4), result.output
    runs = json.loads(result.stdout)["diagnoses"][0]["verification"]["runs"]
    assert {(run["op"], run["backend"], run["world_size"]) for run in runs if not run["changed"]} == {
        ("BROADCAST", "nccl", 2)
    }
    assert [host.used for host in hosts] == [{0}] * 2
