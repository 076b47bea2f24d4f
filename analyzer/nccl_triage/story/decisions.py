"""Decisions of the story: which rule decided, about which line, by which lines and numbers.

A ``Table`` holds the conditions of one table of ``rules/story``. Its rules are asked in the order in which the file
lists them; the first one that holds decides. A condition returns the grounds on which it holds, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from nccl_triage.engine import story_rules
from nccl_triage.engine.schema import StoryRule, StoryTable, Text
from nccl_triage.observations.event import Event

_Asked = TypeVar("_Asked")
#: A number or word of a decision; a text may differ by language.
Number = float | int | str | Text


class Grounds(NamedTuple):
    """The lines and numbers by which a rule holds."""

    events: tuple[Event, ...] = ()
    numbers: Mapping[str, Number] = {}


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided: the rule and its answer, the line that it is about, and the lines and numbers that decided."""

    rule: str
    answer: str
    subject: Event | None = None
    events: tuple[Event, ...] = ()
    numbers: Mapping[str, Number] = field(default_factory=dict)

    @property
    def table(self) -> str:
        """The table that the rule belongs to."""
        return self.rule.partition(".")[0]


Condition = Callable[[_Asked], Grounds | None]
#: Every table that has conditions, by name.
REGISTERED: dict[str, Table[object]] = {}


class Table(Generic[_Asked]):
    """The rules of one table with their conditions."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: Rule -> its condition; None for a rule that a function applies by name (``decision``).
        self.conditions: dict[str, Condition[_Asked] | None] = {}
        REGISTERED[name] = self  # type: ignore[assignment]

    def condition(self, name: str) -> Callable[[Condition[_Asked]], Condition[_Asked]]:
        """Register the condition of a rule."""

        def register(function: Condition[_Asked]) -> Condition[_Asked]:
            if name in self.conditions:
                raise ValueError(f"two conditions of {self.name}.{name}")
            self.conditions[name] = function
            return function

        return register

    def by_name(self, *names: str) -> None:
        """Declare rules that a function applies by name."""
        self.conditions.update(dict.fromkeys(names))

    @cached_property
    def data(self) -> StoryTable:
        """The table as its file states it."""
        return story_rules.tables()[self.name]

    @cached_property
    def limits(self) -> Mapping[str, float]:
        """The thresholds of the table by name."""
        return {name: item.value for name, item in self.data.thresholds.items()}

    @cached_property
    def _rules(self) -> dict[str, StoryRule]:
        return {rule.id.partition(".")[2]: rule for rule in self.data.rules}

    @cached_property
    def kinds(self) -> Mapping[str, frozenset[str]]:
        """The kinds of lines that each rule looks at."""
        return {name: frozenset(rule.kinds) for name, rule in self._rules.items()}

    @cached_property
    def _asked(self) -> list[tuple[StoryRule, Condition[_Asked]]]:
        """The rules with a condition, in order."""
        return [(rule, found) for name, rule in self._rules.items() if (found := self.conditions.get(name)) is not None]

    @cached_property
    def _by_kind(self) -> dict[str, list[tuple[StoryRule, Condition[_Asked]]]]:
        kinds = {kind for rule, _ in self._asked for kind in rule.kinds}
        return {kind: [item for item in self._asked if kind in (item[0].kinds or kinds)] for kind in kinds}

    def looks_at(self, kind: str) -> bool:
        """Tell whether a rule looks at lines of a kind."""
        return kind in self._by_kind

    def decide(self, asked: _Asked, subject: Event | None = None, kind: str | None = None) -> Decision | None:
        """Return the decision of the first rule that holds; with a ``kind`` only rules for lines of it are asked."""
        rules = self._asked if kind is None else self._by_kind.get(kind, ())
        return _first(rules, asked, subject)

    def settle(self, asked: _Asked) -> Decision:
        """Return the decision of the first rule that holds, in a table whose last rule always does."""
        decision = self.decide(asked)
        if decision is None:
            raise LookupError(f"no rule of {self.name!r} holds")
        return decision

    def overrule(self, asked: _Asked, subject: Event | None = None) -> Decision | None:
        """Return the decision of the first rule that holds and that may overrule an earlier one."""
        return _first((item for item in self._asked if item[0].overrules), asked, subject)

    def is_uncertain(self, decision: Decision) -> bool:
        """Tell whether a decision is one of a rule that may be overruled by likelihood."""
        return self._rules[decision.rule.partition(".")[2]].uncertain

    def decision(self, name: str, subject: Event | None, grounds: Grounds = Grounds()) -> Decision:  # noqa: B008
        """Return the decision of a rule that a function applied."""
        rule = self._rules[name]
        return Decision(rule.id, rule.answer, subject, grounds.events, grounds.numbers)


def _first(
    rules: Iterable[tuple[StoryRule, Condition[_Asked]]], asked: _Asked, subject: Event | None
) -> Decision | None:
    for rule, holds in rules:
        grounds = holds(asked)
        if grounds is not None:
            return Decision(rule.id, rule.answer, subject, grounds.events, grounds.numbers)
    return None


#: The answer about a line that counts.
COUNTS = "counts"
#: Grounds of a rule for which the line itself is enough.
ITSELF = Grounds()


def by(event: Event | None, *further: Event) -> Grounds | None:
    """Return the grounds of a rule that holds by a line and further ones; None without that line."""
    return None if event is None else Grounds((event, *further))


def answer_in_words(decision: Decision) -> Text:
    """Return the answer of a decision in the words of every language."""
    return story_rules.tables()[decision.table].answers[decision.answer]
