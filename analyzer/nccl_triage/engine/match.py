"""Which signatures a line matches, without any prefilter: the reference that faster scans must agree with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nccl_triage.engine.schema import Signature

#: Characters of a line that patterns see; longer lines are cut before.
MAX_MATCH = 8192


def search(signature: Signature, text: str) -> dict[str, str] | None:
    """Return the named groups of a match (empty when it has none), or None."""
    found = signature.pattern.search(text)
    if found is None:
        return None
    return {name: value for name, value in found.groupdict().items() if value is not None}


def matches(signatures: Iterable[Signature], message: str, line: str) -> Iterator[tuple[Signature, dict[str, str]]]:
    """Yield the signatures that the peeled message (or the raw line, where they ask for it) matches."""
    message, line = message[:MAX_MATCH], line[:MAX_MATCH]
    for signature in signatures:
        fields = search(signature, line if signature.raw_line else message)
        if fields is not None:
            yield signature, fields
