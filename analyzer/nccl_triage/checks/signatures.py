"""Signatures: every sample that should match does, one that should not does not.

No sample matches a second signature unless one of the two declares the overlap.
"""

from __future__ import annotations

import fnmatch
import re

from nccl_triage.checks.finding import Finding, repeats_inside
from nccl_triage.engine import match
from nccl_triage.engine.schema import RuleSet, Signature
from nccl_triage.parsers.wrappers import peel
from nccl_triage.scan import prefilter


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


def _candidates(rules: RuleSet) -> dict[str, dict[str, Signature]]:
    """Return sample -> the signatures whose literals stand in it, as a line of a log or without what stands before."""
    samples = [sample for signature in rules.signatures.values() for sample in signature.match_samples]
    lines = [" ".join(text.splitlines()) for sample in samples for text in (sample, peel(sample).text)]
    found = prefilter.candidates(prefilter.make_prefilter(rules.signatures.values()), lines)
    return {
        sample: {one.id: one for index in (2 * number, 2 * number + 1) for one in found.get(index, ())}
        for number, sample in enumerate(samples)
    }


def check_samples(rules: RuleSet) -> list[Finding]:
    """Run every sample against every signature."""
    findings: list[Finding] = []
    candidates = _candidates(rules)
    for signature in rules.signatures.values():
        if not signature.match_samples:
            findings.append(Finding("error", signature.where, signature.id, "has no sample under 'match'"))
        if not signature.not_samples:
            findings.append(Finding("error", signature.where, signature.id, "has no sample under 'not'"))
        for sample in signature.match_samples:
            message = peel(sample).text
            # Its own signature is tried whatever its anchors are: they are under test here, too.
            tried = {signature.id: signature, **candidates[sample]}
            found = {other.id: other for other, _ in match.matches(tried.values(), message, sample)}
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
        if signature.premise is not None and not any(_refused(signature, text) for text in signature.not_samples):
            findings.append(
                Finding(
                    "error",
                    signature.where,
                    signature.id,
                    "needs a sample under 'not' that its pattern matches and its premise refuses",
                    signature.premise.source,
                )
            )
    return findings


def _refused(signature: Signature, sample: str) -> bool:
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
    """Find short unanchored words joined by wildcards, and wildcards inside repeated groups."""
    source = signature.pattern.source
    found: list[str] = []
    for left, right in re.findall(r"([A-Za-z]{2,5})\.\*\??([A-Za-z]{2,5})(?![\w])", source):
        if not re.search(rf"\\b{re.escape(left)}|{re.escape(right)}\\b", source):
            found.append(f"{left!r} and {right!r} joined by '.*' can match inside other words; add \\b or context")
    slow = repeats_inside(source)
    return [*found, slow] if slow else found


def check_traps(rules: RuleSet) -> list[Finding]:
    """Lint the patterns."""
    return [
        Finding("error", signature.where, signature.id, trap, signature.pattern.source[:200])
        for signature in rules.signatures.values()
        for trap in _traps(signature)
    ]
