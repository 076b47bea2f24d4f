"""Rules in the cache: the shipped rules as parsed, and the literals that patterns require.

Parsing the shipped rules takes longer than diagnosing a small log. Their entry is named by the rule files (path, size,
time of change) and by the code that reads them. It is a pickle, and the cache is not to be trusted: whoever can write
there must not be able to run anything here. So only the classes of rules are ever made from an entry, and an entry that
holds anything else counts as damaged.
"""

from __future__ import annotations

import io
import os
import pickle
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_triage import gc_tuning
from nccl_triage.engine import (
    cache,
    expression,
    line_prefixes,
    metric_formats,
    path_layouts,
    pattern,
    regex_analysis,
    schema,
)
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.regex_analysis import Anchors, required_literals
from nccl_triage.engine.schema import RuleSet, StoryTable

if TYPE_CHECKING:
    from importlib.abc import Traversable

_PROTOCOL = 5


@lru_cache(maxsize=1)
def _classes() -> dict[tuple[str, str], type]:
    """Return the allowed classes by module and name: those of rules, of patterns and of conditions."""
    return {
        (kind.__module__, kind.__name__): kind
        for module in (pattern, schema, metric_formats, line_prefixes, path_layouts, expression, regex_analysis)
        for kind in vars(module).values()
        if isinstance(kind, type)
        and kind.__module__ == module.__name__
        and (is_dataclass(kind) or issubclass(kind, tuple) or kind in (pattern.Pattern, expression.Expression))
    }


class _RuleUnpickler(pickle.Unpickler):
    """An unpickler that makes objects of the allowed classes only."""

    def find_class(self, module: str, name: str) -> Any:
        found = _classes().get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of rules")
        return found


class _RulePickler(pickle.Pickler):
    """A pickler that writes data classes as calls of their classes: they load three times as fast as from their state."""

    def reducer_override(self, item: Any) -> Any:
        if not is_dataclass(item) or isinstance(item, type):
            return NotImplemented
        return type(item), tuple(getattr(item, field.name) for field in fields(item))


def name(folder: Traversable) -> str | None:
    """Return the name of the entry for a folder of rules; None if it is inside of an archive."""
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
    """Return the rules of an entry, or None if it is absent or damaged."""
    found = _loaded(entry)
    return found if isinstance(found, RuleSet) else None


def write(entry: str | None, rules: RuleSet) -> None:
    """Store the rules."""
    _store(entry, rules)


def read_story(entry: str | None) -> dict[str, StoryTable] | None:
    """Return the tables of the story of an entry, or None if it is absent or damaged."""
    found = _loaded(entry)
    whole = isinstance(found, dict) and bool(found) and all(isinstance(table, StoryTable) for table in found.values())
    return found if whole else None


def write_story(entry: str | None, tables: dict[str, StoryTable]) -> None:
    """Store the tables of the story."""
    _store(entry, tables)


def _loaded(entry: str | None) -> Any:
    data = cache.read(entry) if entry else None
    if data is None:
        return None
    try:
        with gc_tuning.paused():
            return _RuleUnpickler(io.BytesIO(data)).load()
    except Exception:  # a damaged pickle may raise nearly anything
        return None


def _store(entry: str | None, item: Any) -> None:
    if entry:
        stream = io.BytesIO()
        _RulePickler(stream, _PROTOCOL).dump(item)
        cache.write(entry, stream.getvalue())


class AnchorTable:
    """The literals of patterns: derived once per set of rules, afterwards read from the cache."""

    def __init__(self, digest: str) -> None:
        self._entry = cache.name("anchors", digest)
        self._known = cache.read_table(self._entry) or {}
        self._changed = False

    def of(self, node: Node) -> Anchors | None:
        """Return the literals of a pattern, or None if it requires none; raises RuleError for an invalid pattern."""
        source = node.text().strip("\n")
        found = self._known.get(source)
        if isinstance(found, list) and len(found) == 2 and isinstance(found[0], list):
            return Anchors(frozenset(map(str, found[0])), bool(found[1]))
        try:
            anchors = required_literals(source)
        except re.error as error:
            raise node.fail("not a valid regular expression: {error}", error=error) from None
        if anchors is not None:
            self._known[source] = [sorted(anchors.texts), anchors.caseless]
            self._changed = True
        return anchors

    def save(self) -> None:
        """Store the literals that were derived since."""
        if self._changed:
            cache.write_table(self._entry, self._known)
