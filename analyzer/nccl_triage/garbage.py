"""When Python looks for cycles of dead objects: nearly all that a diagnosis makes stays until its end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: New objects after which the collector looks. With Python's own 700 a twentieth of a diagnosis went into looking.
_SELDOM = 50_000


def seldom() -> None:
    """Have the collector look less often in this process."""
    gc.set_threshold(_SELDOM)


@contextmanager
def none() -> Iterator[None]:
    """Have it not look at all while many objects are made that all stay."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
