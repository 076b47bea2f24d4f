"""Mask every secret in a report document: tokens, passwords and keys become ``[secret:KIND]``.

A log holds them where a program prints its environment, its command line or a header; private keys are printed over
several lines. Names of metrics, hashes and identifiers are no secrets; the table of kinds
(``rules/redaction/secrets.yaml``) says what is, with samples of both, and what is ``random`` there counts only if it
looks drawn by chance.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import Any

from nccl_triage import byte_search
from nccl_triage.lazy_regex import lazily
from nccl_triage.redaction import strings
from nccl_triage.redaction.secret_kinds import SecretKind, secrets
from nccl_triage.redaction.spread import Judge, mask_spread, public_lines
from nccl_triage.redaction.strings import plain

#: Shorter texts are never random; those shorter than the second only if capitals, small letters and digits mix.
_SHORTEST, _SHORT = 8, 16
#: Minimum length of random hexadecimal digits, whose kinds change seldom.
_HEXADECIMAL = 24
_HEX = lazily(r"[0-9a-f-]+|[0-9A-F-]+")
_PIECE = lazily(r"[A-Za-z0-9]+")
_KINDS = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "A" * 26 + "a" * 26 + "0" * 10)


def looks_random(text: str) -> bool:
    """Tell whether a text looks random: many evenly distributed characters whose kinds alternate irregularly.

    In words a capital stands first and digits stand last; in random text at least every third character is of another
    kind than the one before it.
    """
    pieces = _PIECE.findall(text)
    letters = "".join(pieces)
    longest = max(map(len, pieces), default=0)
    short = len(letters) < _SHORT
    if len(letters) < _SHORTEST or longest < _SHORTEST or sum(map(str.isdigit, letters)) < (1 if short else 2):
        return False
    if _HEX.fullmatch(text):
        return len(letters) >= _HEXADECIMAL and not letters.isdigit()
    kinds = [piece.translate(_KINDS) for piece in pieces]
    if short and len(set("".join(kinds))) < 3:
        return False
    changes = sum(a != b for piece in kinds for a, b in pairwise(piece))
    if changes < (0.4 if short else 0.28) * (len(letters) - len(pieces)):
        return False
    counts = Counter(letters)
    entropy = -sum(count / len(letters) * math.log2(count / len(letters)) for count in counts.values())
    return entropy >= (2.7 if short else 3.0)


#: Texts of at least this many characters may have been cut, and with them a secret at their end.
_CUT = 200
#: Part of every name of a secret: a quick test before the patterns.
_NAMES = lazily(r"(?i)token|secret|pass|pwd|pw$|psk$|otp$|cred|key|licen|auth|jwt|cookie|_[as]k$|[^\x00-\x7f]")
#: A sample value that is masked only because of the name before it.
_ANY_VALUE = "Zq3xTv9LmK2pR8wY"
_LONGEST_NAME = 80
_MARK = lazily(r"\[secret:[a-z0-9-]+\]")
_LEGIBLE = lazily(r"[^\W_]")
#: For guards, all digits are one.
_FOLD = bytes.maketrans(b"123456789", b"0" * 9)
#: For runs, all characters of base64 are one, and all others.
_BASE64 = bytes(b"a"[0] if bytes((code,)).isalnum() or code in b"+/" else b" "[0] if code else 0 for code in range(256))
#: So many literals share a part that it is looked for first.
_WORTH_A_GROUP = 4

#: Folded literals, each with the numbers of its rows.
Literals = list[tuple[bytes, list[int]]]
#: Parts of literals, each with the literals that hold it.
Groups = list[tuple[bytes, Literals]]


class Masker:
    """Masks texts by the table; ``found`` collects the kinds that were masked.

    Lines of one of the ``windows`` show each other's meaning, and have it wherever they stand.
    """

    def __init__(self, texts: Iterable[str], windows: Iterable[Sequence[str]] = ()) -> None:
        given = set(texts)
        #: Texts with hidden characters -> the same as a reader sees them.
        self._plain = {text: seen for text in given if (seen := plain(text)) is not text and seen != text}
        self._rows = rows_by_text(given.union(self._plain.values()))
        self._known: dict[str, str] = {}
        self.found: set[str] = set()
        for window in windows:
            self._learn(window)

    def text(self, text: str) -> str:
        """Return one of the texts without secrets."""
        made = self._known.get(text)
        if made is None and text not in self._rows and text not in self._plain:
            return text
        if made is None:
            made = self._known[text] = self._masked(text)
        return made

    def _masked(self, text: str) -> str:
        seen = self._plain.get(text)
        if seen is not None:
            made = self._replaced(seen, self._rows.get(seen, ()))
            if made != seen:
                return made
        return self._replaced(text, self._rows.get(text, ()))  # a title of the window is hidden, and still written out

    def _replaced(self, text: str, rows: Sequence[SecretKind]) -> str:
        made = "\n".join(spread_masked(text.split("\n"), self.found)) if "\n" in text and rows else text
        for row in rows:
            made = row.pattern.compiled.sub(lambda match, row=row: self._mask(match, row), made)
        return self._cut(made) if len(text) >= _CUT else made

    @property
    def needed(self) -> bool:
        """Whether any of the texts holds a secret, or is the name of one."""
        return any(old != new for old, new in self._known.items()) or any(
            self.text(text) != text or secret_name(text) for text in (*self._rows, *self._plain)
        )

    def _learn(self, window: Sequence[str]) -> None:
        """Learn what the lines of a window show of each other."""
        telling = [index for index, line in enumerate(window) if line in self._rows or line in self._plain]
        if not telling:
            return
        if any(row.run for index in telling for row in self._rows.get(window[index], ())):
            public = set(public_lines(window))
            self._known.update((line, line) for line in public)
            telling = [index for index in telling if window[index] not in public]
        lines = [self._plain.get(line, line) for line in window] if self._plain else window
        judge = Judge(self.text, mask_text, _value_of, cut, _names_secret, looks_random)
        for old, line, new in zip(window, lines, mask_spread(lines, telling, judge), strict=True):
            if new is not line and new != line:
                self._known[old] = self._replaced(new, rows_by_text([new]).get(new, ()))
                self.found |= _kinds_in(self._known[old])

    def _mask(self, match: re.Match[str], row: SecretKind) -> str:
        start, end = match.span(match.lastgroup) if match.lastgroup else match.span()
        text, offset = match[0], match.start()
        value = text[start - offset : end - offset]
        if start == end or _is_masked(match.string, start, end) or not row.accepts(match):
            return text
        if row.random and not looks_random(value):
            return text
        self.found.add(row.id)
        return f"{text[: start - offset]}[secret:{row.id}]{text[end - offset :]}"

    def _cut(self, text: str) -> str:
        made = cut(text)
        self.found |= _kinds_in(made) if made != text else set()
        return made

    def change(self, _: str, value: Any) -> Any:
        """Mask a part of the document: a text, a window of lines, a mapping of variables to values."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._variables(value)
        return value

    def _variables(self, mapping: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in mapping.items():
            told = mapping.get("name") if name == "value" else None
            made_value = self._value(told if isinstance(told, str) else name, value)
            shown = self.text(name)
            made[shown if shown not in made else f"{shown} ({len(made)})"] = made_value
        return mapping if made == mapping else made

    def _value(self, name: str, value: Any) -> Any:
        row = secret_name(name)
        if row is None or not isinstance(value, (str, list)):
            return value
        return (
            [self._named(name, item, row) for item in value]
            if isinstance(value, list)
            else self._named(name, value, row)
        )

    def _named(self, name: str, value: Any, row: SecretKind) -> Any:
        """Return the value of a variable whose name says that it is secret: all of it is masked, spaces or not."""
        if not isinstance(value, str) or not _takes(row, name, value):
            return value
        made = self.text(value)
        if _MARK.fullmatch(made):  # its form tells more than its name
            return made
        self.found.add(row.id)
        return f"[secret:{row.id}]"


def _takes(row: SecretKind, name: str, value: str) -> bool:
    """Tell whether a row would mask the value of a variable, however it is written."""
    written = (f"{name}={value}", f'{name}="{value}"', f"{name}='{value}'")
    return any(True for text in written for _ in row.finds(text)) and not (row.random and not looks_random(value))


def _value_of(name: str, value: str) -> str:
    """Return the value of a variable, masked if its name means a secret."""
    row = secret_name(name)
    return f"[secret:{row.id}]" if row is not None and not _MARK.search(value) and _takes(row, name, value) else value


def _names_secret(text: str) -> bool:
    return _NAMES.search(text) is not None


def cut(text: str) -> str:
    """Return a text without the beginning of a secret that ends it."""
    match = _ends().search(text, max(0, len(text) - 2 * _CUT))
    if match is None:
        return text
    row = next(row for row in secrets() if match["start"] in row.starts)
    return f"{text[: match.start()]}[secret:{row.id}]"


def spread_masked(lines: list[str], found: set[str]) -> list[str]:
    """Return the lines of one text without the secrets that go over several of them; its kinds are added to ``found``."""
    masker = Masker(lines, [lines])
    made = [masker.text(line) for line in lines]
    found |= masker.found
    return made


def _is_masked(text: str, start: int, end: int) -> bool:
    """Tell whether a part of a text has nothing besides what is masked already, or cuts a mark."""
    around = _MARK.finditer(text, max(0, start - _LONGEST_NAME), end + _LONGEST_NAME)
    marks = [mark.span() for mark in around if mark.end() > start and mark.start() < end]
    if not marks:
        return False
    cut = any(first < start or last > end for first, last in marks)
    return cut or not _LEGIBLE.search(_MARK.sub("", text[start:end]))


@lru_cache(maxsize=1 << 14)
def secret_name(name: str) -> SecretKind | None:
    """Return the row by which a variable of this name holds a secret, or None."""
    if len(name) > _LONGEST_NAME or not _NAMES.search(name):
        return None
    probe = f"{name}={_ANY_VALUE}"
    rows = rows_by_text([probe]).get(probe, ())
    return next((row for row in rows if _takes_value(row, probe, len(name) + 1)), None)


def _takes_value(row: SecretKind, probe: str, start: int) -> bool:
    return any(match.span(match.lastgroup or 0)[0] == start for match in row.finds(probe))


@cache
def _ends() -> re.Pattern[str]:
    """Return a pattern of a text's last characters that are the beginning of a secret."""
    starts = sorted((start for row in secrets() for start in row.starts if len(start) > 2), key=len, reverse=True)
    tail = r"(?=[a-z_./-]{0,80}[A-Z0-9])[A-Za-z0-9_./+=-]{4,}\Z"
    return re.compile(rf"(?<![A-Za-z0-9_-])(?P<start>{'|'.join(map(re.escape, starts))}){tail}")


def rows_by_text(texts: Iterable[str]) -> dict[str, tuple[SecretKind, ...]]:
    """Return the texts that may hold a secret, each with the rows of which a literal occurs in it.

    Lines of many ranks differ in their numbers only: literals are looked for once in texts that are otherwise equal.
    """
    ordered = sorted(texts, key=lambda text: "\0" in text)
    plain = [text for text in ordered if "\0" not in text]
    shapes = [*_folded("\0".join(plain)).split(b"\0"), *map(_folded, ordered[len(plain) :])]
    shapes = shapes if plain else shapes[1:]
    known = _rows_of(list(dict.fromkeys(shapes)))
    return {text: rows for text, shape in zip(ordered, shapes, strict=True) if (rows := known.get(shape))}


def _folded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").translate(_FOLD)


def _rows_of(shapes: list[bytes]) -> dict[bytes, tuple[SecretKind, ...]]:
    """Return the shapes in which a literal occurs, with its rows: each literal is looked for once, in all of them."""
    begins = [0, *accumulate(len(shape) + 1 for shape in shapes)]
    joined = b"\0".join(shapes)
    forms = (joined, joined.lower(), byte_search.translate(joined, _BASE64))
    found: dict[int, set[int]] = {}
    for groups, text in zip(_literals(), forms, strict=True):
        find = byte_search.finder(text)
        for shared, literals in groups:
            if find(shared) >= 0:
                for number, places in _places(literals, text, begins):
                    for place in places:
                        found.setdefault(place, set()).add(number)
    rows = secrets()
    return {shapes[place]: tuple(rows[number] for number in sorted(numbers)) for place, numbers in found.items()}


def _places(literals: Literals, text: bytes, begins: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield the numbers of the rows whose literals occur in a text, with the numbers of the shapes where they do."""
    find = byte_search.finder(text)
    for literal, numbers in literals:
        places: list[int] = []
        at = find(literal)
        while at >= 0:
            places.append(bisect_right(begins, at) - 1)
            at = find(literal, begins[places[-1] + 1])
        if places:
            for number in numbers:
                yield number, places


@cache
def _literals() -> tuple[Groups, Groups, Groups]:
    """Return the literals of all rows, each with the numbers of its rows: as written, of any case, runs of base64."""
    kinds: tuple[dict[bytes, list[int]], ...] = ({}, {}, {})
    for number, row in enumerate(secrets()):
        for literal in (*row.starts, *row.guards):
            kind = kinds[literal == literal.lower() and literal not in row.starts]
            kind.setdefault(_folded(literal), []).append(number)
        if row.run:
            kinds[2].setdefault(b"a" * row.run, []).append(number)
    cased, lowered, runs = map(_grouped, kinds)
    return cased, lowered, runs


def _grouped(literals: dict[bytes, list[int]]) -> Groups:
    """Return the literals by what many of them share: where that does not occur, none of them need be looked for."""
    left = dict(literals)
    found: Groups = []
    while left:
        counts = Counter(part for literal in left for part in {literal[at : at + 3] for at in range(len(literal) - 2)})
        shared, count = max(counts.items(), key=lambda item: (item[1], item[0]), default=(b"", 0))
        if count < _WORTH_A_GROUP:
            break
        found.append((shared, [(literal, left.pop(literal)) for literal in list(left) if shared in literal]))
    return [*found, *((literal, [(literal, numbers)]) for literal, numbers in left.items())]


def mask_text(text: str) -> str:
    """Return one text without secrets."""
    return Masker([text]).text(text)


def mask_secrets(document: dict[str, Any]) -> dict[str, Any]:
    """Return the report document without secrets; one that has none is returned as it is.

    ``redaction.secrets`` of the result names the kinds that were masked, so that their owner can revoke them.
    """
    texts, windows = strings.every_text(document)
    masker = Masker(texts, windows)
    made: dict[str, Any] = strings.changed(document, masker.change) if masker.needed else document
    made = made if masker.found else document
    noted = made.get("redaction") or {}
    known = set(noted.get("secrets", ()))
    kinds = known | masker.found | _marked(texts)
    return {**made, "redaction": {**noted, "secrets": sorted(kinds)}} if kinds != known else made


def _marked(texts: Iterable[str]) -> set[str]:
    """Return the kinds that were masked before: in long texts, which are masked before they are cut."""
    kinds: set[str] = set().union(*(_kinds_in(text) for text in texts if "[secret:" in text))
    return kinds & {row.id for row in secrets()} if kinds else kinds


def _kinds_in(text: str) -> set[str]:
    return {mark[len("[secret:") : -1] for mark in _MARK.findall(text)}
