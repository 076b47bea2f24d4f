"""Lines with an error code: the table of codes determines the role of the line and says what the code means.

A signature with ``codes: xid`` has one pattern for all Xids. The row of ``rules/codes/xid.yaml`` makes the line a root
cause, a consequence or context, and adds ``code_name``, ``code_kind``, ``code_severity`` and ``code_action`` to its
fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nccl_triage.engine.schema import LANGUAGES, RuleSet
from nccl_triage.knowledge import catalogue
from nccl_triage.knowledge.entries import Code
from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event, Role

#: Kind of codes whose lines say themselves whether they are fatal (the Xids of NVLink 5).
LINK = "link"
#: Limit of the findings from the registers of one line that are reported.
MAX_FINDINGS = 3
#: Kind of codes that are no fault of anything.
EVENT = "event"
#: Kind of a code that is in no table.
UNLISTED = "unlisted"
_FATAL = lazily(r"\bFatal\b")


def codes(table: str) -> dict[int, Code]:
    """Return the rows of a table by their codes; empty if there is no such table."""
    known = catalogue.tables().get(table)
    return {row.number: row for row in known.codes} if known is not None else {}


def action(row: Code) -> dict[str, str]:
    """Return what to do about a code, in every language."""
    return catalogue.tables()[row.table].actions.get(row.action or "", {"en": "", "zh": ""})


def apply_code_tables(events: Iterable[Event], rules: RuleSet) -> list[Event]:
    """Return the events; those with a code get the role and the fields that its table says."""
    by_table: dict[str, dict[int, Code]] = {}
    settled: list[Event] = []
    for event in events:
        signature = rules.signatures.get(event.signature)
        if signature is None or signature.codes is None:
            settled.append(event)
            continue
        name = signature.codes
        if name not in by_table:
            by_table[name] = codes(name)
        rows = by_table[name]
        number = whole(event.fields.get(name))
        settled.append(_settled(event, rows.get(number) if number is not None else None))
    return settled


def _detailed(event: Event, row: Code) -> tuple[dict[str, str], Role | None]:
    """Return what the registers of a line say and what to do about it, and the role that they determine, if any."""
    table = catalogue.tables()[row.table]
    rows = [detail for detail in table.details if detail.code == row.number]
    told = catalogue.read_registers(rows, event.text) if rows else catalogue.RegisterReading((), False)
    if not told.details:
        return {}, None
    # Take the most drastic action: the table lists them in increasing order.
    order = list(table.actions)
    acts = [detail.action or row.action or "" for detail in told.details]
    act = table.actions.get(max(acts, key=lambda name: order.index(name) if name in order else -1), {})
    findings = list(dict.fromkeys(detail.finding for detail in told.details))[:MAX_FINDINGS]
    words = {
        language: " ".join([*(table.findings[key][language] for key in findings), act.get(language, "")])
        for language in LANGUAGES
    }
    roles = {detail.role for detail in told.details}
    return words, next(iter(roles)) if told.complete and len(roles) == 1 else None


def _settled(event: Event, row: Code | None) -> Event:
    if row is None:
        return replace(event, fields={**event.fields, "code_kind": UNLISTED})
    role = row.role or event.role
    severity = row.severity or ""
    if row.kind == LINK:
        fatal = _FATAL.search(event.text) is not None
        role, severity = (role, "fatal") if fatal else ("cascade", "error")
    details, settled = _detailed(event, row)
    kind = row.kind or ""
    if settled is not None:
        role = settled
        if settled == "context":
            kind, severity = EVENT, "notice"
    told = details or action(row)
    fields = {
        **event.fields,
        "code_name": row.name,
        "code_kind": kind,
        "code_severity": severity,
        "code_action": told["en"],
        "code_action_zh": told["zh"],
    }
    return replace(event, role=role, fields=fields)
