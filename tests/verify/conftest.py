"""One agent with torch for all tests of a worker: importing it is what takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import pytest

from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.processes import ProcessLauncher
from nccl_triage.verify.cluster import Cluster, worker
from tests.verify.gloo_cluster import Gloo
from tests.verify.gpu_host import Gpu, GpuHost, Machine, gpus, machine


@pytest.fixture(scope="session")
def gloo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gloo]:
    """An agent on this host that has imported torch; its ranks are forked from it."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    folder = tmp_path_factory.mktemp("gloo")
    with Cluster(ProcessLauncher([HostPlace("here", slots=8)], worker())) as cluster:
        cluster.greet(20.0)
        assert cluster.preload(120.0) == {}
        yield Gloo(cluster, folder)


@pytest.fixture(scope="session")
def gpu_hosts() -> Iterator[Machine]:
    """A maker of hosts with GPUs that exist only in files; tests that use it share a worker by xdist_group("gpu-hosts")."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    with machine() as made:
        yield made


@pytest.fixture
def job(gpu_hosts: Machine) -> Callable[..., list[GpuHost]]:
    """Make the two hosts of a job, each with two GPUs, or with these; ``names`` makes them others."""
    if not gpu_hosts.apart:
        pytest.skip("needs root, iproute2 and network namespaces for hosts with addresses of their own")

    def make(
        first: Sequence[Gpu] = gpus(2),
        second: Sequence[Gpu] | None = None,
        *,
        names: Sequence[str] = ("gpu-a", "gpu-b"),
        **changes: Any,
    ) -> list[GpuHost]:
        given = (first, first if second is None else second)
        return [gpu_hosts.host(name, own, **changes) for name, own in zip(names, given, strict=True)]

    return make
