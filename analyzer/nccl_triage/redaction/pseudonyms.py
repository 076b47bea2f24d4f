"""Pseudonyms: what was seen first has number 1, and the same original always has the same number.

A document that is redacted already says how many pseudonyms of each kind it has (``redaction.pseudonyms``). Numbers up
to these stay as they are, and what is new is counted on from there.
"""

from __future__ import annotations

from collections.abc import Mapping

from nccl_triage.lazy_regex import lazily

#: kind, as the document counts it -> the word before the number.
WORDS = {
    "hosts": "host",
    "domains": "domain",
    "users": "user",
    "names": "name",
    "paths": "path",
    "files": "file",
    "buckets": "bucket",
    "macs": "mac",
    "guids": "guid",
    "serials": "serial",
    "gpus": "uuid",
    "accounts": "account",
    "phones": "phone",
}
_KINDS = {word: kind for kind, word in WORDS.items()}
#: Networks and addresses have forms of their own: ``10.net-1.2``.
_COUNTED = (*WORDS, "networks", "addresses")
#: The form of a pseudonym.
FORM = rf"(?:{'|'.join(_KINDS)})-[1-9]\d{{0,8}}"
_FORM = lazily(FORM)
_INSIDE = lazily(rf"(?<![A-Za-z0-9]){FORM}(?![A-Za-z0-9])")


class Pseudonyms:
    """Numbers for originals; nothing leads back from a number to its original but this object's own memory."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._taken = {kind: int((counts or {}).get(kind, 0)) for kind in _COUNTED}
        self._counts = dict(self._taken)
        self._known: dict[tuple[str, str], int] = {}

    def number(self, kind: str, original: str) -> int:
        """Return the number of an original, the next free one for a new original."""
        key = (kind, original)
        if key not in self._known:
            self._counts[kind] += 1
            self._known[key] = self._counts[kind]
        return self._known[key]

    def of(self, kind: str, original: str) -> str:
        """Return the pseudonym of an original."""
        return f"{WORDS[kind]}-{self.number(kind, original)}"

    def taken(self, kind: str, number: int) -> bool:
        """Tell whether the document came with this number of the kind."""
        return 0 < number <= self._taken[kind]

    def made(self, text: str) -> bool:
        """Tell whether a text is a pseudonym with which the document came."""
        word, _, number = text.rpartition("-")
        return looks_made(text) and self.taken(_KINDS[word], int(number))

    def without(self, text: str) -> str | None:
        """Return a text without the pseudonyms in it; None when one of them did not come with the document."""
        return None if any(not self.made(found[0]) for found in _INSIDE.finditer(text)) else _INSIDE.sub("", text)

    def counts(self) -> dict[str, int]:
        """Return how many pseudonyms there are of each kind that occurs."""
        return {kind: count for kind, count in sorted(self._counts.items()) if count}


def looks_made(text: str) -> bool:
    """Tell whether a text has the form of a pseudonym, whoever made it."""
    return _FORM.fullmatch(text) is not None
