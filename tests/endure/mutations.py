"""Ways to change a log as hosts, collectors, people and chance do; each takes a source of chance, and nothing else varies."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from random import Random
from typing import Any

from tests.endure import corpus
from tests.fuzz.seeds import NUMBERS, PIECES

Change = Callable[[bytes, Random], bytes]
_DIGITS = re.compile(rb"\d+")
#: Bytes of a log after all changes, at most.
_MOST = 120_000
#: What collectors put in front of lines; ``%d`` counts.
_PREFIXES = (
    b"[rank%d]: ", b"%d: ", b"(Worker pid=%d) ", b"node%d: ", b"[1,%d]<stderr>: ", b"[pod/train-%d/main] ",
    b"2026-01-02T03:04:05.%06dZ stderr F ", b"Jan 02 03:04:05 host%d python[77]: ", b"%d\t", b"> ", b"\x1b[36m%d\x1b[0m ",
)  # fmt: skip


def splice(data: bytes, chance: Random) -> bytes:
    """Join the head of a log and the tail of another one, anywhere."""
    other = corpus.text(chance.choice(corpus.logs()))
    return data[: chance.randint(0, len(data))] + other[chance.randint(0, len(other)) :]


def shuffle(data: bytes, chance: Random) -> bytes:
    """Put the lines of a stretch into another order."""
    lines = data.splitlines(keepends=True)
    start = chance.randint(0, len(lines))
    stretch = lines[start : start + chance.choice((3, 30, 3000))]
    chance.shuffle(stretch)
    return b"".join(lines[:start] + stretch + lines[start + len(stretch) :])


def duplicate(data: bytes, chance: Random) -> bytes:
    """Repeat a stretch of lines."""
    lines = data.splitlines(keepends=True)
    start = chance.randint(0, len(lines))
    stretch = lines[start : start + chance.choice((1, 5, 50))]
    return b"".join(lines[:start] + stretch * chance.choice((2, 9, 300)) + lines[start:])


def truncate(data: bytes, chance: Random) -> bytes:
    """Keep what stands between two places."""
    start, stop = sorted((chance.choice((0, chance.randint(0, len(data)))), chance.randint(0, len(data))))
    return data[start:stop]


def digits(data: bytes, chance: Random) -> bytes:
    """Exchange numbers: for ones nearby, for any, for such as programs trip over."""
    share = chance.choice((0.002, 0.02, 0.3))

    def other(match: re.Match[bytes]) -> bytes:
        if chance.random() > share:
            return match[0]
        near = str(int(match[0][:18]) + chance.choice((-1, 1, 10))).encode()
        return chance.choice((near, str(chance.getrandbits(33)).encode(), chance.choice(NUMBERS).encode()))

    return _DIGITS.sub(other, data)


def prefix(data: bytes, chance: Random) -> bytes:
    """Put in front of lines what a collector does."""
    first, among = chance.choice(_PREFIXES), chance.choice((1, 4, 5000))
    marked = first.count(b"%")
    made = [(first % (chance.randrange(among)) if marked else first) + line for line in data.split(b"\n")]
    return b"\n".join(made)


def record(data: bytes, chance: Random) -> bytes:
    """Wrap lines into records, as Docker does."""
    quoted = (corpus.orjson.dumps(line.decode("utf-8", "replace") + "\n") for line in data.split(b"\n"))
    return b"".join(b'{"log":%s,"stream":"stderr","time":"2026-01-02T03:04:05Z"}\n' % line for line in quoted)


def insert(data: bytes, chance: Random) -> bytes:
    """Put pieces of markup, control sequences and openers anywhere."""
    for _ in range(chance.choice((1, 8))):
        at = chance.randint(0, len(data))
        data = data[:at] + chance.choice(PIECES).encode("utf-8", "surrogatepass") + data[at:]
    return data


def hole(data: bytes, chance: Random) -> bytes:
    """Put a hole of NULs anywhere."""
    at = chance.choice((0, len(data), chance.randint(0, len(data))))
    return data[:at] + bytes(chance.choice((1, 150, 70_000))) + data[at:]


def flip(data: bytes, chance: Random) -> bytes:
    """Damage bytes."""
    damaged = bytearray(data)
    for _ in range(min(len(data), chance.choice((1, 20)))):
        damaged[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(damaged)


def encode(data: bytes, chance: Random) -> bytes:
    """Write the text in another encoding, or packed, or with other line ends."""
    text = data.decode("utf-8", "replace")
    form = chance.choice(("utf-16", "utf-16-be", "gb18030", "gz", "crlf", "cr"))
    if form == "gz":
        return gzip.compress(data, 1, mtime=0)
    if form in ("crlf", "cr"):
        return data.replace(b"\n", b"\r\n" if form == "crlf" else b"\r")
    return text.encode(form, "replace")


CHANGES: tuple[Change, ...] = (splice, shuffle, duplicate, truncate, digits, prefix, record, insert, hole, flip)


def changed(data: bytes, chance: Random) -> bytes:
    """Change a log once to five times, and now and then write it in another encoding."""
    for _ in range(chance.randint(1, 5)):
        data = chance.choice(CHANGES)(data, chance)[:_MOST]
    return encode(data, chance) if chance.random() < 0.1 else data


def leaf(chance: Random, old: Any) -> Any:
    """Return another value for a place of a document."""
    return chance.choice((
        *(None, True, 0, -1, 1 << 40, 1e300, 0.5, "", [], {}, [old], {"name": old}, [[[]]], "x" * 5000),
        *(old, chance.choice(NUMBERS), chance.choice(PIECES).encode("utf-8", "replace").decode()),
    ))  # fmt: skip


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of every value of a document."""
    found: list[tuple[Any, Any]] = []
    left = [document]
    while left:
        value = left.pop()
        keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        found += [(value, key) for key in keys]
        left += [value[key] for key in keys]
    return found


def mutated(document: Any, chance: Random) -> Any:
    """Exchange, drop, double and move some values of a document, in place."""
    for _ in range(chance.choice((1, 1, 3, 12))):
        places = _places(document)
        if not places:
            break
        container, key = chance.choice(places)
        what = chance.random()
        if what < 0.15:
            del container[key]
        elif what < 0.3 and isinstance(container, list):
            container.extend(container[key : key + 3] * chance.choice((1, 40)))
        elif what < 0.4:
            other, its = chance.choice(places)
            container[key] = corpus.orjson.loads(corpus.orjson.dumps(other[its], default=repr))
        else:
            container[key] = leaf(chance, container[key] if not isinstance(container[key], (dict, list)) else None)
    return document
