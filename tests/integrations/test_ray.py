"""A job that fails on a real Ray of one node: what its log, its files and the wrapped command say."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .conftest import EXAMPLES, Commands, program
from .pages import block

pytestmark = [
    # Shared with the other tests that start a cluster: one at a time.
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed"),
    pytest.mark.skipif(find_spec("aiohttp_cors") is None, reason="ray[default] is not installed"),
]

JOB = "bad-sample"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@dataclass
class Failed:
    """The job after its end."""

    commands: Commands
    code: int
    said: str
    logs: Path


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Commands:
    found = Commands(tmp_path_factory.mktemp("ray") / "bin", cache)
    found.add("ray", f'exec {program("ray")} "$@"')
    return found


def started(attempts: int = 3) -> Any:
    """A cluster of one node; where another process took a port before Ray did, others are tried."""
    from ray.cluster_utils import Cluster

    head: dict[str, Any] = {
        "num_cpus": 1,
        "object_store_memory": 80 << 20,
        "include_dashboard": True,
        "dashboard_port": free_port(),
        "dashboard_agent_listen_port": free_port(),
    }
    found: Any = Cluster()
    try:
        found.add_node(**head)
    except Exception:
        found.shutdown()
        if attempts == 1:
            raise
        return started(attempts - 1)
    return found


@pytest.fixture(scope="module")
def cluster(commands: Commands) -> Iterator[Any]:
    """One node with a dashboard, apart from any other cluster of this machine."""
    # Not pytest's folder: the paths of Ray's sockets below it would be too long.
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.delenv("RAY_ADDRESS", raising=False)
        for name, value in {**commands.env, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}.items():
            environment.setenv(name, value)
        environment.setenv("RAY_TMPDIR", folder)
        found = started()
        try:
            yield found
        finally:
            found.shutdown()


@pytest.fixture(scope="module")
def failed(commands: Commands, cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Failed:
    folder = tmp_path_factory.mktemp("job")
    shutil.copytree(EXAMPLES / "ray", folder / "ray")
    commands.env.update(RAY_ADDRESS=f"http://{cluster.webui_url}", JOB=JOB, RAY_AUTH_MODE="disabled")
    command = block("ray.md", "ray job submit").replace("/tmp/$JOB.log", f"{folder}/output.log")
    result = commands.run("bash", "-c", command, cwd=folder)
    logs = Path(os.path.realpath(cluster.head_node.get_session_dir_path()), "logs")
    return Failed(commands, result.returncode, result.stdout + result.stderr, logs)


def test_the_wrapped_command_ends_with_the_verdict(failed: Failed) -> None:
    assert failed.code != 0, failed.said
    assert "root cause: application-exception" in failed.said
    assert "ValueError: sample 7 has 3 tokens" in failed.said


def test_the_log_of_the_job_names_the_exception(failed: Failed, tmp_path: Path) -> None:
    result = failed.commands.run("bash", "-c", block("ray.md", "ray job logs"), cwd=tmp_path)
    assert "root cause: application-exception" in result.stdout, result.stdout + result.stderr
    assert "ValueError: sample 7 has 3 tokens" in (tmp_path / "post-mortem.html").read_text(encoding="utf-8")


def test_the_files_of_the_session_name_the_exception(failed: Failed, tmp_path: Path) -> None:
    command = block("ray.md", "nccl-triage /tmp/ray").replace("/tmp/ray/session_latest/logs", str(failed.logs))
    result = failed.commands.run("bash", "-c", command, cwd=tmp_path)
    assert "root cause: application-exception" in result.stdout, result.stdout + result.stderr
    assert f"{failed.logs}/" in result.stdout
