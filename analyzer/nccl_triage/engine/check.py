"""Test rules by the samples that they carry, and lint them: ``nccl-triage rules test``.

Both ways: every sample that should match does (and a sample that should not does not), no sample matches a second
signature unless one of the two declares the overlap, and every signature that a cause speaks of exists.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nccl_triage.engine import match
from nccl_triage.engine.expression import Expression
from nccl_triage.engine.schema import Cause, RuleSet, Signature
from nccl_triage.parsers.wrappers import peel

Severity = Literal["error", "warning"]

_FUNCTIONS_ON_SIGNATURES = ("has", "count", "ranks", "hosts", "before", "leads", "all_ranks")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with a rule; ``where`` is file:line."""

    severity: Severity
    where: str
    rule: str
    message: str
    snippet: str | None = None

    def show(self) -> str:
        """Return the finding as text of one to three lines."""
        text = f"{self.where}: {self.severity}: {self.rule}: {self.message}"
        return f"{text}\n    {self.snippet}" if self.snippet else text


def expand(pattern: str, ids: Iterable[str]) -> list[str]:
    """Return the ids that a name or glob stands for."""
    if not any(char in pattern for char in "*?["):
        return [pattern] if pattern in ids else []
    return fnmatch.filter(ids, pattern)


def _allowed(one: Signature, two: Signature) -> bool:
    return any(
        fnmatch.fnmatch(other.id, pattern) for this, other in ((one, two), (two, one)) for pattern in this.overlaps
    )


def _progress_of(signature: Signature, sample: str) -> str:
    """Tell how far into the pattern a sample that does not match gets."""
    source = signature.pattern.source
    for end in range(len(source) - 1, 0, -1):
        try:
            partial = re.compile(source[:end])
        except re.error:
            continue
        if partial.search(sample) and len(source[:end]) > 2:
            return f"matches up to: {source[:end]!r}"
    return "not even the beginning of the pattern matches"


def check_samples(rules: RuleSet) -> list[Finding]:
    """Run every sample against every signature."""
    findings: list[Finding] = []
    everything = list(rules.signatures.values())
    for signature in everything:
        if not signature.match_samples:
            findings.append(Finding("error", signature.where, signature.id, "has no sample under 'match'"))
        if not signature.not_samples:
            findings.append(Finding("error", signature.where, signature.id, "has no sample under 'not'"))
        for sample in signature.match_samples:
            message = peel(sample).text
            found = {other.id: other for other, _ in match.matches(everything, message, sample)}
            if signature.id not in found:
                findings.append(
                    Finding(
                        "error",
                        signature.where,
                        signature.id,
                        f"does not match its sample; {_progress_of(signature, message)}",
                        sample[:300],
                    )
                )
            elif signature.anchors is not None and not _anchored(signature, sample, message):
                findings.append(
                    Finding("error", signature.where, signature.id, "its anchors miss its sample", sample[:300])
                )
            for other in found.values():
                if other.id != signature.id and not _allowed(signature, other):
                    findings.append(
                        Finding(
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
                    Finding("error", signature.where, signature.id, "matches a sample of 'not'", sample[:300])
                )
    return findings


def _anchored(signature: Signature, line: str, message: str) -> bool:
    anchors = signature.anchors
    if anchors is None:
        return False
    text = line if signature.raw_line else message
    if anchors.caseless:
        text = text.lower()
    return any(anchor in text for anchor in anchors.texts)


def _traps(signature: Signature) -> list[str]:
    """Find short unanchored words joined by wildcards, and wildcards inside repeated groups."""
    source = signature.pattern.source
    found: list[str] = []
    for left, right in re.findall(r"([A-Za-z]{2,5})\.\*\??([A-Za-z]{2,5})(?![\w])", source):
        if not re.search(rf"\\b{re.escape(left)}|{re.escape(right)}\\b", source):
            found.append(f"{left!r} and {right!r} joined by '.*' can match inside other words; add \\b or context")
    slow = repeats_inside(source)
    return [*found, slow] if slow else found


def repeats_inside(source: str) -> str | None:
    """Return what is wrong with a pattern that repeats a group which repeats inside, or None."""
    if re.search(r"\((?:\?:|\?P<\w+>)?[^()]*[+*][^()]*\)[+*]", re.sub(r"\\.|\[[^\]]*\]", "x", source)):
        return "a repeated group repeats inside: this can take exponential time"
    return None


def check_traps(rules: RuleSet) -> list[Finding]:
    """Lint the patterns."""
    return [
        Finding("error", signature.where, signature.id, trap, signature.pattern.source[:200])
        for signature in rules.signatures.values()
        for trap in _traps(signature)
    ]


def _named(expression: Expression) -> Iterable[str]:
    """Yield the signatures that a condition names."""
    for function in _FUNCTIONS_ON_SIGNATURES:
        yield from expression.literals(function)
    for function in ("values", "numbers", "value", "number"):
        yield from expression.literals(function)[::2]


def _cause_signatures(cause: Cause) -> Iterable[tuple[str, str]]:
    for item in (*cause.evidence, *cause.against):
        for name in item.signatures:
            yield name, item.where_defined
        for expression in (item.when, item.where):
            for name in _named(expression) if expression is not None else ():
                yield name, item.where_defined
    for name in cause.explains:
        yield name, cause.where


def check_causes(
    rules: RuleSet, facts: Iterable[str], culprits: Iterable[str], produced: Iterable[str] = ()
) -> list[Finding]:
    """Check that causes speak of signatures, facts and culprit methods that exist; parsers make ``produced``."""
    findings: list[Finding] = []
    ids = [*rules.signatures, *produced]
    known_facts, known_culprits = set(facts), set(culprits)
    for cause in rules.causes.values():
        for name, where in _cause_signatures(cause):
            if not expand(name, ids):
                findings.append(Finding("error", where, cause.id, f"speaks of the unknown signature {name!r}"))
        for item in (*cause.evidence, *cause.against):
            for expression in (item.when, item.where):
                for name in expression.literals("fact") if expression is not None else ():
                    if name not in known_facts:
                        findings.append(
                            Finding("error", item.where_defined, cause.id, f"speaks of the unknown fact {name!r}")
                        )
        for method in cause.culprit:
            if method not in known_culprits:
                findings.append(Finding("error", cause.where, cause.id, f"names the unknown culprit method {method!r}"))
        for rival in cause.next_check.rivals if cause.next_check else ():
            if rival not in rules.causes:
                findings.append(Finding("error", cause.where, cause.id, f"names the unknown rival {rival!r}"))
    return findings


def check_activities(rules: RuleSet) -> list[Finding]:
    """Run the samples of what frames of stacks tell: each is what the first activity that knows it says."""
    findings: list[Finding] = []
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
        findings += [Finding("error", item.where, item.id, text, snippet[:200]) for text, snippet in messages]
    return findings


def check_witnesses(rules: RuleSet, facts: Iterable[str], produced: Iterable[str] = ()) -> list[Finding]:
    """Check that witnesses speak of signatures and facts that exist."""
    ids, known = [*rules.signatures, *produced], set(facts)
    findings: list[Finding] = []
    for item in rules.witnesses.values():
        strange = [f"signature {name!r}" for name in _named(item.when) if not expand(name, ids)]
        strange += [f"fact {name!r}" for name in item.when.literals("fact") if name not in known]
        findings += [Finding("error", item.where, item.id, f"speaks of the unknown {name}") for name in strange]
    return findings
