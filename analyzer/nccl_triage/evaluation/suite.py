"""Everything that ``rules test`` and the test suite check of the rules, in one call: it needs the engine and the diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nccl_triage.api import diagnose
from nccl_triage.diagnosis.case import fact_names
from nccl_triage.diagnosis.culprit import METHODS
from nccl_triage.engine import check
from nccl_triage.engine.check import Finding
from nccl_triage.engine.schema import RuleSet, Signature
from nccl_triage.parsers import produced_signatures


def check_all(rules: RuleSet, healthy: Sequence[Path] = ()) -> list[Finding]:
    """Return the findings of all checks over the rules, and over healthy logs."""
    findings = [*check.check_samples(rules), *check.check_traps(rules)]
    findings += check.check_causes(rules, fact_names(), METHODS, produced_signatures())
    for log in healthy:
        findings += check_healthy(rules, log)
    return findings


def check_healthy(rules: RuleSet, log: Path) -> list[Finding]:
    """Return a finding for every root-role signature that a healthy log matches."""
    diagnosis = diagnose(log, rules=rules)
    findings = []
    for signature in diagnosis.case.observations.signatures():
        known: Signature | None = rules.signatures.get(signature)
        if known is not None and known.role == "root":
            event = diagnosis.case.of(signature)[0]
            findings.append(
                Finding(
                    "error", known.where, signature, f"matches the healthy log {log}:{event.line}", event.text[:200]
                )
            )
    if diagnosis.verdict != "healthy":
        findings.append(Finding("error", str(log), "verdict", f"a healthy log is called {diagnosis.verdict}"))
    return findings
