"""What the program says to a person outside of a report, in both languages.

The English text, a template with ``{names}``, is the key, as in gettext: code reads as what it says, and a text
without a translation appears in English instead of failing. The Chinese texts lie beside this file, one JSON table
a domain, sorted by key; they are read only when Chinese is spoken:

``errors.json``  message, cause and remedy of every ``errors.TriageError``
``help.json``    ``--help``: paragraphs and options
``notes.json``   everything else that is printed: progress, notes, results of commands
``click.json``   what the command line library says by itself
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

TABLES = ("errors", "help", "notes", "click")


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
