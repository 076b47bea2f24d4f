"""Databases of literals for Hyperscan, compiled once and kept in the user's cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nccl_triage.engine import cache


def compiled(
    hyperscan: Any,
    literals: list[tuple[str, bool]],
    numbers: Sequence[int] | None = None,
    once: Sequence[bool] | None = None,
) -> Any:
    """Return the compiled database; compiling takes some hundredths of a second, reading it back a millisecond.

    Literals are reported by their ``numbers`` (their places, without); one that is marked in ``once`` is reported where
    it ends first, and not again.
    """
    single = once or [False] * len(literals)
    ids = list(numbers or range(len(literals)))
    told = zip(literals, ids, single, strict=True)
    seed = "\n".join([f"{caseless:d}{one:d}{number} {text}" for (text, caseless), number, one in told])
    entry = cache.name("hyperscan", hyperscan.__version__, seed)
    data = cache.read(entry)
    if data is not None:
        try:
            database = hyperscan.loadb(data, mode=hyperscan.HS_MODE_BLOCK)
            database.scratch = hyperscan.Scratch(database)
            return database
        except Exception:  # a damaged entry or one of another build: the library's own errors vary
            database = None
    database = hyperscan.Database()
    database.compile(
        expressions=[_escaped(text) for text, _ in literals],
        ids=ids,
        elements=len(literals),
        flags=[
            (hyperscan.HS_FLAG_CASELESS if caseless else 0) | (hyperscan.HS_FLAG_SINGLEMATCH if one else 0)
            for (_, caseless), one in zip(literals, single, strict=True)
        ],
    )
    cache.write(entry, hyperscan.dumpb(database))
    return database


def _escaped(literal: str) -> bytes:
    """Return the literal as a pattern: every byte in hex."""
    return b"\\x" + literal.encode("utf-8").hex(" ").encode().replace(b" ", b"\\x")
