"""Keeps modules of the current folder out: a folder named torch may lie beside a log, and nobody asked to run it.

``python FILE`` does not look into the current folder by itself, but an empty or a relative entry of PYTHONPATH makes it,
and the ``:`` of ``PYTHONPATH=$PYTHONPATH:/other`` is such an entry. A worker does this before it imports anything else;
whoever starts one hands it an environment without such entries, since Python itself imports before a program can act.
"""
# pathlib could be a file of the current folder here.
# ruff: noqa: PTH113, PTH117, PTH121

import os
import sys
from collections.abc import Mapping

_START = "import sys; sys.path[:] = [*filter(None, sys.path), sys.argv.pop(1)]; from {module} import main; main()"


def command(module: str, *words: str) -> list[str]:
    """Return the command that calls ``main`` of a module of ours with arguments; it is started in ``environment``."""
    from pathlib import Path  # whoever starts others has imported it long ago

    return [sys.executable, "-c", _START.format(module=module), str(Path(__file__).parents[2]), *words]


def apply() -> None:
    """Take the current folder from where this process and its children look for modules."""
    sys.path[:] = [entry for entry in sys.path if os.path.isfile(entry) or _elsewhere(entry)]
    os.environ.update(environment(os.environ))


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a Python that imports nothing from the current folder."""
    entries = given.get("PYTHONPATH", "").split(os.pathsep)
    kept = {"PYTHONPATH": os.pathsep.join(filter(_elsewhere, entries))} if "PYTHONPATH" in given else {}
    return {**given, **kept, "PYTHONSAFEPATH": "1"}


def _elsewhere(entry: str) -> bool:
    """Tell whether an entry of a path is a folder other than the current one."""
    try:
        return os.path.isabs(entry) and not os.path.samefile(entry, os.curdir)
    except OSError:  # one that does not exist yet, or a current folder that is gone
        return True
