"""What is no log and is read like one: documents and dumps of other programs, turned into lines when they are opened.

A rendering is one module here with a ``RENDERING``; there is no list to keep. Its lines are found, matched and quoted
like those of any log, so that everything behind it, signatures first, knows of one kind of source only.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from nccl_triage.renderings.form import SAMPLE, Rendering

__all__ = ["SAMPLE", "Rendering", "every", "recognise", "wants"]


@cache
def every() -> tuple[Rendering, ...]:
    """Return all renderings, in the order of their names."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return tuple(module.RENDERING for module in modules if hasattr(module, "RENDERING"))


def recognise(name: str, sample: bytes) -> Rendering | None:
    """Return the rendering of a file of this name (of its folders nothing) that begins with these bytes, or None."""
    return next((form for form in every() if form.recognises(name, sample)), None)


def wants(name: str) -> bool:
    """Tell whether a file of this name is worth a look although such names are not those of logs."""
    return any(form.wants(name) for form in every())
