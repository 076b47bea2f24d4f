"""The kinds of secrets of ``rules/redaction/secrets.yaml``: what a credential looks like."""

from __future__ import annotations

import contextlib
import hashlib
import re
from functools import cache
from typing import Any, NamedTuple

from nccl_triage import resources
from nccl_triage.engine import cache as store
from nccl_triage.engine import nodes
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.pattern import Pattern
from nccl_triage.lazy_regex import lazily

_ID = lazily(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*\Z")

#: Characters that stand for those of a secret in samples: a scanner for leaked secrets finds nothing in them.
_ALPHABETS = {
    "hex": "3f9a1c07e5b2d846",
    "digits": "4917203865",
    "lower": "kz7qwm3xvt9rb2np",
    "upper": "K7QZ3XWM9VTRB2NP",
    "alnum": "a8Kd3Zp0Qw7xR2mT5vB9nL4cJ6hY1sG",
    "base64": "q9Z+xR7/mT2vB5nL8cJ4hY1sGa3Kd6W0",
}
_PLACEHOLDER = lazily(rf"<({'|'.join(_ALPHABETS)}):(\d+)>")


class SecretKind(NamedTuple):
    """One kind of secret.

    Its pattern is tried on texts that hold one of ``starts``, the first characters of such secrets, or one of
    ``guards``, literals in lower case that any case of the text may have. What a row that is ``random`` finds counts
    only if it looks as if it was drawn by chance.
    """

    id: str
    pattern: Pattern
    guards: tuple[str, ...]
    starts: tuple[str, ...]
    match_samples: tuple[str, ...]
    not_samples: tuple[str, ...]
    random: bool = False

    def packed(self) -> list[Any]:
        """Return the row as plain data: what ``unpacked`` reads back."""
        lists = (self.guards, self.starts, self.match_samples, self.not_samples)
        return [self.id, self.pattern.source, self.random, *lists]


def unpacked(parts: Any) -> SecretKind:
    """Return the row of ``packed``; raises ValueError when it is damaged."""
    name, pattern, random, *lists = parts
    if not isinstance(name, str) or not isinstance(pattern, str) or not isinstance(random, bool) or len(lists) != 4:
        raise ValueError("damaged row")
    guards, starts, matching, not_matching = (tuple(map(str, found)) for found in lists)
    return SecretKind(name, Pattern(pattern), guards, starts, matching, not_matching, random)


def expand(sample: str) -> str:
    """Return a sample with ``<hex:40>`` and the like replaced by that many characters of the kind."""

    def characters(match: re.Match[str]) -> str:
        alphabet = _ALPHABETS[match[1]]
        return "".join(alphabet[(i * 7 + i // len(alphabet)) % len(alphabet)] for i in range(int(match[2])))

    return _PLACEHOLDER.sub(characters, sample)


def _samples(node: Node) -> tuple[str, ...]:
    samples = tuple(expand(text) for text in node.texts())
    if not samples:
        raise node.fail("at least one sample is needed")
    return samples


def written_out(node: Node, parts: dict[str, str]) -> Pattern:
    """Return the pattern of a row with the shared ``{PARTS}`` written out."""
    source = node.text().strip("\n")
    for name, part in parts.items():
        source = source.replace(f"{{{name}}}", part)
    try:
        re.compile(source)
    except re.error as error:
        raise node.fail("not a valid regular expression: {error}", error=error) from None
    return Pattern(source)


def _row(node: Node, parts: dict[str, str]) -> SecretKind:
    part = node.keys(("id", "pattern", "match", "not"), ("starts", "guard", "random"))
    if ("starts" in part) == ("guard" in part):
        raise node.fail("a row has either 'starts' or 'guard'")
    if not _ID.match(part["id"].text()):
        raise part["id"].fail("an id is lower case words joined by '-'")
    starts = tuple(part["starts"].texts()) if "starts" in part else ()
    guards = tuple(part["guard"].texts()) if "guard" in part else ()
    if any(guard != guard.lower() for guard in guards):
        raise part["guard"].fail("guards are in lower case")
    return SecretKind(
        id=part["id"].text(),
        pattern=written_out(part["pattern"], parts),
        guards=guards,
        starts=starts,
        match_samples=_samples(part["match"]),
        not_samples=_samples(part["not"]),
        random="random" in part and part["random"].flag(),
    )


def read(text: str, path: str) -> tuple[SecretKind, ...]:
    """Return the rows of a table; raises RuleError, with the line, for what is wrong in it."""
    root = nodes.parse(text, path).keys(("parts", "secrets"))
    parts = {name: node.text() for name, node in root["parts"].mapping().items()}
    found: dict[str, SecretKind] = {}
    for node in root["secrets"].items():
        row = _row(node, parts)
        if row.id in found:
            raise node.fail("the id {id!r} is listed twice", id=row.id)
        found[row.id] = row
    return tuple(found.values())


@cache
def secrets() -> tuple[SecretKind, ...]:
    """Return the kinds of secrets in the order in which they are looked for; raises RuleError for a wrong table.

    Every report needs them, and parsing YAML takes longer than all the rest: the rows are kept on disk.
    """
    text = (resources.rules_dir() / "redaction" / "secrets.yaml").read_text(encoding="utf-8")
    entry = store.name("secrets", hashlib.sha256(text.encode()).hexdigest())
    known = store.read_table(entry)
    if known is not None:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            found = tuple(unpacked(parts) for parts in known["rows"])
            if found:  # no table is empty: nothing would be masked
                return found
    rows = read(text, "rules/redaction/secrets.yaml")
    store.write_table(entry, {"rows": [row.packed() for row in rows]})
    return rows
