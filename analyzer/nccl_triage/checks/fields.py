"""Which fields the lines of a signature have: all that some line may have, and those that every line has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from nccl_triage.engine import partial, regex_analysis
from nccl_triage.engine.expression import Expression
from nccl_triage.engine.schema import CODE_FIELDS, RuleSet, Signature
from nccl_triage.observations.kinds import Produced


class LineFields(NamedTuple):
    """The fields that a line of a signature may have, and those that it has in any case."""

    possible: frozenset[str]
    certain: frozenset[str]


def of_signature(signature: Signature) -> LineFields:
    """Return the fields of a signature's lines: groups of its pattern, what it sets, and what its number means."""
    possible, certain = regex_analysis.groups(signature.pattern.source)
    further = frozenset(signature.sets).union(CODE_FIELDS if signature.codes is not None else ())
    return LineFields(possible | further, certain | further)


def of_all(rules: RuleSet, produced: Mapping[str, Produced]) -> dict[str, LineFields]:
    """Return the fields of all signatures, those of ``produced`` included."""
    found = {
        name: LineFields(frozenset((*made.fields, *made.sometimes)), frozenset(made.fields))
        for name, made in produced.items()
    }
    return found | {name: of_signature(signature) for name, signature in rules.signatures.items()}


def lacking(
    name: str, ids: Iterable[str], fields: Mapping[str, LineFields], where: Expression | None, rules: RuleSet
) -> list[str]:
    """Return the signatures of which a line that a filter selects may have no field of this name."""
    return [
        one
        for one in ids
        if name not in fields[one].certain
        and (where is None or partial.may_select(where, fields[one].possible - {name}, rules))
    ]


def nearest(name: str, names: Iterable[str], shown: str = "{!r}") -> str:
    """Return the question whether the nearest of these names is meant, or an empty text."""
    near = get_close_matches(name, sorted(names), 1)
    return f"; did you mean {shown.format(near[0])}?" if near else ""
