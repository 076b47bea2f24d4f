"""Which signatures a line matches, and which a name stands for.

A line is matched without any prefilter: this is the reference with which faster scans must agree. Rules name signatures
by a kind, an id, or a glob of ids.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from nccl_triage.engine.expression import Evaluator
from nccl_triage.engine.functions import VALUE_FUNCTIONS
from nccl_triage.engine.regex_analysis import plain_name
from nccl_triage.engine.schema import Signature
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.kinds import KINDS

#: Endings of the names of groups that hold the same as another one, in another wording of the message.
_ALTERNATIVES = ("2", "3", "_old")
#: Limit of the characters of a line that patterns are matched against.
MAX_MATCH = 8192
_WILD = frozenset("*?[")
_PREMISES = Evaluator(VALUE_FUNCTIONS)


def search(signature: Signature, text: str) -> dict[str, str] | None:
    """Return the named groups of a match, or None; a match whose premise does not hold is none.

    A regular expression cannot have two groups of one name. ``peer2`` and ``peer_old`` become ``peer`` where the
    message has no ``peer``.
    """
    found = signature.pattern.search(text)
    if found is None:
        return None
    groups = found.groupdict()
    fields = {name: value for name, value in groups.items() if value is not None}
    for name in [name for name in fields if name.endswith(_ALTERNATIVES)]:
        plain = plain_name(name)
        if plain in groups and plain not in fields:
            fields[plain] = fields[name]
    if signature.premise is not None and not _PREMISES.value(signature.premise, fields):
        return None
    return fields


def matches(signatures: Iterable[Signature], message: str, line: str) -> Iterator[tuple[Signature, dict[str, str]]]:
    """Yield the signatures that match the peeled message (or the raw line, if they ask for it), with their groups."""
    message, line = message[:MAX_MATCH], line[:MAX_MATCH]
    for signature in signatures:
        fields = search(signature, line if signature.raw_line else message)
        if fields is not None:
            yield signature, fields


def is_glob(pattern: str) -> bool:
    """Tell whether a name holds wildcards."""
    return not _WILD.isdisjoint(pattern)


@cache
def _glob(pattern: str) -> re.Pattern[str]:
    return lazily(fnmatch.translate(pattern))


def expand(pattern: str, kinds: Mapping[str, str]) -> list[str]:
    """Return the ids that a name stands for; ``kinds`` maps all ids to their kinds."""
    if pattern in KINDS:
        return [name for name, kind in kinds.items() if kind == pattern]
    if not is_glob(pattern):
        return [pattern] if pattern in kinds else []
    return list(filter(_glob(pattern).match, kinds))


def stands_for(pattern: str, name: str, kind: str) -> bool:
    """Tell whether a name stands for an id of a kind."""
    return pattern in (kind, name) or (is_glob(pattern) and _glob(pattern).match(name) is not None)
