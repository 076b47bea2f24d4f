"""Settings of the garbage collector: nearly all objects that a diagnosis makes live until its end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: New objects after which the collector runs. With Python's default of 700 it took a twentieth of a diagnosis.
_SELDOM = 50_000


def collect_rarely() -> None:
    """Have the collector run less often; for processes of our own."""
    gc.set_threshold(_SELDOM)


@contextmanager
def paused() -> Iterator[None]:
    """Pause the collector while many objects are made that all stay.

    In a process of our own it never looks at them again. In one that only calls us that would also keep dead objects
    of others.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_threshold()[0] == _SELDOM:
            gc.freeze()
        if collects:
            gc.enable()


def skip_at_exit() -> None:
    """Skip the last collection at the end of a process of our own, which took a tenth of a short run."""
    gc.disable()
    gc.freeze()
