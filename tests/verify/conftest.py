"""One agent with torch for all tests of a worker: importing it is what takes long."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.collective_run import HostPlace
from nccl_triage.verify.launchers.processes import ProcessLauncher
from tests.verify.gloo_cluster import Gloo
from tests.verify.gpu_host import Machine, machine


@pytest.fixture(scope="session")
def gloo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gloo]:
    """An agent on this host that has imported torch; its ranks are forked from it."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    folder = tmp_path_factory.mktemp("gloo")
    with Cluster(ProcessLauncher([HostPlace("here", slots=8)], folder)) as cluster:
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
