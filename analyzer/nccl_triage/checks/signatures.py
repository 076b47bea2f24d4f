"""Signatures: every sample that should match does, one that should not does not.

No sample matches a second signature unless one of the two declares the overlap.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from nccl_triage.checks.finding import Finding, repeats_inside
from nccl_triage.engine import match
from nccl_triage.engine.schema import RuleSet, Signature
from nccl_triage.parsers.wrappers import peel


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


class _Anchored:
    """Signatures by the literals that their matches hold: nothing else of a line needs a regular expression."""

    def __init__(self, signatures: Iterable[Signature]) -> None:
        self._free: list[Signature] = []
        self._by_literal: dict[tuple[str, bool, bool], list[Signature]] = {}
        for signature in signatures:
            if signature.anchors is None:
                self._free.append(signature)
                continue
            for text in signature.anchors.texts:
                key = (text, signature.anchors.caseless, signature.raw_line)
                self._by_literal.setdefault(key, []).append(signature)

    def candidates(self, message: str, line: str) -> list[Signature]:
        """Return the signatures that may match a line, each once."""
        texts = {
            (False, False): message,
            (True, False): message.lower(),
            (False, True): line,
            (True, True): line.lower(),
        }
        found = {id(one): one for one in self._free}
        for (literal, caseless, raw), signatures in self._by_literal.items():
            if literal in texts[caseless, raw]:
                found |= {id(one): one for one in signatures}
        return list(found.values())


def check_samples(rules: RuleSet) -> list[Finding]:
    """Run every sample against every signature."""
    findings: list[Finding] = []
    everything = list(rules.signatures.values())
    anchored = _Anchored(everything)
    for signature in everything:
        if not signature.match_samples:
            findings.append(Finding("error", signature.where, signature.id, "has no sample under 'match'"))
        if not signature.not_samples:
            findings.append(Finding("error", signature.where, signature.id, "has no sample under 'not'"))
        for sample in signature.match_samples:
            message = peel(sample).text
            # Its own signature is tried whatever its anchors are: they are under test here, too.
            tried = {one.id: one for one in (signature, *anchored.candidates(message, sample))}
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


def check_traps(rules: RuleSet) -> list[Finding]:
    """Lint the patterns."""
    return [
        Finding("error", signature.where, signature.id, trap, signature.pattern.source[:200])
        for signature in rules.signatures.values()
        for trap in _traps(signature)
    ]
