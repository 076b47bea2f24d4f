"""What the program says to a person outside of a report, in both languages.

The English text, a template with ``{names}``, is the key, as in gettext: code reads as what it says, and a text
without a translation appears in English instead of failing. The Chinese texts lie beside this file, one JSON table
a domain, sorted by key; they are read only when Chinese is spoken:

``errors.json``  message, cause and remedy of every ``errors.TriageError``
``help.json``    ``--help``: paragraphs and options
``notes.json``   everything else that is printed: progress, notes, results of commands
``click.json``   what the command line library says by itself
``threads.json`` why public threads have their causes, as our labels of them say (``similar/``)
``inputs.json``  messages about input files; they are stored in English, and ``translated_text`` translates them
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from typing import Literal

#: Values of such messages that are messages themselves; other values are names.
_SAID = frozenset({"form", "note", "other", "why"})
TABLES = ("errors", "help", "notes", "click", "inputs", "threads")


def locale_language() -> Literal["en", "zh"]:
    """Return the language of the locale: en or zh."""
    value = next(filter(None, (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    return "zh" if value.lower().startswith("zh") else "en"


@functools.cache
def table(name: str) -> Mapping[str, str]:
    """Return one table of ``TABLES``: English template -> Chinese template."""
    import json

    from nccl_triage import resources

    found: dict[str, str] = json.loads(resources.messages_dir().joinpath(f"{name}.json").read_text("utf-8"))
    return found


@functools.cache
def chinese() -> Mapping[str, str]:
    """Return all tables as one."""
    return {english: text for name in TABLES for english, text in table(name).items()}


def translated(template: str, lang: str) -> str:
    """Return the template in the language asked for, or as it is where it has no translation."""
    return chinese().get(template, template) if lang == "zh" else template


def fill(template: str, values: Mapping[str, object], lang: str) -> str:
    """Return the template in the language asked for, with its values in place.

    A value may be a text in both languages, ``{"en": .., "zh": ..}``.
    """
    text = translated(template, lang)
    shown = {name: value[lang] if isinstance(value, Mapping) else value for name, value in values.items()}
    return text.format(**shown) if shown else text


@functools.cache
def _shapes() -> list[tuple[re.Pattern[str], str]]:
    """Return the templates of the reader as patterns, the one with most text of its own first, and their Chinese."""
    found = []
    for english, text in table("inputs").items():
        parts = re.split(r"\{(\w+)\}", english)
        pattern = "".join(f"(?P<{part}>.+)" if at % 2 else re.escape(part) for at, part in enumerate(parts))
        found.append((sum(map(len, parts[::2])), re.compile(pattern, re.DOTALL), text))
    found.sort(key=lambda entry: -entry[0])
    return [(pattern, text) for _, pattern, text in found]


def translated_text(said: str, lang: str = "zh") -> str:
    """Return a finished English message about inputs in a language, with its parts; other texts are returned unchanged.

    Such messages are merged over files, processes and hosts as plain text, so they are translated when they are shown.
    """
    if lang != "zh":
        return said
    for pattern, text in _shapes():
        found = pattern.fullmatch(said)
        if found:
            parts = found.groupdict().items()
            return text.format(**{name: translated_text(part) if name in _SAID else part for name, part in parts})
    return said
