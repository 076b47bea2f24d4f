"""Checks that whatever a rule names exists: signatures, fields, facts, terms, culprit methods, rivals; and that terms are used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from nccl_triage.checks.fields import LineFields, nearest, of_all
from nccl_triage.checks.problem import RuleProblem
from nccl_triage.engine.expression import Expression
from nccl_triage.engine.match import expand
from nccl_triage.engine.partial import OF_EVERY_LINE
from nccl_triage.engine.schema import PLATFORMS, Evidence, RuleSet
from nccl_triage.knowledge.variables import shipped
from nccl_triage.observations.kinds import KINDS, Produced

_FUNCTIONS_ON_SIGNATURES = ("has", "count", "ranks", "hosts", "before", "leads", "all_ranks")
#: Functions that take a signature and a field of it.
_FUNCTIONS_ON_FIELDS = ("values", "numbers", "value", "number")


class DefinedNames(NamedTuple):
    """All names that rules may use: signatures with their kinds, and everything else."""

    kinds: Mapping[str, str]
    fields: Mapping[str, LineFields]
    facts: frozenset[str]
    premises: frozenset[str]
    words: frozenset[str]

    def possible(self, names: Iterable[str]) -> frozenset[str]:
        """Return the fields that a line of one of these signatures, kinds or globs may have."""
        ids = {one for name in names for one in expand(name, self.kinds)}
        return frozenset[str]().union(*(self.fields[one].possible for one in ids))


def signatures_of(expression: Expression) -> Iterator[str]:
    """Yield the signatures and kinds that a condition names."""
    for function in _FUNCTIONS_ON_SIGNATURES:
        yield from expression.literals(function)
    for function in _FUNCTIONS_ON_FIELDS:
        yield from expression.literals(function)[::2]


def kinds_of(rules: RuleSet, produced: Mapping[str, Produced]) -> dict[str, str]:
    """Return the kind of every signature that there is."""
    return {**rules.kinds, **{name: made.kind for name, made in produced.items()}}


def _known(rules: RuleSet, facts: Iterable[str], produced: Mapping[str, Produced]) -> DefinedNames:
    return DefinedNames(
        kinds_of(rules, produced),
        of_all(rules, produced),
        frozenset(facts),
        frozenset(rules.premises),
        frozenset(rules.words),
    )


def _unknown(where: str, rule: str, what: str, name: str, names: Iterable[str]) -> RuleProblem:
    return RuleProblem("error", where, rule, f"mentions the unknown {what} {name!r}{nearest(name, names)}")


def _in_signatures(where: str, rule: str, names: Iterable[str], known: DefinedNames) -> Iterator[RuleProblem]:
    for name in names:
        if not expand(name, known.kinds):
            yield _unknown(where, rule, "signature", name, [*known.kinds, *KINDS])


def _in_condition(rule: str, expression: Expression, known: DefinedNames) -> Iterator[RuleProblem]:
    yield from _in_signatures(expression.where, rule, signatures_of(expression), known)
    for function in _FUNCTIONS_ON_FIELDS:
        texts = expression.literals(function)
        for name, field in zip(texts[::2], texts[1::2], strict=False):
            have = known.possible([name])
            if have and field not in have:
                hint = nearest(field, have) or f"; it has {', '.join(sorted(have))}"
                yield RuleProblem(
                    "error", expression.where, rule, f"asks {name} for the field {field!r} that it never has{hint}"
                )
    for function, what, names in (
        ("fact", "fact", known.facts),
        ("premise", "premise", known.premises),
        ("words", "list of words", known.words),
        ("on", "platform", PLATFORMS),
    ):
        for name in expression.literals(function):
            if name not in names:
                yield _unknown(expression.where, rule, what, name, names)
    for name in expression.literals("env"):
        if (near := unknown_variable(name)) is not None:
            yield RuleProblem("error", expression.where, rule, f"mentions the unknown variable {name!r}{near}")


def unknown_variable(name: str, shown: str = "{!r}") -> str | None:
    """Return the question whether a known variable is meant by one that is not; None if it is known, or like none."""
    return None if shipped().find(name) is not None else nearest(name, shipped(), shown) or None


def _in_row(rule: str, item: Evidence, known: DefinedNames) -> Iterator[RuleProblem]:
    """Yield the fields that a row asks for and that no line of it has: ``where`` is about these lines, ``when`` about none."""
    if item.where is not None:
        have = known.possible(item.signatures)
        for name in sorted(item.where.fields() - have - OF_EVERY_LINE):
            hint = nearest(name, have) or f"; there are {', '.join(sorted(have)) or 'none'}"
            yield RuleProblem(
                "error", item.where.where, rule, f"asks for the field {name!r} that none of its lines has{hint}"
            )
    if item.when is not None:
        for name in sorted(item.when.fields()):
            message = f"'when' is about no line: f.{name} is always none; ask for it under 'where'"
            yield RuleProblem("error", item.when.where, rule, message)


def check_causes(
    rules: RuleSet, facts: Iterable[str], culprits: Iterable[str], produced: Mapping[str, Produced]
) -> list[RuleProblem]:
    """Check that causes name only what exists; parsers make the signatures ``produced``."""
    known, methods = _known(rules, facts, produced), set(culprits)
    findings: list[RuleProblem] = []
    for cause in rules.causes.values():
        for item in (*cause.evidence, *cause.against):
            findings += _in_row(f"{cause.id}/{item.id}", item, known)
            findings += _in_signatures(item.where_signatures or item.where_defined, cause.id, item.signatures, known)
        for expression in cause.conditions():
            findings += _in_condition(cause.id, expression, known)
        findings += _in_signatures(cause.place("explains"), cause.id, cause.explains, known)
        for name in cause.culprit:
            if name not in methods:
                findings.append(_unknown(cause.place("culprit"), cause.id, "culprit method", name, methods))
        for headline in cause.headlines:
            findings += _in_signatures(headline.where, cause.id, headline.of, known)
        for name in (name for check in cause.checks for name in check.rivals):
            if name not in rules.causes:
                findings.append(_unknown(cause.place("next_check"), cause.id, "rival", name, rules.causes))
    return findings


def check_missing_evidence(rules: RuleSet, facts: Iterable[str], produced: Mapping[str, Produced]) -> list[RuleProblem]:
    """Check that the conditions of missing evidence speak of what exists."""
    known = _known(rules, facts, produced)
    return [finding for item in rules.missing_evidence.values() for finding in _in_condition(item.id, item.when, known)]


def check_terms(rules: RuleSet, facts: Iterable[str], produced: Mapping[str, Produced]) -> list[RuleProblem]:
    """Check that premises name only what exists, and that each term is used by a condition."""
    known = _known(rules, facts, produced)
    findings = [finding for item in rules.premises.values() for finding in _in_condition(item.id, item.when, known)]
    have = known.possible(known.kinds) | OF_EVERY_LINE
    findings += [
        _unknown(item.when.where, item.id, "field", name, have)
        for item in rules.premises.values()
        for name in sorted(item.when.fields() - have)
    ]
    conditions = list(rules.conditions())
    for function, terms in (("premise", rules.premises), ("words", rules.words)):
        used = {name for expression in conditions for name in expression.literals(function)}
        findings += [
            RuleProblem("error", item.where, item.id, "no condition asks for it")
            for item in terms.values()
            if item.id not in used
        ]
    return findings


def check_signatures(
    rules: RuleSet, produced: Mapping[str, Produced], in_code: Iterable[str] | None
) -> list[RuleProblem]:
    """Check what signatures name, and that each root one serves a verdict.

    ``in_code`` are the signatures, kinds and globs that facts and documents ask for; None where that is not known.
    """
    kinds = kinds_of(rules, produced)
    findings = []
    for signature in rules.signatures.values():
        if "." not in signature.id:
            message = f"its id must begin with the program: {signature.program}.{signature.id}"
            findings.append(RuleProblem("error", signature.where, signature.id, message))
        for name in signature.overlaps:
            if not expand(name, kinds):
                findings.append(_unknown(signature.where, signature.id, "signature", name, kinds))
    if in_code is not None:
        asked = {name for cause in rules.causes.values() for item in cause.evidence for name in _asked_by(item)}
        used = {one for name in (*asked, *in_code) for one in expand(name, kinds)}
        message = "has the role root and serves no verdict: say under 'supports' for which cause it speaks, or take another role"
        findings += [
            RuleProblem("error", signature.where, signature.id, message)
            for signature in rules.signatures.values()
            if signature.role == "root" and signature.id not in used
        ]
    return findings


def _asked_by(item: Evidence) -> Iterator[str]:
    yield from item.signatures
    for expression in (item.when, item.where):
        if expression is not None:
            yield from signatures_of(expression)
