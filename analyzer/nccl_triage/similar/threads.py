"""The shipped index of public threads: where each lies, what its cause was, how that was confirmed, what its log shows.

The index is inverted (feature -> entries), so that a search touches only what the log in question has. It holds no text
of any thread: links, labels of ours, names of signatures, and words of messages.
"""

from __future__ import annotations

import gzip
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

import orjson

from nccl_triage import resources
from nccl_triage.errors import InputError

FORMAT = 1
#: Kind of a feature -> how much it counts beside a signature that was merely seen: the first signature of a fault and
#: those before the consequences most, versions and hardware only between threads that are equally alike.
KIND_WEIGHT = {"r": 2.0, "q": 1.5, "s": 1.0, "e": 1.0, "l": 0.5, "w": 0.5, "j": 0.1, "v": 0.1, "h": 0.1}
_DIGITS = 4


class PublicThread(NamedTuple):
    """One labelled log of a thread; a thread may have several.

    ``why`` is our label's reason, ``confirmed_by`` who said so; ``helped`` is what mended it there, where that is known.
    """

    url: str
    cause: str
    why: str
    confirmed_by: str
    helped: str = ""


class ThreadIndex(NamedTuple):
    """The threads, the length of each one's vector of weights, and which have a feature."""

    threads: tuple[PublicThread, ...]
    lengths: tuple[float, ...]
    postings: Mapping[str, list[int]]

    def weight(self, feature: str) -> float:
        """Return how much a feature tells: its kind's weight times its inverse document frequency."""
        return weight(feature, len(self.postings.get(feature, ())), len(self.threads))


def weight(feature: str, having: int, total: int) -> float:
    """Return the weight of a feature that ``having`` of ``total`` entries have."""
    return KIND_WEIGHT.get(feature[:1], 0.0) * math.log((1 + total) / (1 + having))


def indexed(found: Iterable[tuple[PublicThread, Iterable[str]]]) -> ThreadIndex:
    """Return the index of threads with the features of their logs."""
    entries = [(thread, sorted(name for name in names if name[:1] in KIND_WEIGHT)) for thread, names in found]
    postings: dict[str, list[int]] = defaultdict(list)
    for number, (_, names) in enumerate(entries):
        for name in names:
            postings[name].append(number)
    squares = [0.0] * len(entries)
    for name, having in postings.items():
        square = weight(name, len(having), len(entries)) ** 2
        for number in having:
            squares[number] += square
    return ThreadIndex(
        threads=tuple(thread for thread, _ in entries),
        lengths=tuple(round(math.sqrt(square), _DIGITS) for square in squares),
        postings=dict(sorted(postings.items())),
    )


def to_bytes(index: ThreadIndex) -> bytes:
    """Return an index as compressed JSON, byte for byte the same for the same index."""
    raw = {
        "format": FORMAT,
        "threads": [list(thread) for thread in index.threads],
        "lengths": index.lengths,
        "postings": index.postings,
    }
    return gzip.compress(orjson.dumps(raw), 9, mtime=0)


def from_bytes(data: bytes, name: str) -> ThreadIndex:
    """Return the index of a file's content; raises InputError when it holds none."""
    try:
        raw = orjson.loads(gzip.decompress(data))
        threads = tuple(PublicThread(*fields) for fields in raw["threads"])
        return ThreadIndex(threads, tuple(raw["lengths"]), raw["postings"])
    except (OSError, EOFError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError("{name} holds no index of threads", cause="{why}", name=name, why=error) from None


@cache
def shipped() -> ThreadIndex:
    """Return the shipped index, an empty one in a checkout where it was not made yet."""
    path = resources.threads_file()
    return from_bytes(path.read_bytes(), "the shipped index") if path.is_file() else ThreadIndex((), (), {})
