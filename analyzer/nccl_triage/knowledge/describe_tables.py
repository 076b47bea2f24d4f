"""What is known of numbers, symptoms, families and topics as plain data: the pages that are tables."""

from __future__ import annotations

from nccl_triage.engine.schema import RuleSet
from nccl_triage.knowledge import catalogue
from nccl_triage.knowledge.model import Code, CodeTable, Symptom
from nccl_triage.knowledge.pairs import Data, pair, titles
from nccl_triage.lazy_regex import lazily
from nccl_triage.parsers.wrappers import peel

#: What stands before a message and tells nothing of it: glog's, NCCL's and torchelastic's headers.
_HEADER = lazily(
    r"^(?:\[?[EWIF]\d{4} [^\]]+\]\s*(?:\[(?:PG [^\]]*|Rank \d+)\]\s*)?|\S+:\d+:\d+ \[\d+\] (?:\S+\.(?:h|cc):\d+ )?)"
)


def _code_row(item: Code) -> Data:
    action = catalogue.tables()[item.table].actions.get(item.action or "")
    return {
        "number": item.number,
        "name": item.name,
        "text": item.text,
        "tells": item.tells,
        **pair("meaning", item.meaning),
        "causes": list(item.causes),
        "since": item.since,
        "until": item.until,
        "severity": item.severity,
        "role": item.role,
        **pair("action", action),
    }


def code(item: Code, rules: RuleSet) -> Data:
    """Return one number of a table."""
    table = catalogue.tables()[item.table]
    return {
        "kind": "code",
        "id": f"{item.table}:{item.number}",
        **_code_row(item),
        "causes": titles(item.causes, rules),
        **pair("table", table.title),
        **pair("about", table.about),
        "references": list(table.references),
        "as_of": table.as_of,
        "where": item.where,
    }


def table(item: CodeTable) -> Data:
    """Return a whole table of numbers."""
    return {
        "kind": "table",
        "id": item.id,
        **pair("title", item.title),
        **pair("about", item.about),
        "codes": [_code_row(row) for row in sorted(item.codes, key=lambda row: (row.number < 0, abs(row.number)))],
        "references": list(item.references),
        "as_of": item.as_of,
        "where": item.where,
    }


def symptom(item: Symptom, rules: RuleSet) -> Data:
    """Return one row of the symptom table."""
    return {
        "kind": "symptom",
        "id": item.id,
        "sees": item.sees,
        "message": _HEADER.sub("", peel(item.sees).text.strip()),
        "signatures": list(item.signatures),
        "tells": item.tells,
        "urgency": item.urgency,
        **pair("means", item.means),
        **pair("look", item.look),
        "causes": titles(item.causes, rules),
        "where": item.where,
    }


def family(name: str, rules: RuleSet) -> Data:
    """Return the causes of a family."""
    members = [item.id for item in rules.causes.values() if item.family == name]
    return {"kind": "family", "id": name, "causes": titles(sorted(members), rules)}


def owner(milliseconds: int, rules: RuleSet) -> Data:
    """Return who may have set a time-out."""
    from nccl_triage.knowledge import amounts, timeouts

    rows = timeouts.owners(milliseconds, {})
    return {
        "kind": "owner",
        "id": str(milliseconds),
        **pair("shown", amounts.duration(milliseconds / 1000)),
        "rows": [
            {
                "program": row.program,
                **pair("who", row.who),
                "change": timeouts.written(catalogue.knobs()[row.knob], None) if row.knob is not None else None,
            }
            for row in rows
        ],
    }


def topic(name: str, rules: RuleSet) -> Data:
    """Return a page that is no entry of a file."""
    if name == "symptoms":
        return {"kind": "symptoms", "rows": [symptom(item, rules) for item in catalogue.symptoms().values()]}
    if name == "codes":
        return {"kind": "tables", "rows": [{"id": t.id, **pair("title", t.title)} for t in catalogue.tables().values()]}
    from nccl_triage.knowledge import timeout_plan

    return timeout_plan.plan()
