"""When one rank came to its collectives: the last of them in each group, packed, and thinned alike wherever parts meet."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

#: Calls kept of a rank in a group, and of all of them together.
MAX_KEPT, MAX_TOGETHER = 96, 1_000_000
#: Numbers of one call.
_WIDTH = 3


class Arrival(NamedTuple):
    """One call: its number, when it was issued (ns, by the rank's own clock), how long it ran (us, -1: not known)."""

    seq: int
    created: int
    ran: int


def pack(arrivals: list[Arrival]) -> bytes:
    """Return the last calls as bytes, those of the lowest numbers first."""
    kept = sorted({one.seq: one for one in arrivals}.values())[-MAX_KEPT:]
    return array("q", [number for one in kept for number in one]).tobytes()


def unpack(data: bytes) -> Iterator[Arrival]:
    """Yield the calls."""
    numbers = array("q")
    numbers.frombytes(data)
    for at in range(0, len(numbers) - _WIDTH + 1, _WIDTH):
        yield Arrival(*numbers[at : at + _WIDTH])


def thinned(data: bytes, keep: int) -> bytes:
    """Return the last ``keep`` calls."""
    return data[-keep * _WIDTH * array("q").itemsize :]


def count(data: bytes) -> int:
    """Return how many calls there are."""
    return len(data) // (_WIDTH * array("q").itemsize)
