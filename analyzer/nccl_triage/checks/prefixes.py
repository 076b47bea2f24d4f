"""Tests the prefixes of lines by their samples, and checks that the code behind them exists and is used."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields

from nccl_triage.checks.problem import EXPLODES, RuleProblem
from nccl_triage.engine.line_prefixes import CONDITIONS, COPIES, FIELDS, READERS, Prefix, PrefixSample
from nccl_triage.engine.regex_repeats import may_explode
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.event import Context
from nccl_triage.parsers import times
from nccl_triage.parsers.believed import BELIEVED
from nccl_triage.parsers.context_fields import SETTERS
from nccl_triage.parsers.line_readers import LINE_READERS
from nccl_triage.parsers.wrappers import Peeled, PrefixReader, WrapperProfile

#: Fields of a context that are shown as times.
_TIMES = ("time", "printed")
_SHOWN = 300
#: Fields that tell how another one is known.
_HOW = ("clock", "labelled")


def stated(context: Context) -> dict[str, str]:
    """Return what a context says, as samples write it."""
    found = {}
    for one in fields(Context):
        value = getattr(context, one.name)
        if one.name not in _HOW and value is not None and value != one.default:
            found[one.name] = times.show(value) if one.name in _TIMES else str(value)
    return found


def check_prefixes(rules: RuleSet) -> list[RuleProblem]:
    """Read every sample with all prefixes together, and check that every word that a prefix may use is code and is used."""
    reader = PrefixReader(rules.prefixes)
    findings = [
        RuleProblem("error", row.where, row.id, text, snippet[:_SHOWN] or None)
        for row in rules.prefixes.rows.values()
        for text, snippet in _wrong(row, reader, rules.prefixes.rows)
    ]
    return findings + _unused(rules.prefixes.rows)


def _wrong(row: Prefix, reader: PrefixReader, rows: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a prefix, and the text that shows it."""
    for pattern in (row.pattern, row.not_speakers):
        if pattern is not None and may_explode(pattern.source):
            yield EXPLODES, pattern.source
    if not row.match_samples:
        yield "has no sample under 'match'", ""
    if not row.not_samples:
        yield "has no sample under 'not'", ""
    if row.behind is not None and row.behind not in rows:
        yield f"stands behind the unknown prefix {row.behind!r}", ""
    by_source = row.looks_like_text or row.copied is not None
    if by_source and not any(len(lines) > 1 for lines in row.not_samples):
        yield "needs 'lines' under 'not': a source that does not use it", ""
    for sample in row.match_samples:
        if by_source and len(sample.lines) < 2:
            yield "needs 'lines' in place of 'line': it is believed only where a source uses it", sample.lines[-1]
        else:
            yield from _misread(row, sample, reader)
    for lines in row.not_samples:
        yield from _taken(row, lines, reader)
    said = {group for sample in row.match_samples for group in _said(row, sample)}
    for group, name in row.sets.items():
        if row.match_samples and group not in said:
            yield f"the group {group!r} sets {name!r} in no sample", ""


def _read(lines: tuple[str, ...], reader: PrefixReader) -> tuple[Peeled, WrapperProfile]:
    """Return what the last line of a source says."""
    profile = reader.sniff(lines) if len(lines) > 1 else WrapperProfile()
    return reader.peel(lines[-1], profile), profile


def _misread(row: Prefix, sample: PrefixSample, reader: PrefixReader) -> Iterator[tuple[str, str]]:
    peeled, _ = _read(sample.lines, reader)
    line, wrappers = sample.lines[-1], peeled.wrappers
    if row.id not in wrappers or (row.behind is None and wrappers[0] != row.id):
        yield f"its sample is taken by {wrappers[0]}" if wrappers else "does not match its sample", line
        return
    if peeled.text != sample.text:
        yield f"the message of its sample is {peeled.text!r}", line
    if tuple(peeled.extra) != sample.extra:
        yield f"the further lines of its sample are {peeled.extra!r}", line
    found = stated(peeled.context)
    for name in sorted({*found, *sample.context}):
        if found.get(name) != sample.context.get(name):
            yield f"{name} of its sample is {found.get(name, 'not set')}", line


def _taken(row: Prefix, lines: tuple[str, ...], reader: PrefixReader) -> Iterator[tuple[str, str]]:
    """Yield a problem for a counter-sample that does not keep its text, or a source that is taken to use the prefix."""
    if len(lines) == 1:
        peeled, _ = _read(lines, reader)
        if peeled.text != lines[0]:
            by = peeled.wrappers[0] if peeled.wrappers else "the program's own header"
            yield f"a sample of 'not' does not keep its text: {by} takes a part of it", lines[0]
        return
    profile = reader.sniff(lines)
    if any(row.id in reader.peel(line, profile).wrappers for line in lines):
        yield "is believed in a source of 'not'", lines[-1]


def _said(row: Prefix, sample: PrefixSample) -> Iterator[str]:
    """Yield the groups that set something in a sample, each tried on a context of its own."""
    line = sample.lines[-1]
    # What is behind another prefix begins somewhere in the line.
    for at in range(len(line) if row.behind is not None else 1):
        found = row.pattern.match(line[at:]) if row.pattern is not None else None
        groups = {} if found is None else found.groupdict()
        for group, name in row.sets.items():
            text, context = groups.get(group), Context()
            if text:
                SETTERS[name](context, text)
            if text and (context != Context() or name == "line-number"):
                yield group


def _unused(rows: Mapping[str, Prefix]) -> list[RuleProblem]:
    """Return the words that prefixes may use which no code stands behind, or which no prefix uses."""
    every = list(rows.values())
    fields_used = {name for row in every for name in (*row.sets.values(), *row.gives)}
    conditions_used = {name for row in every for name in (row.believed, row.inside)}
    kinds = (
        ("field", FIELDS, SETTERS, fields_used),
        ("condition", CONDITIONS, BELIEVED, conditions_used),
        ("reader", READERS, LINE_READERS, {row.reader for row in every}),
        ("condition", COPIES, COPIES, {row.copied for row in every}),
    )
    found = []
    for what, words, code, used in kinds:
        for name in sorted({*words, *code}):
            if name not in code:
                found.append(_word(what, name, f"the {what} has no code"))
            elif name not in words:
                found.append(_word(what, name, f"the {what} is not listed"))
            elif name not in used:
                found.append(_word(what, name, f"no prefix uses the {what}"))
    return found


def _word(what: str, name: str, text: str) -> RuleProblem:
    return RuleProblem("error", "analyzer/nccl_triage/engine/line_prefixes.py", name, text)
