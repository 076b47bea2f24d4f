"""What drivers say of the accused GPUs and of others, and what becomes of it in a session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.probes.gpu import Gpu, Inventory
from nccl_triage.verify import gpus, plan
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.conduct import carry_out
from nccl_triage.verify.health import health_of
from nccl_triage.verify.judge import ExperimentOutcome
from nccl_triage.verify.means import HostMeans, Means, host_means
from nccl_triage.verify.placement import Request
from nccl_triage.verify.plan import PlanOptions
from nccl_triage.verify.question import AccusedGpu, Question, SuspectedCause
from nccl_triage.verify.trials import Session
from tests.verify.simulated import Launcher, World, hosts

PLACES = (HostPlace("n0"), HostPlace("n1"))


def host(*bad: int, count: int = 4) -> HostMeans:
    found = [Gpu(index, bus=f"0000:{index:02x}:00", ecc_uncorrected=2 if index in bad else 0) for index in range(count)]
    refused = tuple(gpus.refusals(Inventory(tuple(found)), {}))
    return HostMeans(tuple(gpu for gpu in found if gpu.index not in bad), count, refused, torch="2.9.1")


def request(rules: RuleSet, **blamed: Any) -> Request:
    suspect = SuspectedCause("gpu-hardware-fault", "supported", 0.6, **blamed)
    return Request(Question(()), suspect, rules.causes["gpu-hardware-fault"].experiment)


@pytest.mark.parametrize(
    ("blamed", "accused", "others", "fact"),
    [
        ({"gpus": (AccusedGpu("n1", 2),)}, 1, 1, "shows"),
        ({"gpus": (AccusedGpu("n1", bus="0000:02:00"),)}, 1, 1, "shows"),
        ({"gpus": (AccusedGpu("n1", 3),)}, 0, 2, "clean"),
        ({"gpus": (AccusedGpu("n0", 2),)}, 0, 2, "clean"),
        ({"gpus": (AccusedGpu("n1", 9),)}, 0, 2, "none"),  # nobody has read that one
        ({"hosts": ("n0",)}, 1, 1, "shows"),
        ({"hosts": ("n7",)}, 0, 2, "clean"),
        ({}, 2, 0, "shows"),
    ],
)
def test_a_fault_counts_for_the_accused_gpu_only(
    rules: RuleSet, blamed: dict[str, Any], accused: int, others: int, fact: str
) -> None:
    found = health_of(request(rules, **blamed), Means(PLACES, (host(1), host(2))))
    assert (len(found.accused), len(found.others), found.fact) == (accused, others, fact)
    for one in (*found.accused, *found.others):
        assert (one.kind, one.cause) == ("gpu-health", "gpu-hardware-fault")
        assert one.says["en"].startswith(f"{one.hosts[0]}: GPU ") and one.says["zh"] != one.says["en"]


def test_hosts_whose_gpus_nobody_has_read_are_not_clean(rules: RuleSet) -> None:
    assert health_of(request(rules), Means(PLACES, (HostMeans(), HostMeans()))).fact == "none"
    assert health_of(request(rules, hosts=("n1",)), Means(PLACES, (host(), HostMeans()))).fact == "none"


def told(*bad: int, count: int = 4) -> dict[str, Any]:
    return {
        "gpus": [
            {"index": index, "uuid": f"GPU-{index}", "ecc_uncorrected": 2 if index in bad else 0, "busy": [0]}
            for index in range(count)
        ]
    }


def outcome(world: World, rules: RuleSet, tmp_path: Path, accused: AccusedGpu) -> ExperimentOutcome:
    suspect = SuspectedCause("gpu-hardware-fault", "supported", 0.6, gpus=(accused,))
    question = Question(
        (suspect,), op="ALLREDUCE", numel=64, dtype="float32", world=2, hosts=("n0", "n1"), backend="nccl"
    )
    first = {place: dict(answer) for place, answer in world.gpus.items()}
    means = Means(PLACES, tuple(host_means({"torch": {"version": "2.9.1"}, **first[place]}) for place in (0, 1)))
    made = plan.build(question, rules.causes, means, PlanOptions(timeout_factor=0.05, budget=60.0))
    with Cluster(Launcher(world)) as cluster:
        cluster.greet(5.0)
        world.gpus.update(getattr(world, "later", {}))
        (found,) = carry_out(Session(cluster, made, rules, tmp_path)).outcomes
    return found


def test_an_accused_gpu_that_the_driver_condemns_needs_no_run(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2), gpus={0: told(), 1: told(2)})
    found = outcome(world, rules, tmp_path, AccusedGpu("n1", 2))
    assert (found.row.outcome, found.row.id, found.controls) == ("confirmed", "driver-shows-it", [])
    assert [(one.kind, one.hosts) for one in found.findings] == [("gpu-health", ("n1",))]
    assert found.why_not is None and world.started == []


def test_the_fault_of_another_gpu_is_another_finding(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2), gpus={0: told(), 1: told(3)})
    found = outcome(world, rules, tmp_path, AccusedGpu("n1", 2))
    assert (found.facts.fact, found.row.outcome != "confirmed") == ("clean", True)
    assert [one.says["en"] for one in found.findings] == [
        "n1: GPU 3 counted 2 uncorrectable ECC errors since the driver was loaded"
    ]
    # All GPUs of the accused host that can be used, every element checked, after NCCL has run alone and trivially.
    assert [started.spec["op"] for started in world.started] == ["ALLREDUCE"] * 4
    assert {place for started in world.started for place in started.places} == {1}
    assert [len(started.places) for started in world.started] == [1, 3, 3, 3]


def test_what_the_driver_says_once_only_shows_nothing(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2), gpus={0: told(), 1: told(2)})
    later = replace(world, gpus={}).gpus
    later.update({1: told()})
    world.later = later  # type: ignore[attr-defined]
    found = outcome(world, rules, tmp_path, AccusedGpu("n1", 2))
    assert (found.row.outcome, found.findings) == ("not-run", [])


def test_every_rank_is_told_its_gpu(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2), gpus={0: told(), 1: told(3)})
    outcome(world, rules, tmp_path, AccusedGpu("n1", 2))
    assert {env["CUDA_VISIBLE_DEVICES"] for started in world.started for env in started.env} == {"GPU-0,GPU-1,GPU-2"}
    assert [started.gpus for started in world.started] == [(0,), (0, 1, 2), (0, 1, 2), (0, 1, 2)]
