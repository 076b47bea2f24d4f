"""Checks that every placeholder of a text can have a value, in both languages.

``says`` of a row is told with the lines of the row: a field has to be in each of them, or in square brackets, which are left
out without it. What is told with all lines of a cause, and is left out if it names what the log does not tell (titles of
fixes, checks, commands, headlines), needs one signature of the cause that has the field. Other texts are not filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from nccl_triage.checks.fields import LineFields, lacking, nearest, of_all
from nccl_triage.checks.names import kinds_of, signatures_of, unknown_variable
from nccl_triage.checks.problem import RuleProblem
from nccl_triage.engine.expression import Expression
from nccl_triage.engine.match import expand
from nccl_triage.engine.schema import (
    PLACEHOLDER,
    Cause,
    Evidence,
    Fix,
    NextCheck,
    PlatformCommand,
    RuleSet,
    Text,
    text_parts,
)
from nccl_triage.knowledge import catalogue
from nccl_triage.observations.kinds import Produced

#: Placeholders without a kind, of texts that are told with lines and of headlines.
_OF_LINES = ("rank", "host", "count", "meaning")
_OF_HEADLINES = (
    "who", "rank", "host", "process", "place", "gpu", "device", "code", "ended", "signal", "timeout", "step", "file", "error",
    "frame", "message", "line",
)  # fmt: skip
#: Signatures that a message lists at most.
_LISTED = 3
#: Every line has this as a field: its own text.
_OWN_TEXT = "text"


class _Placeholder(NamedTuple):
    """A placeholder of a text: its kind (``fact:``, ``f:``, ..), its name, and whether it may be left out."""

    kind: str
    name: str
    optional: bool

    def __str__(self) -> str:
        return f"{{{self.kind}{self.name}}}"


#: Returns what is wrong with a field that a text names, None if nothing is.
_FieldCheck = Callable[[_Placeholder], "str | None"]


def _placeholders(text: str, brackets: bool = True) -> Iterator[_Placeholder]:
    """Yield the placeholders of a text; brackets mean nothing in a command."""
    for part, optional in text_parts(text) if brackets else ((text, False),):
        for match in PLACEHOLDER.finditer(part):
            yield _Placeholder(match["kind"] or "", match["name"], optional)


def _listed(names: Iterable[str]) -> str:
    every = sorted(names)
    return ", ".join(every[:_LISTED]) + (f" and {len(every) - _LISTED} more" if len(every) > _LISTED else "")


class PlaceholderCheck:
    """Checks the placeholders of the texts of all rules."""

    def __init__(self, rules: RuleSet, facts: Iterable[str], produced: Mapping[str, Produced]) -> None:
        self._rules, self._facts = rules, frozenset(facts)
        self._fields = of_all(rules, produced)
        self._kinds = kinds_of(rules, produced)

    def findings(self) -> Iterator[RuleProblem]:
        """Yield what is wrong with the texts of causes, of signatures and of missing evidence."""
        for cause in self._rules.causes.values():
            yield from self._of_cause(cause)
        for signature in self._rules.signatures.values():
            if signature.culprit is not None:
                known, id_ = self._fields[signature.id], signature.id
                check = partial(self._in_every, [id_], {id_: known}, None)
                yield from self._text(signature.where, id_, "culprit.why", signature.culprit.why, check, [id_])
            yield from self._unfilled(signature.where, signature.id, "meaning", {"en": signature.meaning})
        for item in self._rules.missing_evidence.values():
            for label, text in (("what", item.what), ("why", item.why)):
                yield from self._unfilled(item.where, item.id, label, text)
            for command in item.commands:
                yield from self._unfilled(item.where, item.id, "commands", {"en": command})
        for step in catalogue.steps().values():
            yield from self._unfilled(step.where, step.id, "what", step.what)
            yield from self._commands(step.where, step.id, "command", step.command, partial(self._in_some, ()))

    # -- the texts of a cause -----------------------------------------------------------------------------------

    def _of_cause(self, cause: Cause) -> Iterator[RuleProblem]:
        for item in (*cause.evidence, *cause.against):
            ids = self._reads(item)
            check = partial(self._in_every, ids, self._fields, item.where if item.signatures else None)
            yield from self._text(item.where_defined, f"{cause.id}/{item.id}", "says", item.says, check, ids)
        rows = [(self._reads(item), item.where if item.signatures else None) for item in cause.evidence]
        everywhere = partial(self._in_each_row, rows)
        ids = [name for item in cause.evidence for name in self._reads(item)]
        yield from self._text(cause.place("explanation"), cause.id, "explanation", cause.explanation, everywhere, ids)
        yield from self._unfilled(cause.place("title"), cause.id, "title", cause.title)
        anywhere = partial(self._in_some, ids)
        for fix in cause.fixes:
            yield from self._fix(cause.id, fix, anywhere)
        for one in cause.checks:
            yield from self._check(cause.id, one, anywhere)
        for stage in cause.stages.values():
            for step in stage:
                if step.what is not None:
                    yield from self._unfilled(step.where, cause.id, "what", step.what)
                yield from self._commands(step.where, cause.id, "command", step.command, anywhere)
        experiment, place = cause.experiment, cause.place("experiment")
        for name in ("control", "confirmed_if", "refuted_if", "needs", "why_not"):
            text = getattr(experiment, name)
            if text is not None:
                yield from self._unfilled(place, cause.id, name, text)
        for headline in cause.headlines:
            told = [name for one in headline.of for name in expand(one, self._kinds)] or ids
            check = partial(self._in_some, told)
            yield from self._text(headline.where, cause.id, "headline", headline.text, check, told, _OF_HEADLINES)

    def _fix(self, cause: str, fix: Fix, anywhere: _FieldCheck) -> Iterator[RuleProblem]:
        yield from self._text(fix.where, cause, "title of a fix", fix.title, anywhere)
        for command in fix.commands:
            yield from self._commands(fix.where, cause, "command of a fix", command, anywhere)
        if fix.caution is not None:
            yield from self._text(fix.where, cause, "caution", fix.caution, self._named_in(fix.title, "title"))
        for name, value in fix.env.items():
            yield from self._unfilled(fix.where, cause, f"env of a fix, {name}", {"en": value})

    def _check(self, cause: str, one: NextCheck, anywhere: _FieldCheck) -> Iterator[RuleProblem]:
        yield from self._text(one.where, cause, "what", one.what, anywhere)
        yield from self._commands(one.where, cause, "command of a check", one.command, anywhere)
        for label, text in (("if_yes", one.if_yes), ("if_no", one.if_no)):
            yield from self._text(one.where, cause, label, text, self._named_in(one.what, "what"))

    def _reads(self, item: Evidence) -> list[str]:
        """Return the signatures whose lines a row is told with; for one without, those that its condition asks for."""
        if item.signatures:
            return [name for one in item.signatures for name in expand(one, self._kinds)]
        return [name for one in self._asked(item.when, set()) for name in expand(one, self._kinds)]

    def _asked(self, condition: Expression | None, seen: set[str]) -> Iterator[str]:
        if condition is None:
            return
        yield from signatures_of(condition)
        for name in condition.literals("premise"):
            if name in self._rules.premises and name not in seen:
                yield from self._asked(self._rules.premises[name].when, {*seen, name})

    # -- one text -----------------------------------------------------------------------------------------------

    def _text(
        self,
        where: str,
        rule: str,
        label: str,
        text: Text,
        check: _FieldCheck,
        ids: Iterable[str] = (),
        plain: tuple[str, ...] = _OF_LINES,
    ) -> Iterator[RuleProblem]:
        """Yield what is wrong with a text that is filled."""
        found = {language: list(dict.fromkeys(_placeholders(written))) for language, written in text.items()}
        told = {
            lang: {f"{one.kind}{one.name.removesuffix(f'_{lang}')}" for one in ones} for lang, ones in found.items()
        }
        for language, names in told.items():
            alone = sorted(names.difference(*(other for key, other in told.items() if key != language)))
            if alone and len(told) > 1:
                shown = ", ".join(f"{{{name}}}" for name in alone)
                yield RuleProblem("error", where, rule, f"{label}: in one language alone ({language}): {shown}")
        for one in dict.fromkeys(one for ones in found.values() for one in ones):
            wrong = self._wrong(one, check, plain, list(ids))
            if wrong is not None:
                yield RuleProblem("error", where, rule, f"{label}: {one} {wrong}")

    def _commands(
        self, where: str, rule: str, label: str, command: PlatformCommand | None, check: _FieldCheck
    ) -> Iterator[RuleProblem]:
        """Yield what is wrong with a command, which is left out if a placeholder has no value."""
        for _, text in command.choices if command is not None else ():
            for one in dict.fromkeys(_placeholders(text, brackets=False)):
                wrong = self._wrong(one, check, _OF_LINES, [])
                if wrong is not None:
                    yield RuleProblem("error", where, rule, f"{label}: {one} {wrong}")

    @staticmethod
    def _unfilled(where: str, rule: str, label: str, text: Text) -> Iterator[RuleProblem]:
        for one in dict.fromkeys(one for written in text.values() for one in _placeholders(written)):
            yield RuleProblem(
                "error", where, rule, f"{label}: {one} would be printed as it is: this text is not filled"
            )

    def _wrong(self, one: _Placeholder, check: _FieldCheck, plain: tuple[str, ...], ids: list[str]) -> str | None:
        """Return what is wrong with a placeholder, None if it can have a value."""
        if one.kind == "fact:":
            return None if one.name in self._facts else f"is no fact{nearest(one.name, self._facts, '{{fact:{}}}')}"
        if one.kind == "env:":
            near = unknown_variable(one.name, "{{env:{}}}")
            return f"is no known variable{near}" if near else None
        if one.kind == "version:":
            return None
        if one.kind == "f:":
            return check(one)
        if one.name not in plain:
            fields = frozenset[str]().union(*(self._fields[name].possible for name in ids)) | {_OWN_TEXT}
            hint = (
                f"; a field is written {{f:{one.name}}}" if one.name in fields else nearest(one.name, plain, "{{{}}}")
            )
            return f"means nothing here; there are {', '.join(f'{{{name}}}' for name in plain)}{hint}"
        unknown = [name for name in ids if name not in self._rules.signatures] if one.name == "meaning" else []
        return f"has no value: {_listed(unknown)} is made by a parser and has no meaning in rules" if unknown else None

    # -- fields -------------------------------------------------------------------------------------------------

    def _in_every(
        self, ids: list[str], fields: Mapping[str, LineFields], where: Expression | None, one: _Placeholder
    ) -> str | None:
        """Return what is wrong with a field that every line of these signatures has to have."""
        if "." in one.name:
            wrong = self._in_some(ids, one)
            apart = "names lines that may be missing; put it in brackets with the words around it"
            return wrong or (None if one.optional else apart)
        if one.name == _OWN_TEXT:
            return None
        possible = frozenset[str]().union(*(fields[name].possible for name in ids))
        if one.name not in possible:
            return self._nowhere(one, ids, possible)
        without = [] if one.optional else lacking(one.name, ids, fields, where, self._rules)
        if not without:
            return None
        return (
            f"has no value in some lines of {_listed(without)}; put it in square brackets with the words around it, which are "
            f"left out then, or ask for it under 'where'"
        )

    def _in_each_row(self, rows: list[tuple[list[str], Expression | None]], one: _Placeholder) -> str | None:
        """Return what is wrong with a field that every line of each row has to have."""
        return next((wrong for ids, where in rows if (wrong := self._in_every(ids, self._fields, where, one))), None)

    def _in_some(self, ids: Iterable[str], one: _Placeholder) -> str | None:
        """Return what is wrong with a field that one of these signatures has to have, or the signature that it names."""
        signature, _, name = one.name.rpartition(".")
        known = expand(signature, self._kinds) if signature else list(ids)
        if signature and not known:
            return f"names the unknown signature {signature!r}{nearest(signature, self._kinds)}"
        possible = frozenset[str]().union(*(self._fields[one].possible for one in known))
        return (
            None if name in possible or name == _OWN_TEXT else self._nowhere(one._replace(name=name), known, possible)
        )

    @staticmethod
    def _nowhere(one: _Placeholder, ids: Iterable[str], possible: Iterable[str]) -> str:
        every, have = list(dict.fromkeys(ids)), sorted(possible)
        if not every:
            return "has no value: no line is told here"
        shown = f"; there are {', '.join(f'{{f:{name}}}' for name in have)}" if have else "; they have no fields"
        return (
            f"has no value: no line of {_listed(every)} has such a field{nearest(one.name, have, '{{f:{}}}') or shown}"
        )

    @staticmethod
    def _named_in(text: Text, label: str) -> _FieldCheck:
        """Return a check for a text beside another one, which is left out without a value for what that one names."""
        names = {one.name for written in text.values() for one in _placeholders(written) if not one.optional}

        def check(one: _Placeholder) -> str | None:
            fine = one.name in names or one.optional
            return None if fine else f"may have no value: name it in {label!r} too, or put it in square brackets"

        return check


def check(rules: RuleSet, facts: Iterable[str], produced: Mapping[str, Produced]) -> list[RuleProblem]:
    """Return the placeholders that cannot have a value; parsers make the signatures ``produced``."""
    return list(PlaceholderCheck(rules, facts, produced).findings())
