"""Verdicts are gated: only the job's own hosts, GPUs and variables decide, and what was transient is not contradicted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nccl_triage.verify import feedback
from tests.verify.gpu_host import Fault, Gpu, GpuHost, Machine, Torch, gpus
from tests.verify.gpu_sessions import Session, asked, verified

Job = Callable[..., list[GpuHost]]
pytestmark = pytest.mark.xdist_group("gpu-hosts")


def contradicted(found: Session) -> bool:
    return feedback.contradicted(found.after, found.before["diagnoses"][0]["cause"])


# another host than the job's


def test_an_interface_of_the_log_that_a_strange_host_lacks_confirms_nothing(gpu_hosts: Machine) -> None:
    wanted = asked(
        "network-firewall-port",
        also={"network-wrong-interface": 0.2},
        env={"NCCL_SOCKET_IFNAME": "bond0"},
        evidence=["NCCL_SOCKET_IFNAME set by environment to bond0"],
    )
    for here in (gpu_hosts.host("stranger"), gpu_hosts.host("stranger", gpus(2))):
        found = verified(wanted, here=here)
        assert not {"confirmed", "supported", "refuted"} & found.outcomes
        assert found.unmoved


def test_on_two_strange_hosts_the_interface_of_the_log_confirms_nothing(job: Job) -> None:
    wanted = asked("network-wrong-interface", env={"NCCL_SOCKET_IFNAME": "bond0"})
    found = verified(wanted, job(names=("other-1", "other-2")))
    assert found.outcome not in ("confirmed", "supported", "refuted")
    assert found.unmoved


def test_on_the_jobs_hosts_an_interface_that_is_not_there_is_confirmed(job: Job) -> None:
    found = verified(asked("network-wrong-interface", env={"NCCL_SOCKET_IFNAME": "bond0"}), job())
    assert found.outcome == "confirmed"
    assert found.after["headline"].startswith("Confirmed by experiment")


def test_a_port_that_is_taken_here_confirms_nothing_of_another_cluster(gpu_hosts: Machine) -> None:
    stranger = gpu_hosts.host("stranger")
    with stranger.listening() as port:
        found = verified(asked("port-in-use", port=port), here=stranger)
    assert found.outcome not in ("confirmed", "supported", "refuted")
    assert found.unmoved


def test_a_port_that_is_taken_on_the_jobs_host_confirms_it(gpu_hosts: Machine) -> None:
    host = gpu_hosts.host("gpu-a")
    with host.listening() as port:
        found = verified(asked("port-in-use", port=port, hosts=("gpu-a",)), [host])
    assert found.outcome == "confirmed"


@pytest.mark.parametrize("cause", ["collective-mismatch", "gpu-p2p-broken", "straggler", "nccl-version-conflict"])
def test_on_strange_hosts_nothing_moves(job: Job, cause: str) -> None:
    found = verified(asked(cause, world=4), job(names=("other-1", "other-2")))
    assert found.outcome not in ("confirmed", "refuted")
    assert found.unmoved


def test_a_fault_of_a_strange_hosts_gpu_confirms_nothing(job: Job) -> None:
    broken = (Gpu(), Gpu(faults=(Fault(does="wrong", unless={"NCCL_P2P_DISABLE": "1"}),)))
    found = verified(asked("gpu-p2p-broken", world=4), job(names=("other-1", "other-2"), first=broken))
    assert found.outcome not in ("confirmed", "supported", "refuted")
    assert found.unmoved


def test_the_same_fault_on_the_jobs_hosts_is_confirmed(job: Job) -> None:
    broken = (Gpu(), Gpu(faults=(Fault(does="wrong", unless={"NCCL_P2P_DISABLE": "1"}),)))
    found = verified(asked("gpu-p2p-broken", world=4), job(broken))
    assert found.outcome == "confirmed"
    assert found.of()["treatments"][0]["passed"]
    assert not found.unmoved


# a healthy present


@pytest.mark.parametrize(
    "cause", ["rendezvous-failed", "network-link-fault", "gpu-hardware-fault", "port-in-use", "process-crashed"]
)
def test_a_healthy_present_contradicts_no_transient_cause(job: Job, cause: str) -> None:
    culprits = [{"host": "gpu-b", "rank": 2, "gpu": 0}] if cause == "gpu-hardware-fault" else []
    found = verified(asked(cause, world=4, port=29517 if "port" in cause else None, culprits=culprits), job())
    assert found.outcome == "not-reproduced"
    assert found.unmoved
    assert not contradicted(found)


def test_a_lasting_cause_is_contradicted_by_a_healthy_present(job: Job) -> None:
    found = verified(asked("network-wrong-interface", world=4, env={"NCCL_SOCKET_IFNAME": "eth"}), job())
    assert found.outcome == "refuted"
    assert contradicted(found)
    assert found.after["headline"].startswith("Contradicted by experiment")


# the verifier's own failures


@pytest.mark.parametrize(
    ("torch", "words", "cause"),
    [
        (Torch("cpu"), "CUDA", "network-link-fault"),
        (Torch("missing"), "PyTorch", "gpu-p2p-broken"),
        (Torch("broken"), "libcudart.so.12", "rendezvous-failed"),
        (Torch("rocm"), "ROCm", "network-link-fault"),
    ],
)
def test_a_torch_that_cannot_do_it_is_not_run(job: Job, torch: Torch, words: str, cause: str) -> None:
    found = verified(asked(cause, world=4), job(torch=torch), backend="nccl")
    assert found.outcomes == {"not-run"}
    assert words in found.says
    assert found.unmoved
    assert not found.of()["findings"]


def test_a_torch_that_is_broken_on_one_host_is_no_evidence_with_gloo_either(gpu_hosts: Machine) -> None:
    hosts = [gpu_hosts.host("gpu-a"), gpu_hosts.host("gpu-b", torch=Torch("broken"))]
    found = verified(asked("rendezvous-failed"), hosts)
    assert found.outcomes == {"not-run"}
    assert "gpu-b" in found.says
    assert "libcudart" in found.says
    assert found.unmoved


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_a_slow_import_on_one_host_is_no_evidence(gpu_hosts: Machine, backend: str) -> None:
    hosts = [gpu_hosts.host("gpu-a", gpus(1)), gpu_hosts.host("gpu-b", gpus(1), torch=Torch(import_seconds=3.5))]
    found = verified(asked("rendezvous-failed"), hosts, backend=backend, timeout_factor=0.05)
    assert found.outcome in ("not-reproduced", "not-run")
    assert found.unmoved
    assert not found.of()["findings"]


def test_nccl_that_does_not_work_on_one_gpu_alone_is_not_run(job: Job) -> None:
    last = "CUDA driver version is insufficient for CUDA runtime version"
    broken = gpus(2, faults=(Fault(at="init", does="raise", result="ncclUnhandledCudaError", last=last),))
    found = verified(asked("network-link-fault", world=4), job(broken))
    assert found.outcome == "not-run"
    assert "insufficient" in found.says
    assert found.unmoved


def test_a_trivial_all_reduce_comes_before_the_control(job: Job) -> None:
    hosts = job()
    verified(asked("collective-mismatch", world=4, op="ALLTOALL_BASE"), hosts)
    worlds = [entry["world"] for host in hosts for entry in host.communicators]
    assert 1 in worlds
    assert worlds.index(1) < worlds.index(4)


# variables


def test_a_plugin_that_is_not_repeated_is_named_and_prevents_refutation(job: Job) -> None:
    env = {"NCCL_SOCKET_IFNAME": "eth", "NCCL_NET_PLUGIN": "/opt/site/libnccl-net-site.so"}
    found = verified(asked("network-wrong-interface", world=4, env=env), job())
    assert "NCCL_NET_PLUGIN" in found.says
    assert found.outcome != "refuted"


def test_the_retries_of_the_network_are_repeated_or_named(job: Job) -> None:
    hosts = job()
    found = verified(asked("nccl-env-misconfig", world=4, env={"NCCL_IB_TIMEOUT": "5"}), hosts)
    repeated = [entry["env"].get("NCCL_IB_TIMEOUT") for host in hosts for entry in host.communicators]
    if "5" not in repeated:
        assert "NCCL_IB_TIMEOUT" in found.says
        assert found.outcome != "refuted"


def test_headline_and_order_agree_with_the_verdicts(job: Job) -> None:
    wanted = asked(
        "gpu-p2p-broken", world=4, also={"network-wrong-interface": 0.25}, env={"NCCL_SOCKET_IFNAME": "bond0"}
    )
    found = verified(wanted, job())
    first = found.after["diagnoses"][0]
    assert first["cause"] == "network-wrong-interface"
    assert first["verification"]["outcome"] == "confirmed"
    assert found.after["headline"].startswith("Confirmed by experiment")
