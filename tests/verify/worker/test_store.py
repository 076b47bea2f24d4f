"""The store listens where the ranks are told that it is, whichever release of torch opens it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from nccl_triage.hosts.probes import host
from nccl_triage.verify.worker import store
from tests.verify.listeners import listening

SOON = timedelta(seconds=5)
OWN = next((entry["address"] for entry in host.interfaces() if not entry["loopback"]), None)


@pytest.fixture
def dist() -> Any:
    pytest.importorskip("torch", reason="torch is not installed")
    import torch.distributed

    return torch.distributed


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", pytest.param(OWN, marks=pytest.mark.skipif(not OWN, reason="alone"))]
)
def test_nothing_but_the_address_is_listened_on(dist: Any, address: str) -> None:
    port = host.free_port()
    before = listening(os.getpid())
    found = store.tcp_store(dist, {"host": address, "port": port}, 1, 0, SOON)
    found.set("a", "b")
    assert found.get("a") == b"b"
    assert listening(os.getpid()) - before == {(address, port)}
    del found


def test_all_ranks_meet_there(dist: Any) -> None:
    import threading

    port, met = host.free_port(), list[bytes]()
    where = {"host": "127.0.0.1", "port": port}

    def join() -> None:
        other = store.tcp_store(dist, where, 2, 1, SOON)
        other.set("from 1", "hello")
        met.append(other.get("from 0"))

    thread = threading.Thread(target=join)
    thread.start()
    first = store.tcp_store(dist, where, 2, 0, SOON)
    first.set("from 0", "welcome")
    assert first.get("from 1") == b"hello"
    thread.join()
    assert met == [b"welcome"]


def test_a_rank_that_does_not_come_is_missed_in_torchs_words(dist: Any) -> None:
    with pytest.raises(RuntimeError, match="1/2 clients joined"):
        store.tcp_store(dist, {"host": "127.0.0.1", "port": host.free_port()}, 2, 0, timedelta(seconds=1))


@pytest.mark.parametrize("address", ["127.0.0.1", "", OWN or ""])
def test_a_port_that_another_program_has_is_refused_in_torchs_words(dist: Any, address: str) -> None:
    with socket.socket() as other:
        other.bind((address, 0))
        other.listen()
        where = {"host": "127.0.0.1", "port": other.getsockname()[1]}
        with pytest.raises(RuntimeError, match="EADDRINUSE"):
            store.tcp_store(dist, where, 1, 0, SOON)


class Release:
    """A torch whose TCPStore takes these parameters and notes how it was called."""

    def __init__(self, *known: str) -> None:
        self.known, self.calls = known, list[dict[str, Any]]()

    def TCPStore(self, *given: Any, **extra: Any) -> str:
        if not set(extra) <= set(self.known):
            raise TypeError("incompatible constructor arguments")
        self.calls.append(extra)
        if "master_listen_fd" in extra:
            os.close(extra["master_listen_fd"])  # as torch does in the end
        return "store"


@pytest.fixture
def version(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield lambda text: monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__=text))


@pytest.mark.parametrize(
    ("release", "known", "wanted"),
    [
        ("2.13.0+cpu", ("master_listen_fd", "use_libuv"), {"master_listen_fd"}),
        ("2.8.0", ("master_listen_fd", "use_libuv"), {"master_listen_fd"}),
        ("2.7.1+cu126", ("master_listen_fd", "use_libuv"), {"master_listen_fd", "use_libuv"}),
        ("2.4.0a0+git1", ("master_listen_fd", "use_libuv"), {"master_listen_fd", "use_libuv"}),
        ("2.0.1", ("master_listen_fd",), {"master_listen_fd"}),
        ("1.13.1", (), set()),
        ("unknown", (), set()),
    ],
)
def test_every_release_is_asked_in_its_own_way(
    version: Any, release: str, known: tuple[str, ...], wanted: set[str]
) -> None:
    version(release)
    torch = Release(*known)
    open_before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert store.tcp_store(torch, {"host": "127.0.0.1", "port": host.free_port()}, 2, 0, SOON) == "store"
    assert [set(call) for call in torch.calls] == [wanted]
    assert torch.calls[0].get("use_libuv", False) is False
    assert len(os.listdir("/proc/self/fd")) == open_before  # noqa: PTH208


@pytest.mark.parametrize("place", ["a-name", "192.0.2.1", "localhost"])
def test_names_and_addresses_of_others_are_left_to_torch(version: Any, place: str) -> None:
    version("2.13.0")
    torch = Release("master_listen_fd", "use_libuv")
    store.tcp_store(torch, {"host": place, "port": host.free_port()}, 2, 0, SOON)
    assert torch.calls == [{}]


def test_only_rank_0_listens(version: Any) -> None:
    version("2.13.0")
    torch = Release("master_listen_fd", "use_libuv")
    store.tcp_store(torch, {"host": "127.0.0.1", "port": host.free_port()}, 2, 1, SOON)
    assert torch.calls == [{}]
