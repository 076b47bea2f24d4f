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


#: The row of the table that masks a key on one line.
PRIVATE_KEY = "private-key"
_KEY_MARK = f"[secret:{PRIVATE_KEY}]"
_EDGE = r"-----{} (?:[A-Z0-9]{{1,12}} ){{0,3}}PRIVATE KEY(?: BLOCK)?-----"
_BEGIN, _END = lazily(_EDGE.format("BEGIN")), lazily(_EDGE.format("END"))
#: A line of the body stands after the prefix of a line; the last one may be short, and the line of END shows that it is one.
_BODY = lazily(r"(?:^|[\s\]:|>)])((?=[a-z]{0,39}[A-Z0-9+/=])[A-Za-z0-9+/=]{16,})\s*$")
_LAST = lazily(r"(?:^|[\s\]:|>)])([A-Za-z0-9+/=]{4,})\s*$")
_HEADER = lazily(r"(?:Proc-Type|DEK-Info|Comment|Version): ?.{1,80}$")
#: Lines of a key of 16,384 bits.
_MOST_LINES = 220


def is_key_edge(line: str) -> bool:
    """Tell whether a key begins or ends in a line."""
    return "PRIVATE KEY" in line and bool(_BEGIN.search(line) or _END.search(line))


def mask_private_keys(lines: Sequence[str]) -> list[str]:
    """Return as many lines, with the bodies of private keys masked: after a BEGIN, before an END that has no BEGIN."""
    made = list(lines)
    for index, line in enumerate(lines):
        begin = next(reversed(list(_BEGIN.finditer(line))), None)
        if begin is not None and not _END.search(line, begin.end()):
            _mask_body(made, range(index + 1, min(len(lines), index + _MOST_LINES)))
            made[index] = line[: begin.start()] + _KEY_MARK
        end = _END.search(line)
        if end is not None and not _BEGIN.search(line, 0, end.start()):
            _mask_body(made, range(index - 1, max(-1, index - _MOST_LINES), -1))
            made[index] = made[index].replace(end[0], _KEY_MARK)
    return made


def _mask_body(lines: list[str], places: range) -> None:
    for place in places:
        line = lines[place]
        last = place + 1 < len(lines) and _KEY_MARK not in line and _END.search(lines[place + 1])
        match = (_LAST if last else _BODY).search(line)
        if match is not None:
            lines[place] = line[: match.start(1)] + _KEY_MARK
        elif not _HEADER.search(line):
            return


#: Texts of at least this many characters may have been cut, and with them a secret at their end.
_CUT = 200
#: Part of every name of a secret: a quick test before the patterns.
_NAMES = lazily(r"(?i)token|secret|pass|pwd|pw$|psk$|otp$|cred|key|licen|auth|jwt|cookie|_[as]k$|[^\x00-\x7f]")
#: A sample value that is masked only because of the name before it.
_ANY_VALUE = "Zq3xTv9LmK2pR8wY"
_LONGEST_NAME = 80
_VALUE = lazily(r"\b[Vv]alue[\"']?\s?[:=]\s?[\"']?\S{3}")
_MARK = lazily(r"\[secret:[a-z0-9-]+\]")
_LEGIBLE = lazily(r"[^\W_]")
#: For guards, all digits are one.
_FOLD = bytes.maketrans(b"123456789", b"0" * 9)

#: Folded literals, each with the numbers of its rows.
Literals = list[tuple[bytes, list[int]]]


class Masker:
    """Masks texts by the table; ``found`` collects the kinds that were masked."""

    def __init__(self, texts: Iterable[str]) -> None:
        given = set(texts)
        #: Texts with hidden characters -> the same as a reader sees them.
        self._plain = {text: seen for text in given if (seen := plain(text)) is not text and seen != text}
        self._rows = rows_by_text(given.union(self._plain.values()))
        self._known: dict[str, str] = {}
        self.found: set[str] = set()

    def text(self, text: str) -> str:
        """Return one of the texts without secrets."""
        if text not in self._rows and text not in self._plain:
            return text
        made = self._known.get(text)
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
        made = text
        if "\n" in text and is_key_edge(text):
            made = "\n".join(self._lines(text.split("\n")))
        for row in rows:
            made = row.pattern.compiled.sub(lambda match, row=row: self._mask(match, row), made)
        return self._cut(made) if len(text) >= _CUT else made

    @property
    def needed(self) -> bool:
        """Whether any of the texts holds a secret, or is the name of one, or the edge of a key of several lines."""
        return any(
            self.text(text) != text or is_key_edge(text) or _is_value(text) or secret_name(text)
            for text in (*self._rows, *self._plain)
        )

    def _mask(self, match: re.Match[str], row: SecretKind) -> str:
        start, end = match.span(match.lastgroup) if match.lastgroup else match.span()
        text, offset = match[0], match.start()
        value = text[start - offset : end - offset]
        if _is_masked(match.string, start, end):
            return text
        if row.random and not looks_random(value):
            return text
        self.found.add(row.id)
        return f"{text[: start - offset]}[secret:{row.id}]{text[end - offset :]}"

    def _cut(self, text: str) -> str:
        match = _ends().search(text, max(0, len(text) - 2 * _CUT))
        if match is None:
            return text
        row = next(row for row in secrets() if match["start"] in row.starts)
        self.found.add(row.id)
        return f"{text[: match.start()]}[secret:{row.id}]"

    def _lines(self, lines: list[str]) -> list[str]:
        made = mask_private_keys(lines)
        if made != lines:
            self.found.add(PRIVATE_KEY)
        return made

    def change(self, _: str, value: Any) -> Any:
        """Mask a part of the document: a text, a window of lines, a mapping of variables to values."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._variables(value)
        if any(isinstance(line, str) and (is_key_edge(line) or _is_value(line)) for line in value):
            return self._window(value)
        return value

    def _window(self, lines: Sequence[Any]) -> list[Any]:
        texts = [line if isinstance(line, str) else "" for line in lines]
        made = self._values(self._lines(texts))
        masker = Masker(made)
        masked = [masker.text(line) for line in made]
        self.found |= masker.found
        return [new if isinstance(old, str) else old for new, old in zip(masked, lines, strict=True)]

    def _values(self, lines: list[str]) -> list[str]:
        """Return the lines without values whose name stands in the line before: ``- name: TOKEN``, ``  value: x``."""
        made = list(lines)
        for index in range(1, len(made)):
            if _is_value(made[index]):
                pair = "\n".join(made[index - 1 : index + 1])
                masker = Masker([pair])
                made[index - 1 : index + 1] = masker.text(pair).split("\n")
                self.found |= masker.found
        return made

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
        written = (f"{name}={value}", f'{name}="{value}"', f"{name}='{value}'")
        if not isinstance(value, str) or not any(map(row.pattern.compiled.search, written)):
            return value
        if row.random and not looks_random(value):
            return value
        made = self.text(value)
        if _MARK.fullmatch(made):  # its form tells more than its name
            return made
        self.found.add(row.id)
        return f"[secret:{row.id}]"


def _is_value(line: str) -> bool:
    return "alue" in line and _VALUE.search(line) is not None


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
    found = row.pattern.compiled.finditer(probe)
    return any(match.span(match.lastgroup or 0)[0] == start for match in found)


@cache
def _ends() -> re.Pattern[str]:
    """Return a pattern of a text's last characters that are the beginning of a secret."""
    starts = sorted((start for row in secrets() for start in row.starts if len(start) > 2), key=len, reverse=True)
    tail = r"(?=[a-z_./-]{0,80}[A-Z0-9])[A-Za-z0-9_./+=-]{4,}\Z"
    return re.compile(rf"(?<![A-Za-z0-9_])(?P<start>{'|'.join(map(re.escape, starts))}){tail}")


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
    cased, lowered = (
        _places(literals, text, begins) for literals, text in zip(_literals(), (joined, joined.lower()), strict=True)
    )
    found: dict[int, set[int]] = {}
    for number, places in (*cased, *lowered):
        for place in places:
            found.setdefault(place, set()).add(number)
    rows = secrets()
    return {shapes[place]: tuple(rows[number] for number in sorted(numbers)) for place, numbers in found.items()}


def _places(literals: Literals, text: bytes, begins: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield the numbers of the rows whose literals occur in a text, with the numbers of the shapes where they do."""
    for literal, numbers in literals:
        places: list[int] = []
        at = byte_search.find(text, literal)
        while at >= 0:
            places.append(bisect_right(begins, at) - 1)
            at = byte_search.find(text, literal, begins[places[-1] + 1])
        if places:
            for number in numbers:
                yield number, places


@cache
def _literals() -> tuple[Literals, Literals]:
    """Return the literals of all rows, each with the numbers of its rows: as they are written, and of any case."""
    cased: dict[bytes, list[int]] = {}
    lowered: dict[bytes, list[int]] = {}
    for number, row in enumerate(secrets()):
        for literals, kind in ((row.starts, cased), (row.guards, lowered)):
            for literal in literals:
                kind.setdefault(_folded(literal), []).append(number)
    return list(cased.items()), list(lowered.items())


def mask_text(text: str) -> str:
    """Return one text without secrets."""
    return Masker([text]).text(text)


def mask_secrets(document: dict[str, Any]) -> dict[str, Any]:
    """Return the report document without secrets; one that has none is returned as it is.

    ``redaction.secrets`` of the result names the kinds that were masked, so that their owner can revoke them.
    """
    texts = strings.every_text(document)
    masker = Masker(texts)
    made: dict[str, Any] = strings.changed(document, masker.change) if masker.needed else document
    made = made if masker.found else document
    noted = made.get("redaction") or {}
    known = set(noted.get("secrets", ()))
    kinds = known | masker.found | _marked(texts)
    return {**made, "redaction": {**noted, "secrets": sorted(kinds)}} if kinds != known else made


def _marked(texts: Iterable[str]) -> set[str]:
    """Return the kinds that were masked before: in long texts, which are masked before they are cut."""
    marks = {mark for text in texts if "[secret:" in text for mark in _MARK.findall(text)}
    return {mark[len("[secret:") : -1] for mark in marks} & {row.id for row in secrets()} if marks else set()
