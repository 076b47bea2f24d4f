"""Derived facts, one module a subject; every module in this package is loaded, there is no list to keep.

A fact is a function of the case that returns its value and the events behind it, registered by ``@fact(name, meaning)``.
"""

from __future__ import annotations

import importlib
import pkgutil

_loaded = False


def load_all() -> None:
    """Import every module of this package once, so that its facts are registered."""
    global _loaded
    if _loaded:
        return
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    _loaded = True
