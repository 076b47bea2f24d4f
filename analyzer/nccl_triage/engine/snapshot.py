"""The shipped rules as they were read once, kept on disk: reading them again takes longer than a small log.

The entry is named by the files (path, size, time of change) and by the code that reads them. It is a pickle, and the
cache is no place to trust: whoever can write there must not run anything here. So only the classes of rules are ever
made from it, and what holds anything else counts as damaged.
"""

from __future__ import annotations

import ast
import io
import os
import pickle
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_triage import gc_tuning
from nccl_triage.engine import cache, expression, literals, pattern, schema, series
from nccl_triage.engine.schema import RuleSet

if TYPE_CHECKING:
    from importlib.abc import Traversable

_PROTOCOL = 5


@lru_cache(maxsize=1)
def _classes() -> dict[tuple[str, str], type]:
    """Return what may be made: the data classes of rules, and the nodes of conditions, which are data as well."""
    ours = [
        kind
        for module in (pattern, schema, series, expression, literals)
        for kind in vars(module).values()
        if isinstance(kind, type)
        and kind.__module__ == module.__name__
        and (is_dataclass(kind) or kind is pattern.Pattern)
    ]
    nodes = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
    # Before Python 3.14 the nodes say that they come from the module "ast", their class from "_ast".
    both = {(module, kind.__name__): kind for kind in nodes for module in ("ast", "_ast")}
    return {**both, **{(kind.__module__, kind.__name__): kind for kind in ours}}


class _Reader(pickle.Unpickler):
    """Makes objects of the allowed classes and of no others."""

    def find_class(self, module: str, name: str) -> Any:
        found = _classes().get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of rules")
        return found


class _Writer(pickle.Pickler):
    """Writes data classes as calls of their classes: read back in a third of the time that their state takes."""

    def reducer_override(self, item: Any) -> Any:
        if not is_dataclass(item) or isinstance(item, type):
            return NotImplemented
        return type(item), tuple(getattr(item, field.name) for field in fields(item))


def name(folder: Traversable) -> str | None:
    """Return the name of the entry for a folder of rules; None where its files are no plain files (a zip)."""
    if not isinstance(folder, Path):
        return None
    try:
        return cache.name("rules", *_states(folder), *_states(Path(__file__).parent))
    except OSError:
        return None


def _states(folder: Path) -> Iterator[str]:
    """Yield path, size and time of change of every file below a folder, in a fixed order."""
    pending = [str(folder)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    pending.append(entry.path)
            else:
                state = entry.stat()
                yield f"{entry.path}:{state.st_size}:{state.st_mtime_ns}"


def read(entry: str | None) -> RuleSet | None:
    """Return the rules of an entry, or None when it is absent or damaged."""
    data = cache.read(entry) if entry else None
    if data is None:
        return None
    try:
        with gc_tuning.paused():
            found = _Reader(io.BytesIO(data)).load()
    except Exception:  # a damaged pickle may raise nearly anything
        return None
    return found if isinstance(found, RuleSet) else None


def write(entry: str | None, rules: RuleSet) -> None:
    """Store the rules."""
    if entry:
        stream = io.BytesIO()
        _Writer(stream, _PROTOCOL).dump(rules)
        cache.write(entry, stream.getvalue())
