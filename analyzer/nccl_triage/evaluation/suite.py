"""Everything that ``rules test`` and the test suite check of the rules, in one call: it needs the engine and the diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from nccl_triage.api import diagnose
from nccl_triage.checks import activities, curves, knowledge, names, signatures
from nccl_triage.checks.finding import Finding
from nccl_triage.diagnosis.case import fact_names
from nccl_triage.diagnosis.culprit import METHODS
from nccl_triage.engine.schema import RuleSet, Signature
from nccl_triage.evaluation import cases
from nccl_triage.evaluation.run import outcome_of
from nccl_triage.producers import produced_signatures


def check_all(rules: RuleSet, healthy: Sequence[Path] = (), corpora: Sequence[Path] = ()) -> list[Finding]:
    """Return the findings of all checks over the rules, over healthy logs and over labelled cases."""
    findings = [*signatures.check_samples(rules), *signatures.check_traps(rules)]
    findings += names.check_causes(rules, fact_names(), METHODS, produced_signatures())
    findings += names.check_missing_evidence(rules, fact_names(), produced_signatures())
    findings += names.check_terms(rules, fact_names(), produced_signatures())
    findings += activities.check_activities(rules)
    findings += curves.check_series(rules)
    findings += knowledge.check(rules)
    for log in healthy:
        findings += check_healthy(rules, log)
    for folder in corpora:
        findings += check_corpus(rules, folder)
    return findings


def check_corpus(rules: RuleSet, folder: Path) -> list[Finding]:
    """Return what the rules alone (no classifier) get wrong of the labelled cases of a folder.

    A healthy log that is not called so is an error. A determinable failure that is not named is a warning: rules are
    general, and one that is bent until the last case fits is worse than a miss that is known.
    """
    findings = []
    for case in cases.read(folder):
        if case.cause != "healthy" and case.determinable != "yes":
            continue
        said = outcome_of(case, diagnose(case.log, rules=rules, model=None))
        if not said.right():
            severity: Literal["error", "warning"] = "error" if case.cause == "healthy" else "warning"
            findings.append(
                Finding(severity, str(case.log), case.id, f"labelled {case.cause}, the rules say {said.answer}")
            )
    return findings


def check_healthy(rules: RuleSet, log: Path) -> list[Finding]:
    """Return a finding for a healthy log that is not called so, and for every signature of role root in it."""
    diagnosis = diagnose(log, rules=rules, model=None)
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
