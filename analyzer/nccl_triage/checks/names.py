"""Every signature, fact and culprit method that a cause or a witness speaks of exists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nccl_triage.checks.finding import Finding
from nccl_triage.engine.expression import Expression
from nccl_triage.engine.names import expand
from nccl_triage.engine.schema import Cause, RuleSet
from nccl_triage.kinds import Produced

_FUNCTIONS_ON_SIGNATURES = ("has", "count", "ranks", "hosts", "before", "leads", "all_ranks")


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


def kinds_of(rules: RuleSet, produced: Mapping[str, Produced]) -> dict[str, str]:
    """Return the kind of every signature that there is."""
    return {**rules.kinds, **{name: made.kind for name, made in produced.items()}}


def check_causes(
    rules: RuleSet, facts: Iterable[str], culprits: Iterable[str], produced: Mapping[str, Produced]
) -> list[Finding]:
    """Check that causes speak of signatures, facts and culprit methods that exist; parsers make ``produced``."""
    findings: list[Finding] = []
    ids = kinds_of(rules, produced)
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


def check_witnesses(rules: RuleSet, facts: Iterable[str], produced: Mapping[str, Produced]) -> list[Finding]:
    """Check that witnesses speak of signatures and facts that exist."""
    ids, known = kinds_of(rules, produced), set(facts)
    findings: list[Finding] = []
    for item in rules.witnesses.values():
        strange = [f"signature {name!r}" for name in _named(item.when) if not expand(name, ids)]
        strange += [f"fact {name!r}" for name in item.when.literals("fact") if name not in known]
        findings += [Finding("error", item.where, item.id, f"speaks of the unknown {name}") for name in strange]
    return findings
