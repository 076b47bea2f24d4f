"""When Python looks for cycles of dead objects: nearly all that a diagnosis makes stays until its end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: New objects after which the collector looks. With Python's own 700 a twentieth of a diagnosis went into looking.
_SELDOM = 50_000


def collect_rarely() -> None:
    """Have the collector look less often in this process, which is ours."""
    gc.set_threshold(_SELDOM)


@contextmanager
def paused() -> Iterator[None]:
    """Have it not look at all while many objects are made that all stay.

    In a process of ours it never looks at them: in one that only calls us, others' dead objects would stay, too.
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
    """Have an ending process of ours not look once more at all that is left, which took a tenth of a short run."""
    gc.disable()
    gc.freeze()
