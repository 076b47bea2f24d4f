"""Test the formats of curves by the samples that they carry, as ``checks.signatures`` does for lines."""

from __future__ import annotations

import math

from nccl_triage.checks.finding import Finding, repeats_inside
from nccl_triage.engine.schema import RuleSet
from nccl_triage.engine.series import Format
from nccl_triage.parsers.series import SeriesReader, SeriesReading
from nccl_triage.parsers.wrappers import peel


def _differs(gives: dict[str, float], found: dict[str, float]) -> list[str]:
    """Return the names whose numbers are missing, unexpected or others."""

    def same(one: float, two: float) -> bool:
        return math.isclose(one, two, rel_tol=1e-9) or (math.isnan(one) and math.isnan(two))

    return [
        name
        for name in sorted({*gives, *found})
        if name not in gives or name not in found or not same(gives[name], found[name])
    ]


def _read(reader: SeriesReader, line: str) -> SeriesReading | None:
    text = peel(line).text
    return reader.read(text, reader.formats_of(text))


def check_series(rules: RuleSet) -> list[Finding]:
    """Read every sample with all formats together: what a line gives must not depend on who else could read it."""
    reader = SeriesReader(rules.series)
    findings = []
    for item in rules.series.formats.values():
        trap = repeats_inside(item.pattern.source)
        messages = [(trap, item.pattern.source[:200])] if trap else []
        messages += _matches(item, reader)
        messages += [
            ("reads a sample of 'not'", sample) for sample in item.not_samples if _read(reader, sample) is not None
        ]
        findings += [Finding("error", item.where, item.id, text, snippet[:300]) for text, snippet in messages]
    return findings


def _matches(item: Format, reader: SeriesReader) -> list[tuple[str, str]]:
    messages = [] if item.match_samples and item.not_samples else [("needs samples under 'match' and 'not'", "")]
    for sample in item.match_samples:
        found = _read(reader, sample.line)
        gives = found.gives() if found is not None else {}
        wrong = _differs(sample.gives, gives)
        if wrong:
            said = ", ".join(f"{name}: {gives.get(name, 'nothing')}" for name in wrong)
            messages.append((f"its sample is read differently: {said}", sample.line))
        if not any(literal in sample.line for literal in item.literals):
            messages.append(("its literals miss its sample", sample.line))
    return messages
