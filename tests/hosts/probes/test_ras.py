"""The client of NCCL's RAS against a server that speaks the documented protocol (NCCL src/ras/client_support.cc)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

from nccl_triage.hosts.probes import ras

STATUS = """NCCL version 2.31.2 compiled with CUDA 13.0
Communicators...
  #0-0 (27a079b828ff1a75) MISMATCH
    Communicator ranks have different AllReduce operation counts
    3 ranks have launched up to operation 41
    Rank 2 has launched up to operation 40 -- GPU 2 managed by process 4802 on node 10.0.0.2
"""
DIAGNOSTICS = (
    "gpu07:4120 NCCL DIAG [OK]   CUDA driver version: 13000 consistent across 4 ranks in comm 0x5fa31c27a9e0d1b4\n"
)


@dataclass
class Server:
    """NCCL's side; ``knows`` are the commands of its release, the first ``mute`` connections get no answer."""

    knows: frozenset[str] = frozenset({"verbose status", "diagnostics"})
    mute: int = 0
    status: str = STATUS
    greeting: str = "SERVER PROTOCOL 3"
    asked: list[str] = field(default_factory=list)
    connections: int = 0

    def answer(self, connection: socket.socket) -> None:
        self.connections += 1
        if self.connections <= self.mute:
            time.sleep(30)
        reader = connection.makefile("r")
        for line in reader:
            command = line.strip().lower()
            self.asked.append(command)
            if command.startswith("client protocol "):
                reply, over = self.greeting, False
            elif command.startswith("timeout "):
                reply, over = "OK", False
            elif command in self.knows:
                reply, over = (self.status if "status" in command else DIAGNOSTICS).rstrip("\n"), True
            else:
                reply, over = f"ERROR: Unknown command {command}", False
            connection.sendall(reply.encode() + b"\n")
            if over:
                reader.close()
                connection.close()
                return


@contextmanager
def listening(server: Server) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=quietly, args=(connection,), daemon=True).start()

        def quietly(connection: socket.socket) -> None:
            with suppress(OSError, ValueError):
                server.answer(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield f"localhost:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_the_report_and_the_diagnostics() -> None:
    server = Server()
    with listening(server) as address:
        assert ras.ask(address) == STATUS + DIAGNOSTICS
    assert server.asked == [
        "client protocol 2", "timeout 2", "verbose status", "client protocol 2", "timeout 2", "diagnostics",
    ]  # fmt: skip


def test_a_release_without_diagnostics() -> None:
    with listening(Server(knows=frozenset({"verbose status"}))) as address:
        started = time.monotonic()
        assert ras.ask(address) == STATUS
        assert time.monotonic() - started < 2.0, "the connection stays open after an unknown command"


def test_a_process_that_is_stopped_and_another_that_answers() -> None:
    with listening(Server(mute=1)) as address:
        assert ras.ask(address) == STATUS + DIAGNOSTICS


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "WHOLE", 1.5)
    with listening(Server(mute=99)) as address:
        assert ras.ask(address) == ""


def test_something_else_listens_there() -> None:
    with listening(Server(greeting="HTTP/1.1 400 Bad Request")) as address:
        assert ras.ask(address) == ""


def test_a_report_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "MOST", 1000)
    with listening(Server(status="x" * 100_000)) as address:
        assert len(ras.ask(address)) <= 1000 + len(DIAGNOSTICS)


@pytest.mark.parametrize(
    "address", ["", "localhost", "localhost:0", "localhost:99999", "localhost:x", "10.0.0.1:28028", "evil:1"]
)
def test_only_this_host_is_asked(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def connected(*_: object, **__: object) -> socket.socket:
        raise AssertionError("no connection may be made")

    monkeypatch.setattr(socket, "create_connection", connected)
    assert ras.ask(address) == ""


def test_ranks_of_nccl_get_a_port_of_their_own() -> None:
    first, second = (ras.variables({"backend": "nccl", "env": {}})["NCCL_RAS_ADDR"] for _ in range(2))
    assert first.startswith("localhost:") and first != "localhost:28028" and second
    asked = {"backend": "nccl", "env": {"NCCL_RAS_ADDR": "localhost:4000"}}
    assert ras.variables(asked) == {"NCCL_RAS_ADDR": "localhost:4000"}
    assert ras.variables({"backend": "gloo"}) == {}
