"""What producers of evidence (doctor, baseline, step times, flight recorders, stacks) say for causes: ``rules/producers``.

Each producer has its rows in one place, with the words that they share; a row is evidence of the cause that it names.
"""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage.engine import build, expression
from nccl_triage.engine.functions import FUNCTIONS
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.schema import WEIGHTS, Evidence, Row, Text


def rows(node: Node, user: bool) -> Iterator[Row]:
    """Yield the rows of one producer: about its signatures, or about facts alone."""
    part = node.keys(("rows",), ("signature", "when", "says", "unless_explained"))
    shared = build.bilingual(part["says"], user) if "says" in part else None
    explained = build.flag(part, "unless_explained")
    signatures = part["signature"].texts() if "signature" in part else []
    if "signature" in part and not signatures:
        raise part["signature"].fail("an empty list names nothing")
    base = part["when"].text() if "when" in part else None
    for item in part["rows"].items():
        yield from _rows(item, signatures, base, shared, explained, user)


def _rows(
    node: Node, signatures: list[str], base: str | None, shared: Text | None, explained: bool, user: bool
) -> Iterator[Row]:
    part = node.keys(
        ("id", "weight"),
        ("cause", "causes", "where", "when", "says", "signature", "unless_explained", "harmless", "status"),
    )
    if ("cause" in part) == ("causes" in part):
        raise node.fail("a row names its 'cause', or 'causes' of which the field 'cause' of the event is one")
    says = build.bilingual(part["says"], user) if "says" in part else shared
    if says is None:
        raise node.fail("the key {name!r} is missing", name="says")
    when = _joined(base, part["when"].text() if "when" in part else None)
    where = part["where"].text() if "where" in part else None
    causes = [part["cause"].text()] if "cause" in part else part["causes"].texts()
    if not causes:
        raise node.fail("an empty list names nothing")
    if not (signatures or "signature" in part or when):
        raise node.fail("evidence needs 'signature' or 'when'")
    for cause in causes:
        own = where if "cause" in part else _joined(f"f.cause == {cause!r}", where)
        yield Row(
            cause,
            Evidence(
                id=build.identifier(part["id"]),
                weight=part["weight"].choice(WEIGHTS),
                says=says,
                where_defined=node.where,
                signatures=tuple(part["signature"].texts() if "signature" in part else signatures),
                where=_parsed(own, part.get("where", node)),
                when=_parsed(when, part.get("when", node)),
                unless_explained=explained or build.flag(part, "unless_explained"),
                harmless=tuple(part["harmless"].texts()) if "harmless" in part else (),
                status=build.status(part),
            ),
        )


def _joined(one: str | None, two: str | None) -> str | None:
    if one is None or two is None:
        return one or two
    return f"({one}) and ({two})"


def _parsed(text: str | None, at: Node) -> expression.Expression | None:
    return None if text is None else expression.parse(text, at.where, FUNCTIONS)
