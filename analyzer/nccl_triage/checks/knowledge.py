"""Tests the knowledge by its samples, and checks that what it names exists: part of ``rules test``."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_triage.checks.problem import RuleProblem
from nccl_triage.engine import match
from nccl_triage.engine.regex_repeats import may_explode
from nccl_triage.engine.schema import RuleSet
from nccl_triage.knowledge import catalogue, known_issues, lookup, report_advice
from nccl_triage.knowledge.entries import Symptom, Text, Variable
from nccl_triage.knowledge.judge import judge_variable
from nccl_triage.knowledge.known_issues import KnownIssue
from nccl_triage.knowledge.variables import Variables, shipped
from nccl_triage.parsers.wrappers import PrefixReader

#: Values of these kinds cannot be odd by themselves.
_ANYTHING = ("text", "path")


def _error(where: str, name: str, message: str) -> RuleProblem:
    return RuleProblem("error", where, name, message)


def _is_chinese(text: str) -> bool:
    return any("\u4e00" <= char <= "\u9fff" for char in text)


def languages(where: str, name: str, texts: Iterable[Text | None]) -> list[RuleProblem]:
    """Check that the English text is English and the Chinese one Chinese."""
    found: list[RuleProblem] = []
    for text in texts:
        if text is not None and (_is_chinese(text["en"]) or not text["en"].strip()):
            found.append(_error(where, name, f"the English text is not English: {text['en'][:60]!r}"))
        # A text of names and numbers alone is the same in both languages.
        if text is not None and not _is_chinese(text["zh"]) and text["zh"] != text["en"]:
            found.append(_error(where, name, f"the Chinese text is not Chinese: {text['zh'][:60]!r}"))
    return found


def variable(item: Variable) -> list[RuleProblem]:
    """Run the samples of a variable; one whose values can be odd has some."""
    judged = item.grammar.kind not in _ANYTHING or item.traps or item.default
    found = [_error(item.where, item.id, "has no sample")] if judged and not item.samples and item.kind == "env" else []
    for sample in item.samples:
        kinds = {remark.kind for remark in judge_variable(item.id, sample.value, sample.versions, sample.environment)}
        wanted = {sample.finds} if sample.finds is not None else set()
        if not (wanted <= kinds if wanted else not kinds):
            got, want = ", ".join(sorted(kinds)) or "nothing", sample.finds or "nothing"
            found.append(_error(item.where, item.id, f"the sample {sample.value!r} finds {got} instead of {want}"))
    texts = (item.meaning, item.touch, item.caution, item.verification, item.undo, *(trap.says for trap in item.traps))
    return found + languages(item.where, item.id, texts)


def symptom(item: Symptom, rules: RuleSet) -> list[RuleProblem]:
    """Check that the line of a symptom matches one of its signatures."""
    found = [
        _error(item.where, item.id, f"mentions the unknown signature {name!r}")
        for name in item.signatures
        if name not in rules.signatures
    ]
    known = [rules.signatures[name] for name in item.signatures if name in rules.signatures]
    if not list(match.matches(known, PrefixReader(rules.prefixes).peel(item.sees).text, item.sees)):
        found.append(_error(item.where, item.id, "its line matches none of its signatures"))
    return found + languages(item.where, item.id, (item.means, item.look))


def known_issue(item: KnownIssue) -> list[RuleProblem]:
    """Run the samples of a known issue, and check its expression, address and causes."""
    found = [
        _error(item.where, item.id, f"does not match its sample {text[:80]!r}")
        for text in item.match_samples
        if item not in known_issues.of(text, {})
    ]
    found += [
        _error(item.where, item.id, f"matches what it must not: {text[:80]!r}")
        for text in item.not_samples
        if item in known_issues.of(text, {})
    ]
    if not (item.match_samples and item.not_samples):
        found.append(_error(item.where, item.id, "needs a sample that matches and one that does not"))
    if may_explode(item.matches.source):
        found.append(_error(item.where, item.id, "its expression can take very long on some lines"))
    if not item.url.startswith("https://"):
        found.append(_error(item.where, item.id, f"{item.url!r} is not an https address"))
    return found + languages(item.where, item.id, (item.title, item.avoid))


def _unknown(where: str, name: str, what: str, names: Iterable[str], known: Iterable[str]) -> list[RuleProblem]:
    have = set(known)
    return [_error(where, name, f"names the unknown {what} {other!r}") for other in names if other not in have]


def check(rules: RuleSet, variables: Variables | None = None) -> list[RuleProblem]:
    """Return what is wrong with the knowledge, given the rules that it refers to."""
    known = variables or shipped()
    found: list[RuleProblem] = []
    for entry in known.all():
        found += variable(entry) + _unknown(entry.where, entry.id, "cause", entry.causes, rules.causes)
    for advice in catalogue.advice().values():
        found += _unknown(advice.where, advice.id, "cause", advice.causes, rules.causes)
        found += languages(advice.where, advice.id, (advice.claim, advice.why, advice.instead))
        missing = [name for name in advice.variables if known.find(name) is None]
        found += _unknown(advice.where, advice.id, "variable", missing, ())
    for table in catalogue.tables().values():
        found += languages(table.where, table.id, table.actions.values())
        for code in table.codes:
            name = f"{table.id}:{code.number}"
            found += _unknown(code.where, name, "cause", code.causes, rules.causes)
            found += languages(code.where, name, (code.meaning,))
    for row in catalogue.symptoms().values():
        found += symptom(row, rules) + _unknown(row.where, row.id, "cause", row.causes, rules.causes)
    for issue in known_issues.shipped().values():
        found += known_issue(issue) + _unknown(issue.where, issue.id, "cause", issue.causes, rules.causes)
    for problem in catalogue.problems().values():
        found += languages(problem.where, problem.id, (problem.title, problem.first))
        leads = [name for name in problem.leads if lookup.exact(name, rules) is None]
        found += _unknown(problem.where, problem.id, "entry", leads, ())
    for owner in catalogue.owners():
        names = [owner.knob] if owner.knob is not None else []
        found += _unknown(owner.where, owner.program, "knob", names, catalogue.knobs())
    for cause, step in report_advice.unknown_steps(rules.causes.values()):
        found += _unknown(cause.where, cause.id, "step", [step], ())
    return found
