"""A real Ray cluster for tests: several raylets on this machine, each of which Ray takes for a node."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

#: Marks of a test file that uses ``cluster``: with ``--dist loadgroup`` they run in one worker, one cluster at a time.
MARKS = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed"),
]
#: What each raylet has: room for little, and GPUs that only Ray believes in.
NODE: dict[str, Any] = {"num_cpus": 1, "num_gpus": 2, "object_store_memory": 80 << 20}
#: Ray notices a dead node after 3 s instead of 14, and its workers do not yield to everybody else (nice 15).
QUICK = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3, "worker_niceness": 0}
#: Seconds for processes to be gone after they were told to.
GONE = 10.0


@pytest.fixture(scope="module")
def _raylets() -> Iterator[tuple[Any, dict[str, str]]]:
    """Two raylets, and the environment in which they live; one cluster at a time, for some of their ports are fixed."""
    from ray.cluster_utils import Cluster as Raylets

    # Not pytest's folder: the paths of Ray's sockets below it would be too long.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        own = {
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": folder,
            "TMPDIR": f"{folder}/nodes",
        }
        for name in ("ray", "nodes"):
            Path(folder, name).mkdir()
        head = {**NODE, "include_dashboard": False, "_system_config": QUICK}
        with _inside(own):
            raylets = Raylets(initialize_head=True, head_node_args=head)
        try:
            with _inside(own):
                raylets.add_node(**NODE)
            yield raylets, own
        finally:
            raylets.shutdown()


@pytest.fixture(scope="module")
def cluster(_raylets: tuple[Any, dict[str, str]]) -> Iterator[Any]:
    """Two raylets, apart from the network's, the user's and any other cluster's settings."""
    raylets, own = _raylets
    with _inside(own):
        yield raylets


@contextlib.contextmanager
def _inside(own: dict[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("RAY_ADDRESS", raising=False)
        for name, value in own.items():
            environment.setenv(name, value)
        yield


def alive(pid: int) -> bool:
    """Tell whether a process runs."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_for(condition: Callable[[], bool], what: str, patience: float = GONE) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience} s: {what}"
        time.sleep(0.05)
