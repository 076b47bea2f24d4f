"""The language of what is printed, known before the command line has been read, since errors are printed too."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from nccl_triage import messages

Lang = Literal["en", "zh"]
#: A template of ``messages``, or a finished text in both languages.
Said = str | Mapping[str, str]
CHOICES = ("auto", "en", "zh")

_current: Lang = "en"
_before: Callable[[], None] | None = None


def resolve(choice: str) -> Lang:
    """Return en or zh for a value of ``--lang``; auto asks the locale."""
    if choice != "auto":
        return "zh" if choice == "zh" else "en"
    return messages.locale_language()


def asked(args: Sequence[str]) -> str | None:
    """Return the value of ``--lang`` on an unparsed command line, None when it is absent or unknown."""
    found = None
    for index, word in enumerate(args):
        if word == "--":
            break
        if word == "--lang" and index + 1 < len(args):
            found = args[index + 1]
        elif word.startswith("--lang="):
            found = word.removeprefix("--lang=")
    return found if found in CHOICES else None


def use(lang: Lang) -> None:
    """Set the language of all output, including click's own messages."""
    global _current
    _current = lang
    _teach_click(lang)


def current() -> Lang:
    """Return the language in use."""
    return _current


def text(template: Said, **values: object) -> str:
    """Return a text of ``messages``, or one that comes in both languages, in the language in use."""
    if isinstance(template, Mapping):
        return template[_current]
    return messages.fill(template, values, _current)


def before_notes(act: Callable[[], None] | None) -> None:
    """Have something done before each note is printed: a status line that stands where it would go is erased."""
    global _before
    _before = act


def say(template: Said, **values: object) -> None:
    """Print a note on standard error; a closed standard error is ignored."""
    if _before is not None:
        _before()
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"nccl-triage: {harmless(text(template, **values))}\n")
        sys.stderr.flush()


def columns(line: str) -> int:
    """Return how many terminal columns a line takes."""
    if line.isascii():
        return len(line)
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(char) in "WF" else 1 for char in line)


def harmless(line: str) -> str:
    """Return a line without terminal control sequences: file names and error messages can hold anything."""
    if line.isprintable():
        return line
    from nccl_triage.render.words import visible

    return visible(" ".join(line.split("\n")))


def _click_text(english: str) -> str:
    return messages.translated(english, _current)


def _click_plural(one: str, many: str, number: int) -> str:
    return messages.translated(one if number == 1 else many, _current)


def _teach_click(lang: Lang) -> None:
    """Make click translate its messages with our tables: its modules hold gettext's functions under the usual names.

    Once taught, the functions follow the language in use; an English run never gets here.
    """
    if lang == "en":
        return
    from gettext import gettext, ngettext

    for name, module in list(sys.modules.items()):
        if name.startswith("click."):
            for attribute, original, ours in (("_", gettext, _click_text), ("ngettext", ngettext, _click_plural)):
                if getattr(module, attribute, None) is original:
                    setattr(module, attribute, ours)
