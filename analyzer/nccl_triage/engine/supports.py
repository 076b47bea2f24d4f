"""What a message alone says for a cause, written beside the message: the ``supports`` of a signature.

An entry is a row of evidence of its cause: that the message was seen, with a weight and the words that say so. Messages
that say the same share a row: one entry of an id has weight and words, the others name the id alone. So a message of
another program that says what a known one says needs one line. An entry without id and words joins a row of that cause
that says what the message means: ``message``, which is strong, or ``message-moderate``. That is enough for a message
that no incident has shown yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches

from nccl_triage.engine import expression
from nccl_triage.engine.schema import Cause, Evidence, Fix, Row, Support, Text
from nccl_triage.errors import RuleError

#: The rows of messages about which no more is said than what they mean, and their weights.
MESSAGES = {"message": "strong", "message-moderate": "moderate"}
_MEANS: Text = {"en": "{meaning}", "zh": "这条消息的含义：{meaning}"}


def _row(entries: list[Support]) -> Evidence:
    """Return the row that entries of one id make."""
    if entries[0].id in MESSAGES and all(entry.weight is None for entry in entries):
        entries = [replace(entries[0], weight=MESSAGES[entries[0].id], says=_MEANS), *entries[1:]]
    described = [entry for entry in entries if entry.weight is not None]
    if len(described) != 1:
        raise RuleError(
            "the row {id!r} of {of} has no weight and no words"
            if not described
            else "the row {id!r} of {of} is described twice ({place})",
            where=entries[0].where if not described else described[1].where,
            remedy="give 'weight' and 'says' once; further signatures name the row alone",
            id=entries[0].id,
            of=entries[0].cause,
            place=described[0].where if described else "",
        )
    whole = described[0]
    return Evidence(
        id=whole.id,
        weight=whole.weight or "",
        says=whole.says or {},
        where_defined=whole.where,
        signatures=tuple(dict.fromkeys(entry.signature for entry in entries)),
        unless_explained=whole.unless_explained,
        status=whole.status,
    )


def _shown(fix: Fix, signature: str, where: str) -> Fix:
    """Return a fix of a message: it is shown where the message was seen, and its own condition holds."""
    seen = f"has({signature!r})"
    when = seen if fix.when is None else f"{seen} and ({fix.when.source})"
    return replace(fix, when=expression.parse(when, where))


def _known(causes: Mapping[str, Cause], name: str, where: str) -> Cause:
    if name not in causes:
        near = get_close_matches(name, causes, 1)
        raise RuleError(
            "supports the unknown cause {name!r}",
            where=where,
            remedy="did you mean {near!r}?" if near else None,
            name=name,
            near=near[0] if near else "",
        )
    return causes[name]


def _supported(cause: Cause, rows: Mapping[str, list[Support]]) -> Cause:
    evidence = list(cause.evidence)
    known = {item.id: item for item in (*cause.evidence, *cause.against)}
    fixes: list[Fix] = []
    for name, entries in rows.items():
        present = known.get(name)
        if present is None:
            evidence.append(_row(entries))
        elif any(entry.weight is not None for entry in entries) or present.when or present.where:
            where, place = entries[0].where, present.where_defined
            raise RuleError("{id!r} exists already ({place})", where=where, id=name, place=place)
        else:  # messages of a user join a row of the shipped rules
            joined = dict.fromkeys((*present.signatures, *(entry.signature for entry in entries)))
            evidence[evidence.index(present)] = replace(present, signatures=tuple(joined))
        fixes += [_shown(entry.fix, entry.signature, entry.where) for entry in entries if entry.fix is not None]
    return replace(cause, evidence=tuple(evidence), fixes=(*fixes, *cause.fixes))


def attach(causes: dict[str, Cause], supports: Iterable[Support], spoken: Iterable[Row] = ()) -> None:
    """Add to causes what messages and producers say for them; raises RuleError for an unknown cause or a row that is not whole."""
    by_cause: dict[str, dict[str, list[Support]]] = {}
    for entry in supports:
        _known(causes, entry.cause, entry.where)
        by_cause.setdefault(entry.cause, {}).setdefault(entry.id, []).append(entry)
    for name, rows in by_cause.items():
        causes[name] = _supported(causes[name], rows)
    for row in spoken:
        cause = _known(causes, row.cause, row.evidence.where_defined)
        if any(item.id == row.evidence.id for item in (*cause.evidence, *cause.against)):
            raise RuleError("the evidence id {id!r} stands twice", where=row.evidence.where_defined, id=row.evidence.id)
        causes[row.cause] = replace(cause, evidence=(*cause.evidence, row.evidence))


def share_consequences(causes: dict[str, Cause]) -> None:
    """Let a cause that names another one under ``explains`` explain the same lines as that one."""
    for name, cause in list(causes.items()):
        if any(one in causes for one in cause.explains):
            causes[name] = replace(cause, explains=tuple(_consequences(causes, cause)))


def _consequences(causes: Mapping[str, Cause], cause: Cause) -> dict[str, None]:
    """Return the signatures that a cause explains, by way of the causes that it names."""
    found: dict[str, None] = {}
    seen, pending = {cause.id}, list(cause.explains)
    while pending:
        one = pending.pop(0)
        if one not in causes:
            found[one] = None
        elif one not in seen:
            seen.add(one)
            pending = [*causes[one].explains, *pending]
    return found
