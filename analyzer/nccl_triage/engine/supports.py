"""Evidence written outside of the causes' files: what messages (``supports``) and producers say for causes.

An entry under ``supports`` of a signature is a row of evidence of its cause: that the message was seen, with a weight
and the words that say so. Messages that say the same share a row: one entry of an id has weight and words, the others
name only the id, so a message of another program that means the same needs one line. An entry without id and words
joins a row of its cause that says what the message means: ``message``, which is strong, or ``message-moderate``. That
is enough for a message that no incident has shown yet.

A producer (doctor, baseline, step times, flight recorders, stacks) has its rows in one file of ``rules/producers``,
with the words that they share. Each row is evidence of the cause that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nccl_triage.engine import expression
from nccl_triage.engine.fields import bilingual, flag, identifier, status
from nccl_triage.engine.functions import FUNCTIONS
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.read_causes import read_fix
from nccl_triage.engine.schema import WEIGHTS, Cause, Evidence, Fix, ProducerRow, Support, Text
from nccl_triage.errors import RuleError

#: Rows of messages about which nothing is known but what they mean, and their weights.
MESSAGES = {"message": "strong", "message-moderate": "moderate"}
_MEANS: Text = {"en": "{meaning}", "zh": "这条消息的含义：{meaning}"}


def read_supports(node: Node, signature: str, user: bool) -> list[Support]:
    """Return the entries under ``supports`` of a signature's node."""
    listed = node.mapping().get("supports")
    return [_read_support(item, signature, user) for item in listed.items()] if listed is not None else []


def _read_support(node: Node, signature: str, user: bool) -> Support:
    part = node.keys(("cause",), ("id", "weight", "says", "unless_explained", "fix", "status"))
    weight = part["weight"].choice(WEIGHTS) if "weight" in part else None
    if "says" in part and weight is None:
        raise node.fail("the key {name!r} is missing", name="weight")
    if weight is not None and "says" not in part and ("id" in part or weight not in MESSAGES.values()):
        raise node.fail("the key {name!r} is missing", name="says")
    for name in ("unless_explained", "status"):
        if name in part and "says" not in part:
            raise part[name].fail("the key {name!r} is missing", name="says")
    if "id" in part:
        row = identifier(part["id"])
    elif "says" in part:
        row = signature.partition(".")[2].replace("_", "-")
    else:  # no words of its own
        row = next(name for name, of_row in MESSAGES.items() if weight in (None, of_row))
    return Support(
        signature=signature,
        cause=part["cause"].text(),
        id=row,
        where=node.where,
        weight=weight if "says" in part else None,
        says=bilingual(part["says"], user) if "says" in part else None,
        unless_explained=flag(part, "unless_explained"),
        fix=read_fix(part["fix"], user) if "fix" in part else None,
        status=status(part),
    )


def read_producer(node: Node, user: bool) -> Iterator[ProducerRow]:
    """Yield the rows of one producer, which are about its signatures or only about facts."""
    part = node.keys(("rows",), ("signature", "when", "says", "unless_explained"))
    shared = bilingual(part["says"], user) if "says" in part else None
    explained = flag(part, "unless_explained")
    signatures = part["signature"].texts() if "signature" in part else []
    if "signature" in part and not signatures:
        raise part["signature"].fail("an empty list names nothing")
    base = part["when"].text() if "when" in part else None
    for item in part["rows"].items():
        yield from _read_row(item, signatures, base, shared, explained, user)


def _read_row(
    node: Node, signatures: list[str], base: str | None, shared: Text | None, explained: bool, user: bool
) -> Iterator[ProducerRow]:
    part = node.keys(
        ("id", "weight"),
        ("cause", "causes", "where", "when", "says", "signature", "unless_explained", "harmless", "status"),
    )
    if ("cause" in part) == ("causes" in part):
        raise node.fail("a row names its 'cause', or 'causes' of which the field 'cause' of the event is one")
    says = bilingual(part["says"], user) if "says" in part else shared
    if says is None:
        raise node.fail("the key {name!r} is missing", name="says")
    when = _both(base, part["when"].text() if "when" in part else None)
    where = part["where"].text() if "where" in part else None
    causes = [part["cause"].text()] if "cause" in part else part["causes"].texts()
    if not causes:
        raise node.fail("an empty list names nothing")
    if not (signatures or "signature" in part or when):
        raise node.fail("evidence needs 'signature' or 'when'")
    for cause in causes:
        own = where if "cause" in part else _both(f"f.cause == {cause!r}", where)
        yield ProducerRow(
            cause,
            Evidence(
                id=identifier(part["id"]),
                weight=part["weight"].choice(WEIGHTS),
                says=says,
                where_defined=node.where,
                signatures=tuple(part["signature"].texts() if "signature" in part else signatures),
                where=_parse(own, part.get("where", node)),
                when=_parse(when, part.get("when", node)),
                unless_explained=explained or flag(part, "unless_explained"),
                harmless=tuple(part["harmless"].texts()) if "harmless" in part else (),
                status=status(part),
            ),
        )


def _both(one: str | None, two: str | None) -> str | None:
    """Return the condition that two conditions hold, either of which may be missing."""
    if one is None or two is None:
        return one or two
    return f"({one}) and ({two})"


def _parse(text: str | None, at: Node) -> expression.Expression | None:
    return None if text is None else expression.parse(text, at.where, FUNCTIONS)


def _row(entries: list[Support]) -> Evidence:
    """Return the row that the entries of one id describe."""
    if entries[0].id in MESSAGES and all(entry.weight is None for entry in entries):
        entries = [entries[0]._replace(weight=MESSAGES[entries[0].id], says=_MEANS), *entries[1:]]
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
    """Return a fix of a message, which is shown if the message was seen and its own condition holds."""
    seen = f"has({signature!r})"
    when = seen if fix.when is None else f"{seen} and ({fix.when.source})"
    return fix._replace(when=expression.parse(when, where))


def _known(causes: Mapping[str, Cause], name: str, where: str) -> Cause:
    if name not in causes:
        from difflib import get_close_matches  # slow to import, and needed for errors alone

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
            raise RuleError("{id!r} already exists ({place})", where=where, id=name, place=place)
        else:  # a user's message joins a row of the shipped rules
            joined = dict.fromkeys((*present.signatures, *(entry.signature for entry in entries)))
            evidence[evidence.index(present)] = present._replace(signatures=tuple(joined))
        fixes += [_shown(entry.fix, entry.signature, entry.where) for entry in entries if entry.fix is not None]
    return cause._replace(evidence=tuple(evidence), fixes=(*fixes, *cause.fixes))


def attach(causes: dict[str, Cause], supports: Iterable[Support], produced: Iterable[ProducerRow] = ()) -> None:
    """Add the rows of messages and producers to their causes; raises RuleError for unknown causes and incomplete rows."""
    by_cause: dict[str, dict[str, list[Support]]] = {}
    for entry in supports:
        _known(causes, entry.cause, entry.where)
        by_cause.setdefault(entry.cause, {}).setdefault(entry.id, []).append(entry)
    for name, rows in by_cause.items():
        causes[name] = _supported(causes[name], rows)
    for row in produced:
        cause = _known(causes, row.cause, row.evidence.where_defined)
        if any(item.id == row.evidence.id for item in (*cause.evidence, *cause.against)):
            raise RuleError(
                "the evidence id {id!r} is listed twice", where=row.evidence.where_defined, id=row.evidence.id
            )
        causes[row.cause] = cause._replace(evidence=(*cause.evidence, row.evidence))
