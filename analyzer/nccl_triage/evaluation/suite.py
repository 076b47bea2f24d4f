"""Everything that ``rules test`` and the test suite check of the rules, in one call: it needs the engine and the diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from nccl_triage import resources
from nccl_triage.api import diagnose
from nccl_triage.checks import causes, commands, earned, knowledge, names, placeholders, samples, story
from nccl_triage.checks.layouts import check_layouts
from nccl_triage.checks.prefixes import check_prefixes
from nccl_triage.checks.problem import RuleProblem
from nccl_triage.diagnosis.case import fact_names
from nccl_triage.diagnosis.culprit import METHODS, ways
from nccl_triage.engine.schema import RuleSet, Signature
from nccl_triage.evaluation import cases
from nccl_triage.evaluation.run import outcome_of
from nccl_triage.lazy_regex import lazily
from nccl_triage.producers import produced_signatures
from nccl_triage.verify.assess import OWN_LOG
from nccl_triage.verify.decide import cause_table

#: A signature, a kind or a glob in the code.
_NAME = lazily(r"[\"']([a-z][\w-]*(?:\.[\w*?-]+)+)[\"']")


def check_all(rules: RuleSet, healthy: Sequence[Path] = (), corpora: Sequence[Path] = ()) -> list[RuleProblem]:
    """Return the findings of all checks over the rules, over healthy logs and over labelled cases."""
    findings = [*samples.check_samples(rules), *samples.check_traps(rules)]
    findings += names.check_causes(rules, fact_names(), ways(), produced_signatures())
    findings += names.check_signatures(rules, produced_signatures(), _in_code())
    findings += names.check_missing_evidence(rules, fact_names(), produced_signatures())
    findings += names.check_terms(rules, fact_names(), produced_signatures())
    findings += placeholders.check(rules, fact_names(), produced_signatures())
    findings += causes.check(rules, {*cause_table(), OWN_LOG})
    findings += commands.check(rules)
    findings += samples.check_activities(rules)
    findings += samples.check_series(rules)
    findings += check_prefixes(rules)
    findings += check_layouts(rules)
    findings += knowledge.check(rules)
    findings += story.check_story(rules)
    findings += check_earned(rules, corpora)
    for log in healthy:
        findings += check_healthy(rules, log)
    for folder in corpora:
        findings += check_corpus(rules, folder)
    return findings


@cache
def _in_code() -> frozenset[str] | None:
    """Return the texts in the code of diagnosis and document that look like signatures; None without its source."""
    sources = [text for folder in ("diagnosis", "document") for text in resources.sources(folder)]
    return frozenset(name for text in sources for name in _NAME.findall(text)) if sources else None


def pieces(rules: RuleSet) -> list[earned.Piece]:
    """Return everything of the rules and of the diagnosis that can be earned."""
    return list(earned.pieces(rules, fact_names(), METHODS))


def check_earned(rules: RuleSet, corpora: Sequence[Path]) -> list[RuleProblem]:
    """Return the claims of what earned the shipped knowledge that do not hold."""
    groups = {f"{folder.name}/{case.id}": case.group for folder in corpora for case in cases.read(folder)}
    return earned.check(rules, pieces(rules), groups, [folder.name for folder in corpora])


def check_corpus(rules: RuleSet, folder: Path) -> list[RuleProblem]:
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
                RuleProblem(severity, str(case.log), case.id, f"labelled {case.cause}, the rules say {said.answer}")
            )
    return findings


def check_healthy(rules: RuleSet, log: Path) -> list[RuleProblem]:
    """Return a finding for a healthy log that is not called so, and for every signature of role root in it."""
    diagnosis = diagnose(log, rules=rules, model=None)
    findings = []
    for signature in diagnosis.case.observations.signatures():
        known: Signature | None = rules.signatures.get(signature)
        if known is not None and known.role == "root":
            event = diagnosis.case.of(signature)[0]
            findings.append(
                RuleProblem(
                    "error", known.where, signature, f"matches the healthy log {log}:{event.line}", event.text[:200]
                )
            )
    if diagnosis.verdict != "healthy":
        findings.append(RuleProblem("error", str(log), "verdict", f"a healthy log is called {diagnosis.verdict}"))
    return findings
