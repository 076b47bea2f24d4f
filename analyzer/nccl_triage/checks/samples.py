"""Tests rules by their samples: signatures, formats of curves, stack activities, and harmless texts of evidence.

A sample that should match does, one that should not does not. No sample matches a second signature unless one of the two
declares the overlap.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Iterator

from nccl_triage import steps
from nccl_triage.checks.problem import RuleProblem, repeats_inside
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.diagnosis.weigh import supporting
from nccl_triage.engine import match
from nccl_triage.engine.metric_formats import LineFormat
from nccl_triage.engine.pattern_progress import matched_beginning
from nccl_triage.engine.schema import Evidence, RuleSet, Signature
from nccl_triage.ingest.decode import LogLine
from nccl_triage.observations.store import SourceInfo
from nccl_triage.parsers.series import SeriesReader, SeriesReading
from nccl_triage.parsers.wrappers import Peeled, PrefixReader
from nccl_triage.scan import prefilter
from nccl_triage.scan.scanner import scanner_for


def _allowed(one: Signature, two: Signature) -> bool:
    return any(
        fnmatch.fnmatch(other.id, pattern) for this, other in ((one, two), (two, one)) for pattern in this.overlaps
    )


def _progress_of(signature: Signature, sample: str) -> str:
    """Tell how far into the pattern a sample that does not match gets."""
    beginning = matched_beginning(signature.pattern.source, sample)
    return f"matches up to: {beginning!r}" if beginning else "not even the beginning of the pattern matches"


def _candidates(rules: RuleSet) -> dict[str, dict[str, Signature]]:
    """Return sample -> the signatures whose literals stand in it, as a line of a log or without what stands before."""
    samples = [sample for signature in rules.signatures.values() for sample in signature.match_samples]
    peel = PrefixReader(rules.prefixes).peel
    lines = [" ".join(text.splitlines()) for sample in samples for text in (sample, peel(sample).text)]
    found = prefilter.candidates(prefilter.make_prefilter(rules.signatures.values()), lines)
    return {
        sample: {one.id: one for index in (2 * number, 2 * number + 1) for one in found.get(index, ())}
        for number, sample in enumerate(samples)
    }


def check_samples(rules: RuleSet) -> list[RuleProblem]:
    """Run every sample against every signature."""
    findings: list[RuleProblem] = []
    candidates = _candidates(rules)
    peel = PrefixReader(rules.prefixes).peel
    for signature in rules.signatures.values():
        if not signature.match_samples:
            findings.append(RuleProblem("error", signature.where, signature.id, "has no sample under 'match'"))
        if not signature.not_samples:
            findings.append(RuleProblem("error", signature.where, signature.id, "has no sample under 'not'"))
        for sample in signature.match_samples:
            message = peel(sample).text
            # Its own signature is tried whatever its anchors are: they are under test here, too.
            tried = {signature.id: signature, **candidates[sample]}
            found = {other.id: other for other, _ in match.matches(tried.values(), message, sample)}
            if signature.id not in found:
                findings.append(
                    RuleProblem(
                        "error",
                        signature.where,
                        signature.id,
                        f"does not match its sample; {_progress_of(signature, message)}",
                        sample[:300],
                    )
                )
            elif signature.anchors is not None and not _anchored(signature, sample, message):
                findings.append(
                    RuleProblem(
                        "error", signature.where, signature.id, "its anchors are not in its sample", sample[:300]
                    )
                )
            for other in found.values():
                if other.id != signature.id and not _allowed(signature, other):
                    findings.append(
                        RuleProblem(
                            "error",
                            signature.where,
                            signature.id,
                            f"its sample also matches {other.id} ({other.where}); declare it under 'overlaps' or tighten",
                            sample[:300],
                        )
                    )
        for sample in signature.not_samples:
            text = sample if signature.raw_line else peel(sample).text
            if match.search(signature, text) is not None:
                findings.append(
                    RuleProblem("error", signature.where, signature.id, "matches a sample of 'not'", sample[:300])
                )
        if signature.premise is not None and not any(_refused(signature, text, peel) for text in signature.not_samples):
            findings.append(
                RuleProblem(
                    "error",
                    signature.where,
                    signature.id,
                    "needs a sample under 'not' that its pattern matches and its premise refuses",
                    signature.premise.source,
                )
            )
    return findings


def _refused(signature: Signature, sample: str, peel: Callable[[str], Peeled]) -> bool:
    """Tell whether the premise is what keeps a sample from matching."""
    text = sample if signature.raw_line else peel(sample).text
    return signature.pattern.search(text) is not None and match.search(signature, text) is None


def _anchored(signature: Signature, line: str, message: str) -> bool:
    anchors = signature.anchors
    if anchors is None:
        return False
    text = line if signature.raw_line else message
    if anchors.caseless:
        text = text.lower()
    return any(anchor in text for anchor in anchors.texts)


def _traps(signature: Signature) -> list[str]:
    """Find short unanchored words joined by wildcards, wildcards inside repeated groups, and words inside identifiers."""
    source = signature.pattern.source
    found: list[str] = []
    for left, right in re.findall(r"([A-Za-z]{2,5})\.\*\??([A-Za-z]{2,5})(?![\w])", source):
        if not re.search(rf"\\b{re.escape(left)}|{re.escape(right)}\\b", source):
            found.append(f"{left!r} and {right!r} joined by '.*' can match inside other words; add \\b or context")
    slow = repeats_inside(source)
    return [*found, *([slow] if slow else []), *_words_inside(signature)]


def _words_inside(signature: Signature) -> list[str]:
    """Find the single words of a failure that also match inside of an identifier."""
    if signature.role not in ("root", "cascade"):
        return []
    words = {found[0] for sample in signature.match_samples if (found := signature.pattern.search(sample)) is not None}
    return [
        f"the word {word!r} is also found in {text!r}; add \\b"
        for word in sorted(words)
        if word.isidentifier()
        for text in (f"call_{word}", f"call{word}", f"{word}_with", f"{word}With")
        if match.search(signature, f"in {text}(group)") is not None
    ]


def check_traps(rules: RuleSet) -> list[RuleProblem]:
    """Lint the patterns."""
    return [
        RuleProblem("error", signature.where, signature.id, trap, signature.pattern.source[:200])
        for signature in rules.signatures.values()
        for trap in _traps(signature)
    ]


def _differs(gives: dict[str, float], found: dict[str, float]) -> list[str]:
    """Return the names whose numbers are missing, unexpected or others."""

    def same(one: float, two: float) -> bool:
        return math.isclose(one, two, rel_tol=1e-9) or (math.isnan(one) and math.isnan(two))

    return [
        name
        for name in sorted({*gives, *found})
        if name not in gives or name not in found or not same(gives[name], found[name])
    ]


def _read(reader: SeriesReader, text: str) -> SeriesReading | None:
    return reader.read(text, reader.formats_of(text))


def check_series(rules: RuleSet) -> list[RuleProblem]:
    """Read every sample with all formats together: what a line gives must not depend on who else could read it."""
    reader, peel = SeriesReader(rules.series), PrefixReader(rules.prefixes).peel
    findings = []
    for item in rules.series.formats.values():
        trap = repeats_inside(item.pattern.source)
        messages = [(trap, item.pattern.source[:200])] if trap else []
        messages += _matches(item, reader, peel)
        messages += [
            ("reads a sample of 'not'", sample)
            for sample in item.not_samples
            if _read(reader, peel(sample).text) is not None
        ]
        findings += [RuleProblem("error", item.where, item.id, text, snippet[:300]) for text, snippet in messages]
    return findings


def _matches(item: LineFormat, reader: SeriesReader, peel: Callable[[str], Peeled]) -> list[tuple[str, str]]:
    messages = [] if item.match_samples and item.not_samples else [("needs samples under 'match' and 'not'", "")]
    for sample in item.match_samples:
        found = _read(reader, peel(sample.line).text)
        gives = found.gives() if found is not None else {}
        wrong = _differs(sample.gives, gives)
        if wrong:
            said = ", ".join(f"{name}: {gives.get(name, 'nothing')}" for name in wrong)
            messages.append((f"its sample is read differently: {said}", sample.line))
        if not any(literal in sample.line for literal in item.literals):
            messages.append(("its literals are not in its sample", sample.line))
    return messages


def check_activities(rules: RuleSet) -> list[RuleProblem]:
    """Run the samples of stack activities: the first activity that matches must be the expected one."""
    findings: list[RuleProblem] = []
    for item in rules.activities.values():
        trap = repeats_inside(item.frame.source)
        messages = [(trap, item.frame.source)] if trap else []
        if not item.match_samples or not item.not_samples:
            messages.append(("needs samples under 'match' and 'not'", ""))
        for sample in item.match_samples:
            first = next((other.id for other in rules.activities.values() if other.frame.search(sample)), "none")
            if first != item.id:
                messages.append((f"its sample is taken by {first}", sample))
        messages += [
            ("matches a sample of 'not'", sample)
            for sample in item.not_samples
            if item.frame.search(sample) is not None
        ]
        findings += [RuleProblem("error", item.where, item.id, text, snippet[:200]) for text, snippet in messages]
    return findings


def check_harmless(rules: RuleSet) -> list[RuleProblem]:
    """Read every harmless text as a log of its own and evaluate its row."""
    return [
        RuleProblem("error", item.where_defined, f"{cause.id}: {item.id}", message, text.strip()[:300])
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
