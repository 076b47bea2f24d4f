"""When a host is the job's: by its name or an address that tells it from others, or because the user says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from nccl_triage.engine.schema import Experiment
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify.collective_run import Slot, SlotGpu
from nccl_triage.verify.means import HostMeans, Means, host_means
from nccl_triage.verify.placement import Request
from nccl_triage.verify.question import AccusedGpu, Question, SuspectedCause
from nccl_triage.verify.same_world import GpuMatch, match_gpu, match_hosts, match_variables
from tests.verify.host_facts import facts, interface

QUESTION = Question((), hosts=("gpu-a", "10.0.0.2"), addresses={"gpu-a": ("10.0.0.1",)})


def means(places: Sequence[HostPlace], agents: Sequence[dict[str, Any]] = ()) -> Means:
    told = [host_means({}, agent) for agent in agents] or [HostMeans()] * len(places)
    return Means(tuple(places), tuple(told))


def asked(question: Question, *gpus: AccusedGpu, backend: str = "nccl") -> Request:
    suspect = SuspectedCause("gpu-hardware-fault", "supported", 0.7, gpus=gpus)
    return Request(question, suspect, Experiment("single", backend=backend))


@pytest.mark.parametrize(
    ("place", "agent", "known_as"),
    [
        (HostPlace("gpu-a"), None, "gpu-a"),
        (HostPlace("GPU-A.cluster.example"), None, "gpu-a"),
        (HostPlace("10.0.0.1"), None, "gpu-a"),
        (HostPlace("node", address="10.0.0.2"), None, "10.0.0.2"),
        (HostPlace("jump"), facts("gpu-a"), "gpu-a"),
        (HostPlace("jump"), facts("gpu-a", interface("eth0", "10.0.0.2")), "gpu-a"),
        (HostPlace("pod-7"), facts("pod-7", interface("eth0", "10.0.0.2")), "10.0.0.2"),
        (HostPlace("gpu-b"), facts("gpu-b", interface("eth0", "10.0.0.3")), None),
        (HostPlace("10.0.0.9"), None, None),
        # 10.0.7.7 is no name without its domain.
        (HostPlace("10.0.7.7"), None, None),
    ],
)
def test_a_host_is_known_by_its_names_and_addresses(
    place: HostPlace, agent: dict[str, Any] | None, known_as: str | None
) -> None:
    found = means([place], [agent] if agent else [])
    assert found.name_in_log(0, QUESTION) == known_as
    assert found.names_in_log([0], QUESTION) == (known_as or place.name,)


def test_what_every_host_has_tells_none_of_them() -> None:
    """A bridge of containers and the loopback have the same address everywhere, and so has the name localhost."""
    question = Question(
        (), hosts=("gpu-a", "localhost"), addresses={"gpu-a": ("172.17.0.1", "127.0.0.1", "169.254.3.1")}
    )
    agent = facts("localhost", interface("docker0", "172.17.0.1"), interface("eth1", "169.254.3.1"))
    assert match_hosts(asked(question), means([HostPlace("localhost")], [agent]), [0]) == "other"


def test_hosts_are_the_jobs_only_when_all_of_them_are() -> None:
    found = means([HostPlace("gpu-a"), HostPlace("gpu-z")], [facts("gpu-a"), facts("gpu-z")])
    assert match_hosts(asked(QUESTION), found, [0]) == "own"
    assert match_hosts(asked(QUESTION), found, [0, 1]) == "other"
    assert match_hosts(asked(Question(())), found, [0, 1]) == "unknown"
    assert match_hosts(asked(Question(())), found, [0, 1], asserted=True) == "own"


@pytest.mark.parametrize(
    ("accused", "backend", "wanted"),
    [
        (None, "nccl", "any"),
        (AccusedGpu("gpu-a", 6), "nccl", "accused"),
        (AccusedGpu("gpu-a", bus="0000:66:00"), "nccl", "accused"),
        (AccusedGpu("gpu-a", 2), "nccl", "other"),
        (AccusedGpu("10.0.0.2", 6), "nccl", "other"),
        (AccusedGpu(None, 6), "nccl", "accused"),
        # A cause that needs no GPU to show blames a rank, of which the GPU is only where it ran.
        (AccusedGpu("gpu-a", 2), "any", "any"),
    ],
)
def test_the_accused_gpu_takes_part(accused: AccusedGpu | None, backend: str, wanted: GpuMatch) -> None:
    slots = [Slot(0, 0, SlotGpu(0, 6, "GPU-6", "0000:66:00")), Slot(1, 0, SlotGpu(1, 7, "GPU-7", "0000:67:00"))]
    request = asked(QUESTION, *([accused] if accused else []), backend=backend)
    assert match_gpu(request, means([HostPlace("gpu-a")]), slots) == wanted


@pytest.mark.parametrize(
    ("kind", "left_out", "wanted"),
    [
        ("replay", ("NCCL_NET_PLUGIN",), "left-out"),
        ("reach", ("NCCL_NET_PLUGIN",), "left-out"),
        ("store", ("NCCL_NET_PLUGIN",), "same"),
        ("versions", ("NCCL_NET_PLUGIN",), "same"),
        ("replay", (), "same"),
    ],
)
def test_variables_matter_where_they_can_change_the_outcome(kind: str, left_out: tuple[str, ...], wanted: str) -> None:
    assert match_variables(kind, left_out) == wanted
