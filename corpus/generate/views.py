"""How people pass a log on: whole, cut at either end, filtered by grep, the last lines only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive lines; ``mark`` is the index of the telling line among them, -1 without one; ``rank`` as in folders."""

    data: bytes
    mark: int = -1
    rank: int | None = None


def _lines(pieces: Iterable[Piece]) -> Iterator[Piece]:
    for piece in pieces:
        for number, line in enumerate(
            piece.data.splitlines(keepends=True) if b"\r" not in piece.data else _split(piece.data)
        ):
            yield Piece(line, 0 if number == piece.mark else -1, piece.rank)


def _split(data: bytes) -> list[bytes]:
    """Split at line feeds only: carriage returns stay inside their line."""
    return [line + b"\n" for line in data.split(b"\n")[:-1]] if data.endswith(b"\n") else data.split(b"\n")


def _grep(keep: Callable[[bytes], bool]) -> Callable[[Iterable[Piece]], Iterator[Piece]]:
    def view(pieces: Iterable[Piece]) -> Iterator[Piece]:
        return (piece for piece in _lines(pieces) if keep(piece.data))

    return view


def _whole(pieces: Iterable[Piece]) -> Iterator[Piece]:
    return iter(pieces)


def _last_lines(pieces: Iterable[Piece]) -> Iterator[Piece]:
    yield from deque(_lines(pieces), maxlen=200)


def _headless(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Drop the first lines, and begin in the middle of one, as a rotated or copied log does."""
    lines = _lines(pieces)
    first: list[Piece] = []
    for piece in lines:
        first.append(piece)
        if piece.mark >= 0 or len(first) >= 40:
            break
    half = first[len(first) // 2]
    if half.mark < 0 and len(half.data) > 8:
        yield Piece(half.data[len(half.data) // 2 :], -1, half.rank)
    else:
        yield half
    yield from first[len(first) // 2 + 1 :]
    yield from lines


def _tailless(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Cut the last lines off, the last one in its middle; the telling line stays."""
    held: deque[Piece] = deque()
    for piece in _lines(pieces):
        held.append(piece)
        if len(held) > 60:
            yield held.popleft()
    keep = max([len(held) // 2, *(number + 2 for number, piece in enumerate(held) if piece.mark >= 0)])
    for number, piece in enumerate(held):
        if number + 1 == keep and piece.mark < 0 and len(piece.data) > 12:
            yield Piece(piece.data[: len(piece.data) // 2].rstrip(b"\n"), -1, piece.rank)
        elif number < keep:
            yield piece


VIEWS: dict[str, Callable[[Iterable[Piece]], Iterator[Piece]]] = {
    "full": _whole,
    "head-cut": _headless,
    "tail-cut": _tailless,
    "grep-nccl": _grep(lambda line: b"NCCL" in line),
    "grep-error": _grep(lambda line: b"error" in line.lower()),
    "tail-200": _last_lines,
}
