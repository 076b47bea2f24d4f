"""The relay as a plain object, without Ray: numbered lines, logs of nodes that do not share our folder, the end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.hosts.programs import BOOT, Program
from nccl_triage.hosts.ray_actors import Relay
from nccl_triage.verify.cluster import worker


def relay_of(program: Program, folder: Path) -> Relay:
    return Relay(BOOT, program.payload, program.words, program.away, str(folder))


@pytest.fixture
def start() -> Iterator[Callable[[Path], Relay]]:
    relays = []

    def begin(folder: Path) -> Relay:
        relays.append(relay_of(worker(), folder))
        return relays[-1]

    yield begin
    for relay in relays:
        relay.stop(2.0)


def line(**command: Any) -> bytes:
    return json.dumps(command).encode() + b"\n"


def collect(relay: Relay, kind: str, patience: float = 20.0) -> list[dict[str, Any]]:
    """Return the answers up to the first of a kind, confirming what was read."""
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        lines, _ = relay.receive(len(found), 0.5)
        found.extend(json.loads(text) for text in lines)
        if any(answer["answer"] == kind for answer in found):
            return found
    raise AssertionError(f"no {kind!r} within {patience} s, only {found}")


def kinds(answers: list[dict[str, Any]]) -> list[str]:
    return [answer["answer"] for answer in answers]


def broken_rank(folder: Path) -> bytes:
    """A run whose only rank dies with a traceback before it imports torch: its fault has no name."""
    return line(
        do="run", run="r", ranks=[0], spec={"faults": {"0": {"seconds": 1}}}, folder=str(folder), method="spawn"
    )


def test_commands_that_overtook_each_other_or_came_twice_are_carried_out_once_and_in_order(
    start: Callable[[Path], Relay], tmp_path: Path
) -> None:
    relay = start(tmp_path)
    relay.send(2, line(do="end_listen"))
    relay.send(1, line(do="port"))
    relay.send(0, line(do="check_port", port=1))
    relay.send(0, line(do="check_port", port=1))
    assert kinds(collect(relay, "end_listen")) == ["hello", "check_port", "port", "end_listen"]
    assert relay.receive(4, 0.3) == ([], 3)


def test_answers_are_kept_until_they_are_confirmed(start: Callable[[Path], Relay], tmp_path: Path) -> None:
    relay = start(tmp_path)
    relay.send(0, line(do="port"))
    answers = collect(relay, "port")
    last, _ = relay.receive(len(answers) - 1, 0.1)
    assert [json.loads(text) for text in last] == answers[-1:]
    assert relay.receive(len(answers), 0.1)[0] == []
    # What is confirmed does not come back, whoever asks.
    assert relay.receive(0, 0.1)[0] == []


def test_a_dead_agent_says_why(start: Callable[[Path], Relay], tmp_path: Path) -> None:
    relay = start(tmp_path)
    os.kill(collect(relay, "hello")[0]["pid"], signal.SIGKILL)
    assert collect(relay, "gone")[-1]["error"] == "the program exited with code -9"


def test_a_program_that_is_none_says_so(tmp_path: Path) -> None:
    relay = relay_of(Program(b"raise SystemExit('no torch for you')"), tmp_path)
    assert collect(relay, "gone")[-1]["error"] == "no torch for you"
    relay.stop(1.0)


def test_a_node_without_our_folder_sends_the_logs_and_keeps_nothing(
    start: Callable[[Path], Relay], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("TMPDIR", str(own))
    folder = tmp_path / "elsewhere"
    relay = start(folder)
    relay.send(0, broken_rank(folder / "r"))
    answer = collect(relay, "exit")[-1]
    assert answer["code"] == 1
    assert "KeyError: 'name'" in answer["log"]
    assert not folder.exists()
    assert list(own.iterdir()) == []


def test_a_node_that_shares_our_folder_leaves_the_logs_there(start: Callable[[Path], Relay], tmp_path: Path) -> None:
    relay = start(tmp_path)
    relay.send(0, broken_rank(tmp_path / "r"))
    assert "log" not in collect(relay, "exit")[-1]
    relay.stop(2.0)
    assert "KeyError: 'name'" in (tmp_path / "r" / "rank-0.log").read_text()


def test_a_python_without_memfd(
    start: Callable[[Path], Relay], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    relay = start(tmp_path / "elsewhere")
    relay.send(0, broken_rank(tmp_path / "elsewhere" / "r"))
    assert "KeyError: 'name'" in collect(relay, "exit")[-1]["log"]
    assert not any(tmp_path.iterdir())


def test_an_agent_that_lingers_is_killed(start: Callable[[Path], Relay], tmp_path: Path) -> None:
    relay = start(tmp_path)
    pid = collect(relay, "hello")[0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    relay.stop(0.2)
    assert not Path(f"/proc/{pid}").exists()
