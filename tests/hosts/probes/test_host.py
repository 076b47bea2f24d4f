"""What a host says of itself."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.hosts.probes import host


def test_the_loopback_is_an_interface_like_any_other() -> None:
    found = {entry["name"]: entry for entry in host.interfaces()}
    assert found["lo"]["address"] == "127.0.0.1"
    assert (found["lo"]["loopback"], found["lo"]["up"], found["lo"]["default"]) == (True, True, False)
    for entry in found.values():
        socket.inet_aton(entry["address"])
        socket.inet_aton(entry["netmask"])
        assert entry["mtu"] >= 68, "the least that IPv4 allows"
    assert sum(entry["default"] for entry in found.values()) <= 1


def test_an_interface_that_vanishes_while_asked_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    named = [*socket.if_nameindex(), (9999, "gone0"), (10000, "a-name-longer-than-the-kernel-has")]
    monkeypatch.setattr(socket, "if_nameindex", lambda: named)
    assert "gone0" not in {entry["name"] for entry in host.interfaces()}


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ("eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n", "eth0"),
        ("eth1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n", None),
        ("eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000080\t0\t0\t0\n", None),  # 0.0.0.0/1 of a VPN
        ("broken\n", None),
        ("", None),
    ],
)
def test_the_interface_of_the_default_route(rows: str, wanted: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n" + rows
    monkeypatch.setattr(Path, "read_text", lambda self: text)
    assert host.default_interface() == wanted


def test_facts_are_plain_data_without_the_users_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    told = json.dumps(host.facts())
    assert "hf_secret" not in told
    facts = json.loads(told)
    assert facts["env"]["NCCL_ALGO"] == "Ring"
    assert all(name.startswith(host.ALLOWED) for name in facts["env"])
    assert facts["cores"] >= 1 and facts["memory"] > 0 and facts["limits"]["nofile"] != 0
    assert facts["shm"] is None or facts["shm"]["free"] <= facts["shm"]["size"]


def test_facts_import_nothing_heavy() -> None:
    source = Path(host.__file__).parents[3]
    program = (
        f"import sys; sys.path.insert(0, {str(source)!r})\n"
        "from nccl_triage.hosts.probes import host; host.facts(); print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.split() == ["False", "False"]


def test_a_host_without_a_file_system_for_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Any) -> Any:
        raise FileNotFoundError(errno.ENOENT, "no", path)

    monkeypatch.setattr(os, "statvfs", missing)
    assert host.facts()["shm"] is None


def test_names() -> None:
    assert host.resolves("127.0.0.1") == ["127.0.0.1"]
    assert host.resolves("no-such-host.invalid") == []
    assert host.resolves("") == [] or host.resolves("") == ["127.0.0.1"]


@pytest.mark.parametrize("name", ["a" * 300, "a..b", "\x00", "ä" * 100], ids=["long", "empty", "null", "wide"])
def test_a_name_that_is_none_resolves_to_nothing(name: str) -> None:
    """A name of a log: no rule says that it is one."""
    assert host.resolves(name) == []


def test_the_state_of_a_process() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"]) as process:
        os.kill(process.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 5
        while host.state_of(process.pid) != "T":
            assert time.monotonic() < deadline
        os.kill(process.pid, signal.SIGKILL)
        while host.state_of(process.pid) != "Z":
            assert time.monotonic() < deadline
    assert host.state_of(process.pid) is None


def test_a_process_may_have_any_name(tmp_path: Path) -> None:
    """/proc/PID/stat has the name in brackets, whatever it is."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "open('/proc/self/comm', 'w').write(') R (x'); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        assert ") R (x" in Path(f"/proc/{process.pid}/stat").read_text()
        deadline = time.monotonic() + 5
        while host.state_of(process.pid) != "S":  # it waits for input
            assert time.monotonic() < deadline
        process.stdin.close()


def test_a_free_port_is_free_and_a_taken_one_says_why() -> None:
    port = host.free_port()
    assert host.port_free(port) is None
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        server.listen(1)
        assert host.port_free(port) == os.strerror(errno.EADDRINUSE)
    assert host.port_free(port) is None


def test_a_port_that_is_not_for_users_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports below 1024: that nobody may listen there does not mean that somebody does."""
    from nccl_triage.verify.worker.agent import Agent

    def refuse(self: Any, where: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(socket, "socket", type("Socket", (socket.socket,), {"bind": refuse}))
    told: list[dict[str, Any]] = []
    agent = Agent()
    monkeypatch.setattr(agent, "say", lambda **answer: told.append(answer))
    agent.do_check_port({"port": 443})
    assert told == [{"answer": "check_port", "port": 443, "taken": False, "why": os.strerror(errno.EACCES)}]
