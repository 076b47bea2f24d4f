"""Facts that are derived from a case, one module per subject.

A fact is a function of the case that returns a value and the events behind it. ``@fact(name, meaning)`` registers it. All
modules of this package are loaded, so there is no list of them to maintain.
"""

from __future__ import annotations

import importlib
import pkgutil

_loaded = False


def load_all() -> None:
    """Import every module of this package once, which registers its facts."""
    global _loaded
    if _loaded:
        return
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    _loaded = True
