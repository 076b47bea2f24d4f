"""What the workbench can do after its warm-up: one function each, registered under a name."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

ROUTINES = {}


@dataclass
class Routine:
    function: Callable
    group: bool = True
    before: Callable | None = None


def routine(name, group=True, before=None):
    """Register a function as a routine; ``group``: the workbench makes the process group and trains before it."""

    def register(function):
        ROUTINES[name] = Routine(function, group, before)
        return function

    return register


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
