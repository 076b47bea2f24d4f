"""Read the nccl-triage section of a YAML, pyproject.toml or setup.cfg file, every value as text with its line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from nccl_triage.errors import RuleError, UsageError
from nccl_triage.lazy_regex import lazily

#: The words of a command, () for all commands -> key -> entry.
Sections = dict[tuple[str, ...], dict[str, "ConfigEntry"]]
Reader = Callable[[Path, str], Sections]
_HEADER = lazily(r"\s*\[([^\[\]]+)\]")
#: Names in a row, and keys of ours in a file, at most.
MAX_DEPTH, MAX_KEYS = 6, 500
#: Dots in a line at most: what a dotted key of TOML costs grows with the square of its parts.
_MAX_DOTS = 32
#: Characters of a value at most.
_MAX_VALUE = 10_000
#: Characters of what a parser says.
_LONGEST = 200
_SIGN = lazily("[=:]")


class ConfigEntry(NamedTuple):
    """The value of one key, a text or a list of texts, and its origin: ``path:line`` or a variable."""

    value: str | list[str]
    origin: str


@dataclass(slots=True)
class Layer:
    """One file. ``project`` files may set less than the user's own; ``trusted`` ones belong to the user or root."""

    path: Path
    project: bool
    trusted: bool = True
    sections: Sections = field(default_factory=dict)

    def get(self, words: tuple[str, ...], key: str) -> ConfigEntry | None:
        """Return the entry of an option in the section of a command."""
        return self.sections.get(words, {}).get(key)


def others_cannot_write(state: os.stat_result, project: bool = True) -> bool:
    """Tell whether a file belongs to the user or root and nobody else may write it; stricter for files that were found."""
    return state.st_uid in (0, os.geteuid()) and not state.st_mode & (0o022 if project else 0o002)


def broken(place: str, cause: str, **values: object) -> UsageError:
    """Return the error of a file that cannot be understood; ``cause`` is a template of ``messages``."""
    remedy = "correct it, or go without it: --no-config"
    return UsageError("{place}: not a valid configuration", place=place, cause=cause, remedy=remedy, **values)


def read_yaml(path: Path, text: str) -> Sections:
    """Read a YAML file that holds nothing but configuration of nccl-triage."""
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


def read_toml(path: Path, text: str) -> Sections:
    """Read ``[tool.nccl-triage]``; errors outside of this section are not reported."""
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # installed with us where Python has none
    if any(line.count(".") > _MAX_DOTS for line in text.split("\n")):
        return _not_ours(path, text, "nested too deeply")
    try:
        found = tomllib.loads(text).get("tool", {})
        found = found.get("nccl-triage", {}) if isinstance(found, dict) else {}
    except RecursionError:
        return _not_ours(path, text, "nested too deeply")
    except tomllib.TOMLDecodeError as error:
        return _not_ours(path, text, "{why}", why=_short(error))
    except ValueError:  # a number of thousands of digits
        return _not_ours(path, text, "a value is too long")
    if not isinstance(found, dict):
        raise broken(str(path), "tool.nccl-triage is no table")
    return _sections(path, found, _Lines(text, ("tool", "nccl-triage")).of)


def _not_ours(path: Path, text: str, cause: str, **values: object) -> Sections:
    """Return an empty result for a broken file without a section of nccl-triage; raises UsageError for one that has it."""
    if "[tool.nccl-triage" not in text:
        return {}
    raise broken(str(path), cause, **values)


def _short(error: Exception) -> str:
    """Return the message of an error on one line, without long quotations."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} .."


def read_cfg(path: Path, text: str) -> Sections:
    """Read ``[nccl-triage]`` and ``[nccl-triage.COMMAND]``."""
    import configparser

    parser = configparser.ConfigParser(interpolation=None, default_section="\0")
    try:
        parser.read_string(text)
    except configparser.Error as error:
        if "[nccl-triage" not in text:
            return {}
        raise broken(str(path), "{why}", why=_short(error)) from None
    found: dict[str, Any] = {}
    for name in parser.sections():
        first, *words = name.split(".")
        if first == "nccl-triage":
            if len(words) > MAX_DEPTH:
                raise broken(str(path), "nested too deeply")
            place = found
            for word in words:
                place = place.setdefault(word, {})
                if not isinstance(place, dict):
                    raise broken(str(path), "[{section}]: {word} is a key already", section=name, word=word)
            place.update(parser[name])
    return _sections(path, found, _Lines(text, ("nccl-triage",)).of)


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


class _Lines:
    """The line numbers of keys, which the parsers do not report."""

    def __init__(self, text: str, above: tuple[str, ...]) -> None:
        self._above = above
        self._keys: dict[tuple[str, ...], int] = {}
        self._headers: dict[tuple[str, ...], int] = {}
        section: tuple[str, ...] = ()
        for number, line in enumerate(text.splitlines(), 1):
            header = _HEADER.match(line)
            if header:
                section = tuple(part.strip(" \t\"'") for part in header[1].split("."))
                if section[: len(above)] == above[: len(section)]:
                    self._headers[section] = number
            elif section[: len(above)] == above[: len(section)]:
                name = _SIGN.split(line, maxsplit=1)[0].strip(" \t\"'").lower()
                self._keys.setdefault((*section, name), number)

    def of(self, words: tuple[str, ...]) -> int:
        """Return the line (from 1) where a key is set, or else where its section begins."""
        wanted = (*self._above, *words)
        found = self._keys.get((*wanted[:-1], wanted[-1].lower()))
        if found is not None:
            return found
        return max((self._headers.get(wanted[:length], 1) for length in range(len(wanted))), default=1)
