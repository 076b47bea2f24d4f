"""The probe against servers that behave well, badly, or not at all."""

from __future__ import annotations

import errno
import itertools
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.verify.worker import loss, reach
from tests.verify.worker_file import worker_file

#: Seconds that count as lost in these tests.
PATIENCE = 0.3
Answer = Callable[[socket.socket], None]


@contextmanager
def server(answer: Answer) -> Iterator[int]:
    """Answer every connection in a thread of its own; yields the port."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        kept: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                kept.append(connection)
                threading.Thread(target=answering, args=(connection,), daemon=True).start()

        def answering(connection: socket.socket) -> None:
            with suppress(OSError):
                answer(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        for connection in kept:
            connection.close()


def read(connection: socket.socket, most: int = reach.SIZES[-1], delay: float = 0.0) -> None:
    """Acknowledge messages up to a size; a larger one is swallowed."""
    while len(head := connection.recv(4, socket.MSG_WAITALL)) == 4:
        (left,) = struct.unpack("!I", head)
        if left > most:
            time.sleep(60)
        while left:
            left -= len(connection.recv(min(65536, left)))
        time.sleep(delay)
        connection.sendall(loss.answer(connection))


def reset(connection: socket.socket) -> None:
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def probed(port: int, thorough: bool = True) -> dict[str, Any]:
    return reach.probe_port(reach.Target("127.0.0.1", port, thorough), PATIENCE)


def test_a_good_port() -> None:
    with server(read) as port:
        found = probed(port)
    assert found["state"] == "reachable"
    assert found["local"] == "127.0.0.1"
    assert 0 <= found["connect_s"] < 1 and 0 < found["round_trip_s"] < 1
    assert {f"answer_{size}_s" for size in reach.SIZES} <= set(found)


def test_a_port_that_is_only_connected_to() -> None:
    with server(lambda connection: time.sleep(60)) as port:
        found = probed(port, thorough=False)
    assert found["state"] == "reachable" and "round_trip_s" not in found


@pytest.mark.parametrize(
    ("most", "state", "answered"),
    [(0, "no-data", 0), (64, "large-packets-lost", 64), (8192, "large-packets-lost", 8192)],
)
def test_messages_that_are_swallowed_by_their_size(most: int, state: str, answered: int) -> None:
    with server(lambda connection: read(connection, most)) as port:
        found = probed(port)
    assert (found["state"], found["answered"]) == (state, answered)


def test_a_connection_that_is_reset() -> None:
    with server(reset) as port:
        assert probed(port)["state"] == "reset"


def test_a_connection_that_is_closed() -> None:
    with server(lambda connection: connection.close()) as port:
        assert probed(port)["state"] == "reset"


def test_a_port_that_nobody_listens_on() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        found = probed(closed.getsockname()[1])
    assert (found["state"], found["error"]) == ("refused", "ECONNREFUSED")


def test_a_port_that_answers_nothing() -> None:
    """A full queue drops what knocks, as a firewall does."""
    with socket.socket() as full, socket.socket() as first:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        first.connect(full.getsockname())
        with suppress(TimeoutError), socket.create_connection(full.getsockname(), 0.1):
            found = probed(full.getsockname()[1])
        found = probed(full.getsockname()[1])
    assert found["state"] == "silent"
    assert "connect_s" not in found


@pytest.mark.parametrize(
    ("number", "state"),
    [
        (errno.ENETUNREACH, "no-route"),
        (errno.EHOSTUNREACH, "no-route"),
        (errno.EACCES, "prohibited"),
        (errno.EPERM, "prohibited"),
        (errno.EINVAL, "no-route"),
        (errno.ETIMEDOUT, "silent"),
        (errno.EADDRNOTAVAIL, "failed"),
    ],
)
def test_what_the_kernel_says(number: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_connect(monkeypatch, lambda *_: OSError(number, "no"))
    found = probed(4000)
    assert found["state"] == state and "said_by" not in found, "there is a route to the loopback"


def replace_connect(monkeypatch: pytest.MonkeyPatch, error: Callable[[str, int], OSError | None]) -> None:
    """Let connections fail with an error where there is one; datagram sockets only ask the routing table."""
    connect = socket.socket.connect

    def connecting(own: socket.socket, where: tuple[str, int]) -> None:
        found = error(*where) if own.type == socket.SOCK_STREAM else None
        if found is not None:
            raise found
        connect(own, where)

    monkeypatch.setattr(socket.socket, "connect", connecting)


def test_answers_that_take_long() -> None:
    with server(lambda connection: read(connection, delay=2 * reach.DELAYED)) as port:
        found = reach.probe_port(reach.Target("127.0.0.1", port, True), 5.0)
    assert found["state"] == "delayed" and found["round_trip_s"] > reach.DELAYED


def test_a_good_path_has_its_numbers() -> None:
    with server(read) as port:
        found = reach.probe_port(reach.Target("127.0.0.1", port, True), 5.0)
    assert found["connections"] == loss.LANES and found["messages"] >= 300
    assert found["sent_again"] == found["answers_sent_again"] == found["bulk_sent_again"] == 0
    assert found["bytes_s"] > 1 << 20


def lossy(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Let the kernel say that it sent a segment again with each so many looks at its counts."""
    looks = itertools.count()
    monkeypatch.setattr(loss, "counts_of", lambda connection: loss.Counts(next(looks) // every))


def test_a_path_that_loses_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    lossy(monkeypatch, 20)
    with server(read) as port:
        found = probed(port)
    assert found["state"] == "lossy" and found["lost_rounds"] >= 3
    assert "bytes_s" not in found, "a lossy path is slow anyway"


def test_a_large_message_that_was_lost_on_a_path_that_loses_small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    lossy(monkeypatch, 20)
    with server(lambda connection: read(connection, 64)) as port:
        found = probed(port)
    assert (found["state"], found["answered"]) == ("lossy", 64)


def test_a_port_that_fails_once_beside_others_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def sometimes(address: str, port: int) -> OSError | None:
        asked.append(port)
        return TimeoutError() if asked.count(port) == 1 and port in twice else None

    with server(read) as good, server(read) as once:
        twice = {once}
        replace_connect(monkeypatch, sometimes)
        target = {"host": "b", "interface": "eth0", "address": "127.0.0.1", "ports": [good, once]}
        assert [entry["state"] for entry in reach.probe([target], PATIENCE)] == ["reachable", "reachable"]
        asked.clear()
        twice.add(good)
        assert [entry["state"] for entry in reach.probe([target], PATIENCE)] == ["silent", "silent"]
        assert sorted(asked) == sorted([good, once]), "where nothing answers, chance is no explanation"


def test_targets_are_probed_at_once_and_told_apart() -> None:
    with server(read) as good, server(lambda connection: time.sleep(60)) as mute:
        where = {"host": "b", "interface": "eth0", "address": "127.0.0.1"}
        targets = [
            {**where, "ports": [good, good]},
            *[{**where, "host": f"m{k}", "ports": [mute]} for k in range(8)],
            {**where, "ports": [good], "kind": "port of the log"},
        ]
        started = time.monotonic()
        found = reach.probe(targets, PATIENCE)
        assert time.monotonic() - started < 4 * PATIENCE, "not one after the other"
    assert [entry["state"] for entry in found] == ["reachable", "reachable", *["no-data"] * 8, "reachable"]
    assert "round_trip_s" in found[0] and "round_trip_s" not in found[1], "the first port thoroughly"
    assert (found[0]["to_host"], found[0]["to_interface"], found[0]["by_interface"]) == ("b", "eth0", "lo")
    assert [entry.get("kind") for entry in found] == [None] * 10 + ["port of the log"]


def test_no_targets() -> None:
    assert reach.probe([]) == []


# the listener


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[dict[str, Any]]]]:
    command = [sys.executable, str(worker_file(tmp_path)), "listen", "2", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
        process.kill()


def test_the_listener_answers_the_probe_on_every_interface(listener: Any) -> None:
    _, where = listener
    assert {entry["address"] for entry in where} >= {"127.0.0.1"}
    for entry in where:
        assert len(set(entry["ports"])) == 2
        for port in entry["ports"]:
            assert reach.probe_port(reach.Target(entry["address"], port, True), 5.0)["state"] in (
                "reachable",
                "delayed",
            )


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", b"\x00", b""])
def test_the_listener_survives_what_is_no_probe(listener: Any, data: bytes) -> None:
    _, where = listener
    lo = next(entry for entry in where if entry["address"] == "127.0.0.1")
    with socket.create_connection(("127.0.0.1", lo["ports"][0]), 5) as odd:
        odd.sendall(data)
        with suppress(OSError):  # it may have hung up already
            odd.shutdown(socket.SHUT_WR)
        odd.settimeout(5)
        with suppress(ConnectionResetError):
            assert odd.recv(1) == b"", "closed without an answer"
    assert reach.probe_port(reach.Target("127.0.0.1", lo["ports"][0], True), 5.0)["state"] == "reachable"


def test_the_listener_ends_with_its_input(listener: Any) -> None:
    process, where = listener
    process.stdin.close()
    assert json.loads(process.stdout.readline()) == [], "every handshake was completed"
    assert process.wait(5) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((where[0]["address"], where[0]["ports"][0]), 5)
