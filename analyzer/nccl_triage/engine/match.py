"""Which signatures a line matches, without any prefilter: the reference that faster scans must agree with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nccl_triage.engine import values
from nccl_triage.engine.expression import Evaluator
from nccl_triage.engine.schema import Signature

#: How a group is named that stands for another one of its pattern, in another wording of the message.
_STANDS_IN = ("2", "3", "_old")
#: Characters of a line that patterns see; longer lines are cut before.
MAX_MATCH = 8192
_PREMISES = Evaluator(values.FUNCTIONS)


def search(signature: Signature, text: str) -> dict[str, str] | None:
    """Return the named groups of a match (empty when it has none), or None; one whose premise fails is no match.

    A regular expression cannot name two groups alike: ``peer2`` and ``peer_old`` are the ``peer`` of a message that has
    no ``peer`` of its own.
    """
    found = signature.pattern.search(text)
    if found is None:
        return None
    groups = found.groupdict()
    fields = {name: value for name, value in groups.items() if value is not None}
    for name in [name for name in fields if name.endswith(_STANDS_IN)]:
        plain = name.removesuffix("_old").rstrip("23")
        if plain in groups and plain not in fields:
            fields[plain] = fields[name]
    if signature.premise is not None and not _PREMISES.value(signature.premise, fields):
        return None
    return fields


def matches(signatures: Iterable[Signature], message: str, line: str) -> Iterator[tuple[Signature, dict[str, str]]]:
    """Yield the signatures that the peeled message (or the raw line, where they ask for it) matches."""
    message, line = message[:MAX_MATCH], line[:MAX_MATCH]
    for signature in signatures:
        fields = search(signature, line if signature.raw_line else message)
        if fields is not None:
            yield signature, fields
