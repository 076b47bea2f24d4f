"""Loss on a path: rounds of small messages over several connections, and a sequential test on what had to be sent again.

Each round sends one message on every connection and waits for all answers. The kernel tells how many segments it sent
again and how many of those its peer had received already (a busy peer that answers late); the difference was lost. A
round counts once however much of it is lost, so that one hiccup of a host is no evidence of a bad link. Wald's
sequential test then decides between a share of losses that healthy networks have and one that no job should bear.
"""

from __future__ import annotations

import errno
import math
import select
import socket
import statistics
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: Connections on which a round sends at once: different ports take different links where several are bundled.
LANES = 8
#: Bytes of the messages in turn: the smallest, and one that fills a frame, which a bad cable spoils more often.
MESSAGES = (64, 1400)
#: Shares of messages that a healthy network loses at most, and from which on one is lossy.
HEALTHY, LOSSY = 0.0005, 0.01
#: Probabilities for which the test is made: to call a healthy path lossy, and to miss a lossy one.
FALSE_ALARM, MISSED = 0.001, 0.01
#: Messages and seconds at most; a path on which neither bound is reached by then is not called lossy.
MOST_MESSAGES, MOST_SECONDS = 3200, 6.0
#: An answer that takes this much longer than usual waited for a retransmission timer (seconds, Linux: 0.2 at least).
LATE = 0.19
#: Seconds that late acknowledgements get before retransmissions are called losses.
_SETTLE = 0.05
#: Offsets of tcpi_total_retrans and tcpi_dsack_dups in the kernel's struct tcp_info (linux/tcp.h).
_SENT_AGAIN, _NEEDLESS = 100, 216
#: What a listener answers: "ok", and the two counts of its own end.
_ANSWER = struct.Struct("!2sII")
ANSWER_BYTES = _ANSWER.size


class Counts(NamedTuple):
    """Segments that one end of a connection sent again, and those of them that the other end had already."""

    sent_again: int = 0
    needless: int = 0

    @property
    def lost(self) -> int:
        """Segments that had been lost."""
        return max(0, self.sent_again - self.needless)


_NONE = Counts()


def counts_of(connection: socket.socket) -> Counts:
    """Return the kernel's counts of a connection; zeros where it does not tell."""
    about = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _NEEDLESS + 4)
    known = [
        int(struct.unpack_from("I", about, offset)[0]) if len(about) >= offset + 4 else 0
        for offset in (_SENT_AGAIN, _NEEDLESS)
    ]
    return Counts(*known)


def answer(connection: socket.socket) -> bytes:
    """Return what a listener sends after each message."""
    return _ANSWER.pack(b"ok", *counts_of(connection))


def send(connection: socket.socket, size: int) -> None:
    """Send a message of ``size`` bytes."""
    connection.sendall(struct.pack("!I", size) + b"x" * size)


def receive(connection: socket.socket) -> Counts:
    """Wait for an answer and return the other end's counts; raises OSError, ConnectionResetError where none comes."""
    data = connection.recv(_ANSWER.size, socket.MSG_WAITALL)
    if len(data) < _ANSWER.size or data[:2] != b"ok":
        raise ConnectionResetError(errno.ECONNRESET, "closed")
    _, again, needless = _ANSWER.unpack(data)
    return Counts(again, needless)


def decided(lost: int, rounds: int, lanes: int) -> bool | None:
    """Return whether a path is lossy by the rounds that lost something, of all rounds; None while that is open."""
    healthy, lossy = (1 - (1 - share) ** lanes for share in (HEALTHY, LOSSY))
    evidence = lost * math.log(lossy / healthy) + (rounds - lost) * math.log((1 - lossy) / (1 - healthy))
    if evidence >= math.log((1 - MISSED) / FALSE_ALARM):
        return True
    return False if evidence <= math.log(MISSED / (1 - FALSE_ALARM)) else None


def lanes_of(address: str, ports: Sequence[int], wanted: int, timeout: float) -> list[socket.socket]:
    """Return up to ``wanted`` connections to the ports in turn; those that do not come about in time are left out."""
    made: dict[int, socket.socket] = {}
    waiting = select.poll()
    for index in range(wanted):
        connection = socket.socket()
        connection.setblocking(False)
        state = connection.connect_ex((address, ports[index % len(ports)]))
        if state in (0, errno.EINPROGRESS):
            made[connection.fileno()] = connection
            waiting.register(connection, select.POLLOUT)
        else:
            connection.close()
    ready: list[socket.socket] = []
    deadline = time.monotonic() + timeout
    while made and (left := deadline - time.monotonic()) > 0:
        for descriptor, _ in waiting.poll(left * 1000):
            waiting.unregister(descriptor)
            connection = made.pop(descriptor)
            if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                connection.close()
                continue
            connection.settimeout(timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ready.append(connection)
    for connection in made.values():
        connection.close()
    return ready


@dataclass
class _Lane:
    """One connection with the counts of both ends before the first message and now."""

    connection: socket.socket
    began: Counts
    theirs_began: Counts
    theirs: Counts

    def out(self) -> int:
        """Return what was lost on the way there."""
        return counts_of(self.connection).lost - self.began.lost

    def back(self) -> int:
        """Return what was lost on the way back."""
        return self.theirs.lost - self.theirs_began.lost


@dataclass
class LossTest:
    """The rounds of one path: how many there were, how many lost something, and the seconds of each answer."""

    connections: Sequence[socket.socket]
    sizes: Sequence[int] = MESSAGES
    rounds: int = 0
    lost_rounds: int = 0
    times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Take the counts from which on losses are counted."""
        self._lanes = [_Lane(connection, counts_of(connection), _NONE, _NONE) for connection in self.connections]
        self._most = 0

    def run(self, timeout: float) -> bool:
        """Send rounds until the path is known to be lossy or not; returns whether it is. Raises OSError."""
        deadline = time.monotonic() + min(MOST_SECONDS, 4 * timeout)
        for connection in self.connections:
            connection.settimeout(timeout)
        for lane in self._lanes:  # the first answer tells where the other end's counts begin
            send(lane.connection, self.sizes[0])
            lane.theirs_began = lane.theirs = receive(lane.connection)
        while self.rounds * len(self._lanes) < MOST_MESSAGES and time.monotonic() < deadline:
            if not self._round(self.sizes[self.rounds % len(self.sizes)], timeout):
                return self._lost() > 0  # else the other end is stuck, which is no loss
            found = self._decided()
            if found and self._settled():
                return True
            if found is False:
                return False
        return False

    def _round(self, size: int, timeout: float) -> bool:
        """Send one message on every connection and wait for the answers; returns whether all came."""
        waiting, sent = select.poll(), {}
        for lane in self._lanes:
            waiting.register(lane.connection, select.POLLIN)
            sent[lane.connection.fileno()] = lane, time.monotonic()
            send(lane.connection, size)
        deadline = time.monotonic() + timeout
        while sent and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in waiting.poll(left * 1000):
                lane, began = sent.pop(descriptor)
                waiting.unregister(descriptor)
                lane.theirs = receive(lane.connection)
                self.times.append(time.monotonic() - began)
        self.rounds += 1
        lost = self._lost()
        if lost > self._most:
            self._most = lost
            self.lost_rounds += 1
        return not sent

    def _lost(self) -> int:
        return sum(lane.out() + lane.back() for lane in self._lanes)

    def _decided(self) -> bool | None:
        # What was sent again needlessly becomes known only afterwards.
        return decided(min(self.lost_rounds, self._lost()), self.rounds, len(self._lanes))

    def _settled(self) -> bool:
        time.sleep(_SETTLE)
        return bool(self._decided())

    def numbers(self) -> dict[str, Any]:
        """Return the counts as a probe tells them."""
        usual = statistics.median(self.times) if self.times else 0.0
        return {
            "messages": self.rounds * len(self._lanes),
            "connections": len(self._lanes),
            "lost_rounds": self.lost_rounds,
            "sent_again": sum(lane.out() for lane in self._lanes),
            "answers_sent_again": sum(lane.back() for lane in self._lanes),
            "late_answers": sum(value > usual + LATE for value in self.times),
        }


#: Seconds and bytes that the measurement of throughput takes at most.
BULK_SECONDS, BULK_BYTES = 0.3, 16 << 20


def throughput(connection: socket.socket, size: int) -> dict[str, Any]:
    """Send messages of ``size`` bytes for a while; returns bytes/s, and the segments that were sent again."""
    before, sent, started = counts_of(connection), 0, time.monotonic()
    while sent < BULK_BYTES and time.monotonic() - started < BULK_SECONDS:
        send(connection, size)
        receive(connection)
        sent += size
    seconds = max(time.monotonic() - started, 1e-6)
    return {"bytes_s": int(sent / seconds), "bulk_sent_again": counts_of(connection).lost - before.lost}


def half_open(ports: frozenset[int], table: str) -> Iterator[str]:
    """Yield the addresses from which a request for one of the ports came without an end of the handshake.

    ``table`` is /proc/net/tcp: addresses and ports in hexadecimal, state 03 for SYN_RECV.
    """
    for line in table.splitlines()[1:]:
        words = line.split()
        if len(words) > 3 and words[3] == "03" and int(words[1].rpartition(":")[2], 16) in ports:
            yield socket.inet_ntoa(struct.pack("=I", int(words[2].partition(":")[0], 16)))
