"""The checks before a job starts."""

from __future__ import annotations

import os

import pytest

from nccl_triage.engine import load
from nccl_triage.errors import UsageError
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.probes.gpu import Gpu, Inventory
from nccl_triage.verify import api, gpus, preflight
from nccl_triage.verify.means import HostMeans, Means
from nccl_triage.verify.plan import PlanOptions
from tests.verify import host_facts


def facts(**changes):
    return {
        "torch": "2.13.0",
        "nccl": None,
        "driver": None,
        "python": "3.11.7",
        "shm": {"size": 64 << 30, "free": 1},
        "limits": {"nofile": 1 << 20},
        **changes,
    }


def states(checks):
    return {(check.id, check.state) for check in checks}


def test_hosts_that_are_alike_are_ok():
    found = states(preflight.host_checks(["a", "b"], [facts(), facts()]))
    assert found == {("same-torch", "ok"), ("same-python", "ok")}


def test_versions_that_differ_between_hosts_fail_and_name_both():
    found = list(preflight.host_checks(["a", "b"], [facts(), facts(torch="2.9.1")]))
    (check,) = [one for one in found if one.state == "failed"]
    assert check.id == "same-torch"
    assert "a 2.13.0" in check.says["en"]
    assert "b 2.9.1" in check.says["en"]


def test_a_package_that_one_host_lacks_fails():
    assert ("same-nccl", "failed") in states(preflight.host_checks(["a", "b"], [facts(nccl="2.29.7"), facts()]))


def test_small_limits_are_warnings():
    poor = facts(shm={"size": 64 << 20, "free": 1}, limits={"nofile": 1024})
    found = states(preflight.host_checks(["a"], [poor]))
    assert {("shm", "warning"), ("nofile", "warning")} <= found


def test_no_gpu_fails_only_where_nccl_is_asked_for():
    means = Means.alike((HostPlace("here"),))
    assert states(preflight.gpu_checks(means, "nccl")) == {("gpus", "failed")}
    assert states(preflight.gpu_checks(means, "gloo")) == {("gpus", "skipped")}
    gpu = Gpu(3, remap_pending=True)
    bad = HostMeans(refusals=tuple(gpus.refusals(Inventory((gpu,)), {})), present=1)
    hosts = (HostPlace("a"), HostPlace("b"))
    found = list(preflight.gpu_checks(Means(hosts, (HostMeans(), bad)), "gloo"))
    assert ("gpu-health", "failed") in states(found)
    assert found[0].says["en"].startswith("b: ") and "GPU 3" in found[0].says["en"]


def settings(**more):
    return api.Settings(
        options=PlanOptions(backend="gloo", timeout_factor=0.3, budget=100.0, world=2), wait=120.0, **more
    )


def test_a_host_whose_own_name_is_the_loopback_is_a_warning_only():
    there = host_facts.facts("a", host_facts.interface("eth0", "10.0.0.1"), own=["127.0.1.1"])
    fine = host_facts.facts("b", host_facts.interface("eth0", "10.0.0.2"), own=["10.0.0.2"])
    (check,) = preflight.loopback_checks(["a", "b"], [there, fine])
    assert (check.id, check.state) == ("own-name", "warning")
    assert "127.0.0.1" in check.says["en"] and "GLOO_SOCKET_IFNAME" in check.says["zh"]


@pytest.mark.xdist_group("verify-live")
def test_two_healthy_ranks_are_ready_and_every_operation_ran():
    pytest.importorskip("torch", reason="needs torch")
    document = preflight.preflight(settings(), load.load(()))
    assert document["verdict"] == "ready"
    assert {check["id"]: check["state"] for check in document["checks"]}["collectives"] == "ok"
    assert {part["op"] for part in document["runs"][0]["parts"]} >= {"ALLREDUCE", "ALLTOALL", "SEND", "BARRIER"}
    assert document["suspects"] == [] and len(document["measured"]["compute"]) == 2
    text = preflight.text(document, chinese=False)
    assert text.startswith("preflight: ready")
    assert "FAILED" not in text


@pytest.mark.xdist_group("verify-live")
def test_a_rank_that_dies_is_named_and_the_job_must_not_start():
    pytest.importorskip("torch", reason="needs torch")
    document = preflight.preflight(settings(), load.load(()), faults={"1": {"name": "sigkill"}})
    assert document["verdict"] == "not-ready"
    (check,) = [one for one in document["checks"] if one["state"] == "failed"]
    assert check["id"] == "collectives"
    assert "rank 1" in check["says"]
    assert "SIGKILL" in check["says"]
    assert [(one["hosts"], one["rank"], one["stage"]) for one in document["suspects"]] == [
        ([os.uname().nodename], 1, "collectives")
    ]
    assert preflight.text(document, chinese=False).splitlines()[-1] == f"  suspects: {os.uname().nodename}, rank 1"


def test_a_python_that_does_not_exist_is_a_usage_error():
    with pytest.raises(UsageError, match=r"cannot start an agent|no answer"):
        preflight.preflight(settings(python="/no/such/python"), load.load(()))


def test_a_sweep_is_a_table_of_its_sizes() -> None:
    sizes = [
        {"bytes": 8.0, "median_s": 2.5e-05, "algbw": 0.00032, "busbw": 0.00048, "wrong": 0},
        {"bytes": 134217728.0, "median_s": 0.1, "algbw": 1.342, "busbw": 2.013, "wrong": 0},
    ]
    document = {"verdict": "ready", "seconds": 1.0, "checks": [], "suspects": [], "runs": [{"sweep": sizes}]}
    rows = [line.split() for line in preflight.text(document, chinese=False).splitlines()[1:]]
    assert rows == [
        ["bytes", "us", "algbw", "GB/s", "busbw", "GB/s"],
        ["8", "25.0", "0.00032", "0.00048"],
        ["134217728", "100000.0", "1.342", "2.013"],
    ]
    assert "总线带宽" in preflight.text(document, chinese=True)
    assert (preflight.SWEEP[0], preflight.SWEEP[-1]) == (8, 128 << 20)
