"""Rows of evidence by the texts that they carry under ``harmless``: the same message, and the row does not hold."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage import steps
from nccl_triage.checks.finding import Finding
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.diagnosis.weigh import supporting
from nccl_triage.engine.schema import Evidence, RuleSet
from nccl_triage.ingest.decode import LogLine
from nccl_triage.observations.store import SourceInfo
from nccl_triage.scan.scanner import scanner_for


def check_harmless(rules: RuleSet) -> list[Finding]:
    """Read every harmless text as a log of its own and ask its row."""
    return [
        Finding("error", item.where_defined, f"{cause.id}: {item.id}", message, text.strip()[:300])
        for cause in rules.causes.values()
        for item in (*cause.evidence, *cause.against)
        for message, text in _wrong(item, rules)
    ]


def _wrong(item: Evidence, rules: RuleSet) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the harmless texts of a row, and the text."""
    filtered = item.where is None or not item.harmless
    for text in item.harmless:
        case = read(text, rules)
        conditions = Conditions(case)
        events = case.of(*item.signatures) if item.signatures else []
        if supporting(item, case, conditions) is not None:
            yield "holds for a text of 'harmless'", text
        elif item.signatures and not events:
            yield "none of its signatures is in a text of 'harmless'", text
        elif item.where is not None and not any(conditions.selects(item.where, event) for event in events):
            filtered = True
    if not filtered:
        yield "no text of 'harmless' has fields that its 'where' refuses", item.harmless[0]


def read(text: str, rules: RuleSet) -> Case:
    """Return the case of a text."""
    info = SourceInfo("sample", bytes=len(text))
    lines = [LogLine(number, 0, line) for number, line in enumerate(text.splitlines(), 1)]
    info.lines = len(lines)
    observations = scanner_for(rules).scan(lines, info)
    return Case(observations.beside(steps.observe(observations)), rules)
