"""Checks that every signature, kind, fact, term, culprit method and rival that a rule names exists, and that each term is used."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from nccl_triage.checks.problem import RuleProblem
from nccl_triage.engine.expression import Expression
from nccl_triage.engine.match import expand
from nccl_triage.engine.schema import PLACEHOLDER, Cause, RuleSet, Signature
from nccl_triage.observations.kinds import KINDS, Produced

_GROUP = re.compile(r"\(\?P<(\w+)>")
_FUNCTIONS_ON_SIGNATURES = ("has", "count", "ranks", "hosts", "before", "leads", "all_ranks")
#: Functions that take a signature and a field of it.
_FUNCTIONS_ON_FIELDS = ("values", "numbers", "value", "number")


class DefinedNames(NamedTuple):
    """All names that rules may use: signatures with their kinds, and everything else."""

    kinds: Mapping[str, str]
    fields: Mapping[str, set[str]]
    facts: frozenset[str]
    premises: frozenset[str]
    words: frozenset[str]


def _signatures(expression: Expression) -> Iterator[str]:
    """Yield the signatures and kinds that a condition names."""
    for function in _FUNCTIONS_ON_SIGNATURES:
        yield from expression.literals(function)
    for function in _FUNCTIONS_ON_FIELDS:
        yield from expression.literals(function)[::2]


def kinds_of(rules: RuleSet, produced: Mapping[str, Produced]) -> dict[str, str]:
    """Return the kind of every signature that there is."""
    return {**rules.kinds, **{name: made.kind for name, made in produced.items()}}


def _known(rules: RuleSet, facts: Iterable[str], produced: Mapping[str, Produced]) -> DefinedNames:
    fields = {name: _fields(signature) for name, signature in rules.signatures.items()}
    return DefinedNames(
        kinds_of(rules, produced), fields, frozenset(facts), frozenset(rules.premises), frozenset(rules.words)
    )


def _fields(signature: Signature) -> set[str]:
    """Return the fields that lines of a signature may have; ``peer2`` and ``peer_old`` stand for ``peer``."""
    groups = _GROUP.findall(signature.pattern.source)
    return {*groups, *(name.removesuffix("_old").rstrip("23") for name in groups), *signature.sets}


def _unknown(where: str, rule: str, what: str, name: str, names: Iterable[str]) -> RuleProblem:
    return RuleProblem("error", where, rule, f"mentions the unknown {what} {name!r}{_nearest(name, names)}")


def _nearest(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, names, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _in_signatures(where: str, rule: str, names: Iterable[str], known: DefinedNames) -> Iterator[RuleProblem]:
    for name in names:
        if not expand(name, known.kinds):
            yield _unknown(where, rule, "signature", name, [*known.kinds, *KINDS])


def _in_condition(rule: str, expression: Expression, known: DefinedNames) -> Iterator[RuleProblem]:
    yield from _in_signatures(expression.where, rule, _signatures(expression), known)
    for function in _FUNCTIONS_ON_FIELDS:
        texts = expression.literals(function)
        for name, field in zip(texts[::2], texts[1::2], strict=False):
            ids = expand(name, known.kinds)
            have = set().union(*(known.fields.get(one, ()) for one in ids))
            # What parsers make has fields that nobody declares.
            if have and field not in have and all(one in known.fields for one in ids):
                hint = _nearest(field, have) or f"; it has {', '.join(sorted(have))}"
                yield RuleProblem(
                    "error", expression.where, rule, f"asks {name} for the field {field!r} that it never has{hint}"
                )
    for function, what, names in (
        ("fact", "fact", known.facts),
        ("premise", "premise", known.premises),
        ("words", "list of words", known.words),
    ):
        for name in expression.literals(function):
            if name not in names:
                yield _unknown(expression.where, rule, what, name, names)


#: Placeholders of headlines that stand for themselves.
_OF_HEADLINES = (
    "who",
    "rank",
    "host",
    "process",
    "place",
    "gpu",
    "device",
    "code",
    "ended",
    "signal",
    "timeout",
    "step",
    "file",
    "error",
    "frame",
    "message",
    "line",
)


def _in_headlines(cause: Cause, known: DefinedNames) -> Iterator[RuleProblem]:
    """Yield what is wrong with the placeholders of headlines: each must be able to have a value, in every language alike."""
    evidence = {name for item in cause.evidence for one in item.signatures for name in expand(one, known.kinds)}
    for headline in cause.headlines:
        yield from _in_signatures(headline.where, cause.id, headline.of, known)
        named = {
            language: {(match["kind"] or "", match["name"]) for match in PLACEHOLDER.finditer(text)}
            for language, text in headline.text.items()
        }
        if len(set(map(frozenset, named.values()))) > 1:
            yield RuleProblem("error", headline.where, cause.id, "the languages have different placeholders")
        ids = {name for one in headline.of for name in expand(one, known.kinds)} or evidence
        have = set().union(*(known.fields.get(one, ()) for one in ids))
        for kind, name in sorted(set().union(*named.values())):
            if kind == "fact:" and name not in known.facts:
                yield _unknown(headline.where, cause.id, "fact", name, known.facts)
            elif kind == "f:" and have and name not in have and all(one in known.fields for one in ids):
                yield _unknown(headline.where, cause.id, "field", name, have)
            elif not kind and name not in _OF_HEADLINES:
                yield _unknown(headline.where, cause.id, "placeholder", name, _OF_HEADLINES)


def _in_advice(cause: Cause, known: DefinedNames) -> Iterator[RuleProblem]:
    """Yield what is wrong with the placeholders of fixes and checks: a fact or signature that does not exist."""
    texts = [text for fix in cause.fixes for text in (fix.title, fix.caution) if text is not None]
    texts += [check.what for check in cause.checks]
    commands = [command for fix in cause.fixes for command in fix.commands]
    commands += [check.command for check in cause.checks if check.command is not None]
    commands += [step.command for stage in cause.stages.values() for step in stage if step.command is not None]
    written = [one for text in texts for one in text.values()]
    written += [text for command in commands for _, text in command.choices]
    for text in written:
        for match in PLACEHOLDER.finditer(text):
            signature, _, field = match["name"].rpartition(".")
            if match["kind"] == "fact:" and match["name"] not in known.facts:
                yield _unknown(cause.place("fixes"), cause.id, "fact", match["name"], known.facts)
            elif match["kind"] == "f:" and signature and signature not in known.kinds:
                yield _unknown(cause.place("fixes"), cause.id, "signature", signature, known.kinds)
            elif match["kind"] == "f:" and field not in known.fields.get(signature, {field}):
                yield _unknown(cause.place("fixes"), cause.id, "field", field, known.fields[signature])


def check_causes(
    rules: RuleSet, facts: Iterable[str], culprits: Iterable[str], produced: Mapping[str, Produced]
) -> list[RuleProblem]:
    """Check that causes name only what exists; parsers make the signatures ``produced``."""
    known, methods = _known(rules, facts, produced), set(culprits)
    findings: list[RuleProblem] = []
    for cause in rules.causes.values():
        for item in (*cause.evidence, *cause.against):
            findings += _in_signatures(item.where_signatures or item.where_defined, cause.id, item.signatures, known)
        for expression in cause.conditions():
            findings += _in_condition(cause.id, expression, known)
        findings += _in_signatures(cause.place("explains"), cause.id, cause.explains, known)
        for name in cause.culprit:
            if name not in methods:
                findings.append(_unknown(cause.place("culprit"), cause.id, "culprit method", name, methods))
        findings += _in_headlines(cause, known)
        findings += _in_advice(cause, known)
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
    conditions = list(rules.conditions())
    for function, terms in (("premise", rules.premises), ("words", rules.words)):
        used = {name for expression in conditions for name in expression.literals(function)}
        findings += [
            RuleProblem("error", item.where, item.id, "no condition asks for it")
            for item in terms.values()
            if item.id not in used
        ]
    return findings
