"""Read our part of a configuration file: YAML, pyproject.toml or setup.cfg, every value as text with its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nccl_triage.errors import RuleError, UsageError
from nccl_triage.patterns import lazily

#: The words of a command, () for all commands -> key -> entry.
Sections = dict[tuple[str, ...], dict[str, "Entry"]]
Reader = Callable[[Path, str], Sections]
_HEADER = lazily(r"\s*\[([^\[\]]+)\]")


@dataclass(frozen=True, slots=True)
class Entry:
    """What a file or a variable says for one key: a text or a list of texts, and ``path:line`` or the variable."""

    value: str | list[str]
    origin: str


def broken(place: str, cause: str, **values: object) -> UsageError:
    """Return the error of a file that cannot be understood; ``cause`` is a template of ``messages``."""
    remedy = "correct it, or go without it: --no-config"
    return UsageError("{place}: not a valid configuration", place=place, cause=cause, remedy=remedy, **values)


def read_yaml(path: Path, text: str) -> Sections:
    """Read a file that is all ours."""
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
    except RuleError as error:
        raise broken(error.where or str(path), error.texts[0], **error.values) from None
    return _sections(found, lambda words: f"{path}:{lines[words]}")


def read_toml(path: Path, text: str) -> Sections:
    """Read ``[tool.nccl-triage]``; a file that is broken elsewhere is not ours to complain about."""
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # installed with us where Python has none
    try:
        found = tomllib.loads(text).get("tool", {}).get("nccl-triage", {})
    except tomllib.TOMLDecodeError as error:
        if "[tool.nccl-triage" not in text:
            return {}
        raise broken(str(path), "{why}", why=error) from None
    if not isinstance(found, dict):
        raise broken(str(path), "tool.nccl-triage is no table")
    return _sections(found, lambda words: f"{path}:{_line(text, ('tool', 'nccl-triage', *words))}")


def read_cfg(path: Path, text: str) -> Sections:
    """Read ``[nccl-triage]`` and ``[nccl-triage.COMMAND]``."""
    import configparser

    parser = configparser.ConfigParser(interpolation=None, default_section="\0")
    try:
        parser.read_string(text)
    except configparser.Error as error:
        if "[nccl-triage" not in text:
            return {}
        raise broken(str(path), "{why}", why=str(error).replace("\n", " ")) from None
    found: dict[str, Any] = {}
    for name in parser.sections():
        first, *words = name.split(".")
        if first == "nccl-triage":
            place = found
            for word in words:
                place = place.setdefault(word, {})
                if not isinstance(place, dict):
                    raise broken(str(path), "[{section}]: {word} is a key already", section=name, word=word)
            place.update(parser[name])
    return _sections(found, lambda words: f"{path}:{_line(text, ('nccl-triage', *words))}")


def _sections(found: dict[str, Any], where: Callable[[tuple[str, ...]], str]) -> Sections:
    sections: Sections = {}
    for words, value in _leaves(found, ()):
        key = words[-1].replace("_", "-")
        sections.setdefault(words[:-1], {})[key] = Entry(value, where(words))
    return sections


def _leaves(found: dict[str, Any], words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str | list[str]]]:
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*words, name))
        elif isinstance(value, list):
            yield (*words, name), [_text(item) for item in value]
        elif value is not None:
            yield (*words, name), _text(value)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _line(text: str, words: tuple[str, ...]) -> int:
    """Return the line (from 1) where a key is set, or else where its section begins: the parsers do not tell."""
    wanted = re.compile(rf"\s*[\"']?{re.escape(words[-1])}[\"']?\s*[=:]", re.IGNORECASE)
    section: tuple[str, ...] = ()
    nearest = 1
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header:
            section = tuple(part.strip(" \t\"'") for part in header[1].split("."))
            if section == words[: len(section)]:
                nearest = number
        elif section == words[:-1] and wanted.match(line):
            return number
    return nearest
