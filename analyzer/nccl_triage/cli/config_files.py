"""Read a configuration file, every value as text with its line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from nccl_triage.errors import RuleError, UsageError

#: The words of a command, () for all commands -> key -> entry.
Sections = dict[tuple[str, ...], dict[str, "ConfigEntry"]]
#: Names in a row, and keys of ours in a file, at most.
MAX_DEPTH, MAX_KEYS = 6, 500
#: Characters of a value at most.
_MAX_VALUE = 10_000


class ConfigEntry(NamedTuple):
    """The value of one key, a text or a list of texts, and its origin: ``path:line`` or a variable."""

    value: str | list[str]
    origin: str


@dataclass(slots=True)
class Layer:
    """One file; ``trusted``: it belongs to the user or root, and others cannot write it."""

    path: Path
    trusted: bool = True
    sections: Sections = field(default_factory=dict)

    def get(self, words: tuple[str, ...], key: str) -> ConfigEntry | None:
        """Return the entry of an option in the section of a command."""
        return self.sections.get(words, {}).get(key)


def others_cannot_write(state: os.stat_result) -> bool:
    """Tell whether a file belongs to the user or root and not everybody may write it."""
    return state.st_uid in (0, os.geteuid()) and not state.st_mode & 0o002


def broken(place: str, cause: str, **values: object) -> UsageError:
    """Return the error of a file that cannot be understood; ``cause`` is a template of ``messages``."""
    remedy = "correct it, or go without it: --no-config"
    return UsageError("{place}: not a valid configuration", place=place, cause=cause, remedy=remedy, **values)


def read_yaml(path: Path, text: str) -> Sections:
    """Return what a file sets; raises UsageError where it cannot be understood."""
    from nccl_triage.engine import nodes

    lines: dict[tuple[str, ...], int] = {}

    def plain(node: nodes.Node, words: tuple[str, ...]) -> Any:
        lines[words] = node.line
        if isinstance(node.value, dict):
            return {key: plain(child, (*words, key)) for key, child in node.value.items()}
        return [child.text() for child in node.value] if isinstance(node.value, list) else node.value

    try:
        root = nodes.parse(text, str(path))
        root.mapping()
        found = plain(root, ())
    except RecursionError:
        raise broken(str(path), "nested too deeply") from None
    except RuleError as error:
        raise broken(error.where or str(path), error.texts[0], **error.values) from None
    return _sections(path, found, lines.__getitem__)


def _sections(path: Path, found: dict[str, Any], line: Callable[[tuple[str, ...]], int]) -> Sections:
    """Return entries by section and key; raises UsageError for more of them, or deeper ones, than any option needs."""
    sections: Sections = {}
    for number, (words, value) in enumerate(_leaves(path, found, ())):
        if number >= MAX_KEYS:
            raise broken(str(path), "more than {limit} keys", limit=MAX_KEYS)
        key = words[-1].replace("_", "-")
        sections.setdefault(words[:-1], {})[key] = ConfigEntry(value, f"{path}:{line(words)}")
    return sections


def _leaves(
    path: Path, found: dict[str, Any], words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str | list[str]]]:
    if len(words) > MAX_DEPTH:
        raise broken(str(path), "nested too deeply")
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _leaves(path, value, (*words, name))
        elif isinstance(value, list):
            yield (*words, name), [_text(path, item) for item in value]
        elif value is not None:
            yield (*words, name), _text(path, value)


def _text(path: Path, value: object) -> str:
    try:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, written in base 16
        raise broken(str(path), "a value is too long") from None
    if len(text) > _MAX_VALUE:
        raise broken(str(path), "a value is too long")
    return text
