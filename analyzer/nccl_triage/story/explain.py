"""Decisions in words, and all decisions of a story, for those who ask why."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage.engine import story_rules
from nccl_triage.engine.schema import PLACEHOLDER, StoryRule, StoryTable, Text
from nccl_triage.observations.event import Event
from nccl_triage.story import exceptions, exits
from nccl_triage.story.decisions import Decision, Number
from nccl_triage.story.story import Run, Story


def rule_of(decision: Decision) -> tuple[StoryTable, StoryRule]:
    """Return the rule that decided, and its table."""
    table = story_rules.tables()[decision.table]
    return table, next(rule for rule in table.rules if rule.id == decision.rule)


def says(decision: Decision) -> Text:
    """Return why a rule decided so, in the words of every language."""
    table, rule = rule_of(decision)
    return {language: _filled(text, decision, table, language) for language, text in rule.says.items()}


def otherwise(decision: Decision) -> Text:
    """Return what would have decided otherwise, in the words of every language."""
    table, rule = rule_of(decision)
    return {language: _filled(text, decision, table, language) for language, text in rule.otherwise.items()}


def _filled(text: str, decision: Decision, table: StoryTable, language: str) -> str:
    def value(name: str) -> str:
        number: Number = decision.numbers[name] if name in decision.numbers else table.thresholds[name].value
        if isinstance(number, dict):
            return number[language]
        return f"{number:g}" if isinstance(number, float) else str(number)

    return PLACEHOLDER.sub(lambda match: value(match["name"]), text)


def decisions(story: Story) -> Iterator[Decision]:
    """Yield all decisions of a story: the run that was chosen, and for each run where it begins, its lines, its end."""
    yield story.chosen
    for run in story.runs:
        yield from of_run(run)


def of_run(run: Run) -> Iterator[Decision]:
    """Yield the decisions about a run."""
    if run.begins is not None:
        yield run.begins
    for _, decision in (*run.aside, *run.counting):
        yield decision
    yield run.outcome.decision
    for event in run.printed:
        yield from of_event(event)


def of_event(event: Event) -> Iterator[Decision]:
    """Yield what a line tells by itself: the end of a job, whose failure an exception is."""
    if (end := exits.end_of(event)) is not None:
        yield end
    if event.kind == "exception":
        yield from exceptions.raised_by(event)
