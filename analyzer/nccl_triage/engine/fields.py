"""Fields that rules of all kinds have: ids, texts by language, conditions, and values that may be missing."""

from __future__ import annotations

from nccl_triage.engine.expression import Expression, parse
from nccl_triage.engine.functions import FUNCTIONS
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.schema import LANGUAGES, OTHERWISE, PLATFORMS, STATUSES, PlatformCommand, Text
from nccl_triage.lazy_regex import lazily

_ID = lazily(r"^[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*$")

#: The fields of a rule by name.
Part = dict[str, Node]


def identifier(node: Node) -> str:
    """Return an id: lower-case words joined by ".", "_" or "-"."""
    text = node.text()
    if not _ID.match(text):
        raise node.fail("{text!r} is not an id", "use lower case words joined by '.', '_' or '-'", text=text)
    return text


def optional_text(part: Part, key: str) -> str | None:
    """Return a text, None if the field is missing."""
    return part[key].text() if key in part else None


def text_list(part: Part, key: str) -> tuple[str, ...]:
    """Return a list of texts, empty if the field is missing."""
    return tuple(part[key].texts()) if key in part else ()


def command(node: Node) -> PlatformCommand:
    """Return a command: a text for every platform, or a mapping of platforms to texts."""
    if not isinstance(node.value, dict):
        return PlatformCommand(((OTHERWISE, node.text()),))
    choices = tuple((word, text.text()) for word, text in node.keys((), (*PLATFORMS, OTHERWISE)).items())
    if OTHERWISE in [word for word, _ in choices[:-1]]:
        raise node.fail("'otherwise' comes last, after the platforms that need another command")
    return PlatformCommand(choices)


def commands(part: Part, key: str) -> tuple[PlatformCommand, ...]:
    """Return a list of commands, empty if the field is missing."""
    return tuple(command(item) for item in part[key].items()) if key in part else ()


def text_mapping(part: Part, key: str) -> dict[str, str]:
    """Return a mapping of names to texts, empty if the field is missing."""
    return {name: node.text() for name, node in part[key].mapping().items()} if key in part else {}


def flag(part: Part, key: str) -> bool:
    """Return a value of true or false, False if the field is missing."""
    return key in part and part[key].flag()


def bilingual(node: Node, user: bool) -> Text:
    """Return a text in all languages; a user's rule may give it in English alone, also as a plain text."""
    if user and not isinstance(node.value, dict):
        return dict.fromkeys(LANGUAGES, node.text())
    parts = node.keys(LANGUAGES[:1], LANGUAGES[1:]) if user else node.keys(LANGUAGES)
    return {language: parts.get(language, parts[LANGUAGES[0]]).text() for language in LANGUAGES}


def optional_bilingual(part: Part, key: str, user: bool) -> Text | None:
    """Return a text in all languages, None if the field is missing."""
    return bilingual(part[key], user) if key in part else None


def condition(node: Node) -> Expression:
    """Return a condition over everything that was observed."""
    return parse(node.text(), node.where, FUNCTIONS)


def optional_condition(part: Part, key: str) -> Expression | None:
    """Return a condition, None if the field is missing."""
    return condition(part[key]) if key in part else None


def status(part: Part) -> str:
    """Return whether a row of evidence is stable or experimental; an experimental one decides nothing alone."""
    found = part["status"].choice(STATUSES) if "status" in part else STATUSES[0]
    if found == "experimental" and part["weight"].text() == "decisive":
        raise part["weight"].fail("an experimental row is strong at most")
    return found
