"""The kinds of secrets of ``rules/redaction/secrets.yaml``: what a credential looks like."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
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
    "word": "a8Kd3Zp0Qw7xR2mT5vB9nL4cJ6hY1sG",
}
#: What may stand in a token in place of those characters.
_CLASSES = {
    "hex": "[0-9A-Fa-f]",
    "digits": "[0-9]",
    "lower": "[a-z0-9]",
    "upper": "[A-Z0-9]",
    "alnum": "[A-Za-z0-9]",
    "base64": "[A-Za-z0-9+/=]",
    "word": "[A-Za-z0-9_-]",
}
_PLACEHOLDER = lazily(rf"<({'|'.join(_ALPHABETS)}):(\d+)(?:-(\d+))?>")
_UUID = "<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>"
#: The word before a place, with what joins the two; parts of a name written in humps.
_BEFORE = lazily(r"([A-Za-z]{1,30})(?:\d{0,3}([ ._-]))?\Z")
_HUMP = lazily(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LONGEST_WORD = 32
#: Beginnings of tokens from this length on are begun by nothing else.
_TELLING, _SHORTEST_LITERAL = 5, 3


class SecretKind(NamedTuple):
    """One kind of secret.

    Its pattern is tried on texts that hold one of ``starts``, the first characters of such secrets, or one of
    ``guards``, literals that any case of the text may have unless they have capitals, or ``run`` characters of base64
    that nothing parts. What a row that is ``random`` finds counts only if it looks as if it was drawn by chance;
    ``after`` and ``unless`` hold words of the name that the pattern ends.
    """

    id: str
    pattern: Pattern
    guards: tuple[str, ...]
    starts: tuple[str, ...]
    match_samples: tuple[str, ...]
    not_samples: tuple[str, ...]
    random: bool = False
    run: int = 0
    after: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()

    def accepts(self, match: re.Match[str]) -> bool:
        """Tell whether the words before a match are those of a name that means a secret."""
        if not self.after and not self.unless:
            return True
        start = match.start()
        before = _BEFORE.search(match.string, max(0, start - _LONGEST_WORD), start)
        if before is None:
            return not self.after
        run, joint = before[1], before[2]
        word = _HUMP.findall(run)[-1].lower()
        if word in self.after or (not joint and run.lower().endswith(self.after or "\0")):
            return self.random or joint != " "
        if word in self.unless or not self.unless:
            return False
        capitals = match[0][:1].isupper()
        joined = (bool(joint) and joint != " ") or (capitals and run[-1].islower())
        return not self.after or (joined and (self.random or (capitals and run.isupper())))

    def finds(self, text: str) -> Iterator[re.Match[str]]:
        """Yield what the row finds in a text, random or not."""
        return filter(self.accepts, self.pattern.compiled.finditer(text))

    def packed(self) -> list[Any]:
        """Return the row as plain data: what ``unpacked`` reads back."""
        lists = (self.guards, self.starts, self.match_samples, self.not_samples, self.after, self.unless)
        return [self.id, self.pattern.source, self.random, self.run, *lists]


def unpacked(parts: Any) -> SecretKind:
    """Return the row of ``packed``; raises ValueError when it is damaged."""
    name, pattern, random, run, *lists = parts
    if [type(part) for part in parts[:4]] != [str, str, bool, int] or len(lists) != 6:
        raise ValueError("damaged row")
    guards, starts, matching, not_matching, after, unless = (tuple(map(str, found)) for found in lists)
    return SecretKind(name, Pattern(pattern), guards, starts, matching, not_matching, random, run, after, unless)


def expand(sample: str) -> str:
    """Return a sample with ``<hex:40>`` and the like replaced by that many characters of the kind.

    ``<hex:40-64>`` becomes as few as it allows, and ``<uuid>`` groups of them.
    """

    def characters(match: re.Match[str]) -> str:
        alphabet = _ALPHABETS[match[1]]
        return "".join(alphabet[(i * 7 + i // len(alphabet)) % len(alphabet)] for i in range(int(match[2])))

    return _PLACEHOLDER.sub(characters, sample.replace("<uuid>", _UUID))


def _of_form(form: str) -> tuple[str, str, bool]:
    """Return the pattern of a token's form, the literal that tells of it, and whether the token begins with that."""
    literals, classes = [], []
    done = 0
    written = form.replace("<uuid>", _UUID)
    for match in _PLACEHOLDER.finditer(written):
        literals.append(written[done : match.start()])
        least, most = match[2], match[3] or match[2]
        classes.append(
            f"{_CLASSES[match[1]]}{{{least}}}" if least == most else f"{_CLASSES[match[1]]}{{{least},{most}}}"
        )
        done = match.end()
    literals.append(written[done:])
    parts = map(re.escape, literals)
    first = next(parts)
    edge = rf"(?<![A-Za-z0-9_-]{first})" if first else r"(?<![A-Za-z0-9_-])"
    body = "".join(f"{one}{literal}" for one, literal in zip(classes, parts, strict=True))
    begins = len(literals[0]) >= _TELLING
    return f"{first}{edge}{body}", literals[0] if begins else max(literals, key=len), begins


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


def _token(node: Node) -> SecretKind:
    """Return the row of a token that is known by its forms: they say what begins it, what it matches, and samples."""
    part = node.keys(("id", "forms", "not"))
    forms = part["forms"].texts()
    made = [_of_form(form) for form in forms]
    if any(len(literal) < _SHORTEST_LITERAL for _, literal, _ in made):
        raise part["forms"].fail("a form needs a literal of three characters")
    return SecretKind(
        id=part["id"].text(),
        pattern=Pattern(f"(?:{'|'.join(pattern for pattern, _, _ in made)})(?![A-Za-z0-9])"),
        guards=tuple(dict.fromkeys(literal for _, literal, begins in made if not begins)),
        starts=tuple(dict.fromkeys(literal for _, literal, begins in made if begins)),
        match_samples=tuple(expand(form) for form in forms),
        not_samples=_samples(part["not"]),
    )


def _row(node: Node, parts: dict[str, str]) -> SecretKind:
    if "forms" in node.mapping():
        return _token(node)
    part = node.keys(("id", "pattern", "match", "not"), ("starts", "guard", "run", "random", "after", "unless"))
    if sum(key in part for key in ("starts", "guard", "run")) != 1:
        raise node.fail("a row has either 'starts' or 'guard' or 'run'")
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
        run=part["run"].integer() if "run" in part else 0,
        after=tuple(part["after"].text().split()) if "after" in part else (),
        unless=tuple(part["unless"].text().split()) if "unless" in part else (),
    )


def read(text: str, path: str) -> tuple[SecretKind, ...]:
    """Return the rows of a table; raises RuleError, with the line, for what is wrong in it."""
    root = nodes.parse(text, path).keys(("parts", "secrets"))
    parts = {name: node.text() for name, node in root["parts"].mapping().items()}
    found: dict[str, SecretKind] = {}
    for node in root["secrets"].items():
        row = _row(node, parts)
        if not _ID.match(row.id):
            raise node.fail("an id is lower case words joined by '-'")
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
