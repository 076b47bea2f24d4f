"""Agents as child processes: what cannot start, what babbles, what dies, and what is left afterwards."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.errors import UsageError
from nccl_triage.hosts import processes
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.processes import ProcessLauncher, ProcessLink
from nccl_triage.verify.cluster import Cluster, worker

SOON = 10.0
#: An agent that answers every command by its name, and does first what a test wants.
AGENT = """
import json, sys, time, os
{first}
stream = open(0, "rb")
stream.read(int(stream.readline() or 0))
for line in stream:
    name = json.loads(line)["do"]
    print(json.dumps(dict(answer=name, facts=dict(who="me"), port=1)), flush=True)
"""


def scripted(folder: Path, first: str = "") -> str:
    """Write an interpreter of agents: whatever file it is given, it runs ours."""
    program = folder / "program.py"
    program.write_text(AGENT.format(first=first))
    path = folder / "python"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} -S {program}\n")
    path.chmod(0o755)
    return str(path)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def gathered(link: ProcessLink, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found += link.receive()
    return found


def ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_an_agent_is_greeted_and_leaves_nothing(tmp_path: Path) -> None:
    with Cluster(ProcessLauncher([HostPlace("a"), HostPlace("b")], worker())) as cluster:
        cluster.greet(SOON)
        assert [facts["executable"] for facts in cluster.facts] == [sys.executable] * 2
        pids = [link._process.pid for link in cluster._listener.links.values()]  # type: ignore[attr-defined]
        assert cluster.ask("port", [1], SOON)[1]["port"]
    assert all(ended(pid) for pid in pids)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("python", ["/nowhere/python", ".", "/etc/passwd"])
def test_an_interpreter_that_cannot_start(tmp_path: Path, python: str) -> None:
    with pytest.raises(UsageError) as caught, Cluster(ProcessLauncher([HostPlace("node-a")], worker(), python, python)):
        pytest.fail("it started")
    assert "node-a" in caught.value.message
    assert python in str(caught.value.cause)
    assert "--python" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("python", "cause"),
    [
        ("/bin/false", "exit code 1"),
        ("/bin/true", "exit code 0"),
        ("/bin/cat", "/bin/cat"),  # which knows no such option
    ],
)
def test_an_interpreter_that_is_none(tmp_path: Path, python: str, cause: str) -> None:
    with Cluster(ProcessLauncher([HostPlace("node-a")], worker(), python, python)) as cluster:
        started = time.monotonic()
        with pytest.raises(UsageError) as caught:
            cluster.greet(SOON)
    assert time.monotonic() - started < SOON, "its end was noticed, not waited for"
    assert caught.value.message == "no answer from node-a"
    assert cause in str(caught.value.cause)
    assert "--python" in str(caught.value.remedy)


def test_a_command_that_does_not_reach_its_host(tmp_path: Path) -> None:
    says = "echo 'ssh: connect to host node-b port 22: No route to host' >&2; exit 255"
    places = [HostPlace("node-a"), HostPlace("node-b", ("sh", "-c", says))]
    with Cluster(ProcessLauncher(places, worker())) as cluster, pytest.raises(UsageError) as caught:
        cluster.greet(SOON)
    assert caught.value.message == "no answer from node-b"
    assert caught.value.cause == "ssh: connect to host node-b port 22: No route to host"


def test_the_first_agents_are_ended_when_a_later_one_cannot_start(tmp_path: Path) -> None:
    launcher = ProcessLauncher([HostPlace("a"), HostPlace("b", ("/nowhere/ssh",))], worker())
    before = children()
    with pytest.raises(UsageError), Cluster(launcher):
        pytest.fail("it started")
    assert children() == before


def children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "FAREWELL", 0.3)


@pytest.mark.usefixtures("hurry")
def test_a_silent_agent_is_given_up(tmp_path: Path) -> None:
    python = scripted(tmp_path, "time.sleep(600)")
    with Cluster(ProcessLauncher([HostPlace("a")], worker(), python, python)) as cluster:
        with pytest.raises(UsageError) as caught:
            cluster.greet(0.3)
        assert "0 s" in str(caught.value.cause)
        pid = cluster._listener.links[0]._process.pid  # type: ignore[attr-defined]
        started = time.monotonic()
    assert time.monotonic() - started < processes.FAREWELL + 2.0
    assert ended(pid)


@pytest.mark.parametrize(
    "banner",
    ["Welcome to node-a", "5", "null", '"text"', "[1, 2]", "{", "[" * 100_000, "\x00\x1b[2J", "{}", '{"answer": 5}'],
)
def test_what_a_login_prints_is_passed_over(tmp_path: Path, banner: str) -> None:
    python = scripted(tmp_path, f"print({banner!r}, flush=True)")
    with Cluster(ProcessLauncher([HostPlace("a")], worker(), python, python)) as cluster:
        cluster.greet(SOON)
        assert cluster.facts == [{"who": "me"}]


def test_an_agent_that_complains_at_length_is_not_stopped_by_it(tmp_path: Path) -> None:
    """More than a pipe holds: nobody reads standard error while the agent runs."""
    python = scripted(tmp_path, "sys.stderr.write('warning\\n' * 200_000); sys.stderr.flush()")
    with Cluster(ProcessLauncher([HostPlace("a")], worker(), python, python)) as cluster:
        cluster.greet(SOON)


@pytest.mark.usefixtures("hurry")
def test_an_agent_that_talks_without_end_does_not_outlast_the_patience(tmp_path: Path) -> None:
    with Cluster(ProcessLauncher([HostPlace("a", ("sh", "-c", "yes"))], worker())) as cluster:
        started = time.monotonic()
        with pytest.raises(UsageError):
            cluster.greet(0.5)
        assert time.monotonic() - started < SOON


def test_answers_may_come_in_pieces(tmp_path: Path) -> None:
    first = "print('{\"answer\": \"hel', end='', flush=True); time.sleep(0.1); print('lo\"}', flush=True)"
    link = ProcessLink([scripted(tmp_path, first)])
    try:
        found: list[dict[str, Any]] = []
        until(lambda: gathered(link, found))
        assert found == [{"answer": "hello"}]
    finally:
        link.close()


def test_the_end_of_an_agent_is_told_once_with_its_last_words(tmp_path: Path) -> None:
    link = ProcessLink([scripted(tmp_path, "sys.stderr.write('a\\nlast words\\n'); sys.exit(3)")])
    found: list[dict[str, Any]] = []
    until(lambda: gathered(link, found))
    assert found == [{"answer": "gone", "error": "last words"}]
    link.send({"do": "facts"})  # into a closed pipe
    assert link.receive() == []
    link.close()


def test_an_agent_that_is_killed_is_missed_in_every_question(tmp_path: Path) -> None:
    with Cluster(ProcessLauncher([HostPlace("a"), HostPlace("b")], worker())) as cluster:
        cluster.greet(SOON)
        os.kill(cluster._listener.links[1]._process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        for _ in range(2):
            started = time.monotonic()
            assert set(cluster.ask("port", [0, 1], SOON)) == {0}
            assert time.monotonic() - started < SOON
        assert cluster.gone == {1: f"exit code -{signal.SIGKILL:d}"}


@pytest.mark.usefixtures("hurry")
def test_an_agent_that_does_not_listen_is_killed_in_the_end(tmp_path: Path) -> None:
    link = ProcessLink([scripted(tmp_path, "import signal; signal.signal(15, signal.SIG_IGN); time.sleep(600)")])
    pid = link._process.pid
    started = time.monotonic()
    link.close()
    assert processes.FAREWELL <= time.monotonic() - started < processes.FAREWELL + 2.0
    assert ended(pid)


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    """Names come from the command line, and could come from a log."""
    bait = tmp_path / "bait"
    launcher = ProcessLauncher([HostPlace("a", ("echo", f"$(touch {bait})", ";", "touch", str(bait)))], worker())
    with Cluster(launcher) as cluster, pytest.raises(UsageError):
        cluster.greet(SOON)
    assert not bait.exists()
