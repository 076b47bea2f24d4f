"""The test for losses: its error rates, computed, and what it makes of the kernel's counts."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from nccl_triage.verify.worker import loss
from nccl_triage.verify.worker.loss import LANES, MOST_MESSAGES, Counts, LossTest, counts_of, decided, half_open


def rates(share: float, lanes: int = LANES) -> tuple[float, float]:
    """Return the probabilities to call a path that loses ``share`` of its messages lossy, and to call it healthy."""
    round_lost = 1 - (1 - share) ** lanes
    open_still, lossy, healthy = {0: 1.0}, 0.0, 0.0
    for rounds in range(1, MOST_MESSAGES // lanes + 1):
        after: dict[int, float] = {}
        for lost, weight in open_still.items():
            for count, part in ((lost + 1, weight * round_lost), (lost, weight * (1 - round_lost))):
                found = decided(count, rounds, lanes)
                if found is None:
                    after[count] = after.get(count, 0.0) + part
                elif found:
                    lossy += part
                else:
                    healthy += part
        open_still = after
    return lossy, healthy


@pytest.mark.parametrize("lanes", [LANES, 3, 1])
def test_losses_of_two_and_five_percent_are_not_missed(lanes: int) -> None:
    assert rates(0.05, lanes)[0] > 0.9999
    assert rates(0.02, lanes)[0] > 0.999
    assert rates(0.01, lanes)[0] > 0.985, "as good as some hundred messages can be"


@pytest.mark.parametrize("lanes", [LANES, 3, 1])
def test_a_healthy_path_is_hardly_ever_called_lossy(lanes: int) -> None:
    assert rates(0.0, lanes) == (0.0, pytest.approx(1.0))
    assert rates(0.0001, lanes)[0] < 0.00001
    assert rates(loss.HEALTHY, lanes)[0] < 0.001


def test_a_clean_path_takes_some_hundred_messages() -> None:
    rounds = next(count for count in itertools.count(1) if decided(0, count, LANES) is False)
    assert 300 <= rounds * LANES <= 600


@contextmanager
def lanes(count: int, delay: Callable[[int], float] = lambda message: 0.0) -> Iterator[list[socket.socket]]:
    """Yield connections to somebody who answers each message after a delay."""
    pairs = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    near = [socket.create_connection(server.getsockname()) for server in pairs]
    far = [server.accept()[0] for server in pairs]

    def answering(connection: socket.socket) -> None:
        for message in itertools.count():
            head = connection.recv(4, socket.MSG_WAITALL)
            if len(head) < 4:
                return
            connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
            time.sleep(delay(message))
            connection.sendall(loss.answer(connection))

    threads = [threading.Thread(target=answering, args=(end,), daemon=True) for end in far]
    for thread in threads:
        thread.start()
    yield near
    for end in (*near, *pairs):
        end.close()
    for thread in threads:
        thread.join(5)
    for end in far:
        end.close()


def test_nothing_lost() -> None:
    with lanes(4) as near:
        test = LossTest(near)
        assert not test.run(5.0)
        assert test.numbers()["messages"] == 4 * test.rounds and test.lost_rounds == 0


def told(monkeypatch: pytest.MonkeyPatch, own: Callable[[int], Counts]) -> None:
    """Let the kernel tell these counts; the argument is the number of times it was asked before."""
    asked = itertools.count()
    monkeypatch.setattr(loss, "answer", lambda connection: loss._ANSWER.pack(b"ok", 0, 0))
    monkeypatch.setattr(loss, "counts_of", lambda connection: own(next(asked)))


def test_what_is_lost_in_one_moment_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, lambda asked: Counts(0 if asked < 40 else 30))
    with lanes(4) as near:
        test = LossTest(near)
        assert not test.run(5.0)
        assert test.lost_rounds <= 2


def test_what_the_other_end_had_already_was_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, lambda asked: Counts(asked // 10, asked // 10))
    with lanes(4) as near:
        assert not LossTest(near).run(5.0)


def test_a_busy_end_is_late_and_loses_nothing() -> None:
    with lanes(2, lambda message: 0.25 if message % 40 == 7 else 0.0) as near:
        test = LossTest(near)
        assert not test.run(5.0)
        assert test.numbers()["late_answers"] > 0 and test.numbers()["sent_again"] == 0


def test_an_end_that_is_stuck_loses_nothing() -> None:
    with lanes(1, lambda message: 1.0 if message == 5 else 0.0) as near:
        assert not LossTest(near).run(0.2)


def test_the_kernels_counts_are_read() -> None:
    with lanes(1) as near:
        assert counts_of(near[0]) == Counts(0, 0)
    assert Counts(5, 2).lost == 3 and Counts(1, 2).lost == 0


def test_connections_that_do_not_come_about_are_left_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as open_, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        found = loss.lanes_of("127.0.0.1", [open_.getsockname()[1], closed.getsockname()[1]], 6, 2.0)
        assert len(found) == 3
        for connection in found:
            connection.close()


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100000A:A001 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100000A:A001 0200000A:C350 03 00000000:00000000 01:00000064 00000000     0        0 0
   2: 0100000A:A001 0300000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 2
   3: 0100000A:B001 0400000A:C350 03 00000000:00000000 01:00000064 00000000     0        0 0
"""


def test_who_asked_and_never_got_the_answer() -> None:
    assert list(half_open(frozenset({0xA001}), TABLE)) == ["10.0.0.2"]
    assert list(half_open(frozenset({0xA001}), "")) == []
