"""Tests the naming schemes of logs by their samples, and checks that the conditions behind them exist and are used."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage.checks.problem import EXPLODES, RuleProblem
from nccl_triage.engine.path_layouts import CONDITIONS, FIELDS, LayoutRule
from nccl_triage.engine.regex_analysis import groups_of
from nccl_triage.engine.regex_repeats import may_explode
from nccl_triage.engine.schema import RuleSet
from nccl_triage.ingest.layout_conditions import WHEN, Siblings
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.observations.store import SourceInfo


def check_layouts(rules: RuleSet) -> list[RuleProblem]:
    """Read every sample with all layouts together, and check that every condition is code and is used."""
    reader, rows = LayoutReader(rules.layouts), rules.layouts.rows.values()
    findings = [
        RuleProblem("error", row.where, row.id, text, snippet or None)
        for row in rows
        for text, snippet in _wrong(row, reader)
    ]
    used = {row.when for row in rows}
    for name in sorted({*CONDITIONS, *WHEN}):
        if name not in WHEN or name not in CONDITIONS or name not in used:
            what = "has no code" if name not in WHEN else "is not listed" if name not in CONDITIONS else "is not used"
            where = "analyzer/nccl_triage/engine/path_layouts.py"
            findings.append(RuleProblem("error", where, name, f"the condition {what}"))
    return findings


def _said(info: SourceInfo) -> dict[str, str]:
    """Return what a path says, as samples write it."""
    return {name: str(value) for name in FIELDS if (value := getattr(info, name)) is not None}


def _wrong(row: LayoutRule, reader: LayoutReader) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a layout, and the text that shows it."""
    if may_explode(row.pattern.source):
        yield EXPLODES, row.pattern.source
    if not row.match_samples:
        yield "has no sample under 'match'", ""
    if not row.not_samples:
        yield "has no sample under 'not'", ""
    seen: set[str] = set()
    for sample in row.match_samples:
        info, by = reader.told(sample.path, Siblings(sample.beside))
        if row.id not in by:
            taken = f"its sample is taken by {by[0]}" if by and row.layout is not None else "does not match its sample"
            yield taken, sample.path
            continue
        found = _said(info)
        seen |= set(found)
        for name in sorted({*found, *sample.gives}):
            if found.get(name) != sample.gives.get(name):
                yield f"{name} of its sample is {found.get(name, 'not set')}", sample.path
    for wrong in row.not_samples:
        if row.id in reader.told(wrong.path, Siblings(wrong.beside))[1]:
            yield "matches a sample of 'not'", wrong.path
    for group in groups_of(row.pattern.source):
        name = group.rstrip("2")
        if row.match_samples and name in FIELDS and name not in seen:
            yield f"the group {group!r} sets nothing in any sample", ""
