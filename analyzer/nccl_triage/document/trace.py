"""The decisions behind a diagnosis as plain data: what ``--trace`` adds to the document, and what ``why`` tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nccl_triage.diagnosis import culprit, placeholders
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.findings import Candidate, Findings
from nccl_triage.diagnosis.weigh import Contribution
from nccl_triage.document import restart
from nccl_triage.document.evidence import pair
from nccl_triage.observations.event import Event
from nccl_triage.story import explain
from nccl_triage.story.decisions import Decision

#: Most decisions about single lines that are told of a run, of each answer.
LINES = 20
#: Characters kept of a line.
TEXT = 200


def decisions(diagnosis: Findings) -> Iterator[Decision]:
    """Yield every decision of a diagnosis: those of the story, the status of each cause, the verdict, the restart."""
    yield from explain.decisions(diagnosis.case.story)
    for candidate in diagnosis.candidates:
        yield candidate.ranked
    yield diagnosis.decision
    again = restart.decide(diagnosis)
    if again is not None:
        yield again.decision


def describe(diagnosis: Findings) -> dict[str, Any]:
    """Return the decisions of a diagnosis: of its runs and their lines, its causes, the verdict, the restart."""
    story = diagnosis.case.story
    again = restart.decide(diagnosis)
    return {
        "chosen": decision(story.chosen),
        "runs": [
            {
                "number": number,
                "begins": None if run.begins is None else decision(run.begins),
                "outcome": decision(run.outcome.decision),
                "set_aside": _of_lines([why for _, why in run.aside]),
                "counts": _of_lines([why for _, why in run.counting]),
            }
            for number, run in enumerate(story.runs, 1)
        ],
        "causes": [_cause(diagnosis, candidate) for candidate in diagnosis.candidates],
        "verdict": decision(diagnosis.decision),
        "restart": None if again is None else decision(again.decision),
    }


def summary(diagnosis: Findings) -> list[dict[str, Any]]:
    """Return the decisions that every document has: the run that was chosen, how it ended, and what became of its failures.

    Failures that the same rule decided about are one entry with their number.
    """
    story = diagnosis.case.story
    run = story.told
    found = [story.chosen] if len(story.runs) > 1 else []
    found += [run.begins] if run.begins is not None else []
    by_rule: dict[str, list[Decision]] = {}
    for event, why in (*run.counting, *run.aside):
        if event.is_failure or event.kind == "exception":
            by_rule.setdefault(why.rule, []).append(why)
    return [
        *(_brief(one, 1) for one in (*found, run.outcome.decision)),
        *(_brief(fates[0], len(fates)) for fates in by_rule.values()),
    ]


def _brief(made: Decision, number: int) -> dict[str, Any]:
    subject = made.subject or (made.events[0] if made.events else None)
    return {
        "rule": made.rule,
        "answer": made.answer,
        **pair("says", explain.says(made)),
        "number": number,
        "line": None if subject is None else {"path": subject.source, "line": subject.line},
    }


def decision(made: Decision) -> dict[str, Any]:
    """Return a decision: its rule and answer in words, its line, the lines and numbers behind it, and the alternative."""
    table, _ = explain.rule_of(made)
    return {
        "rule": made.rule,
        "answer": made.answer,
        **pair("asks", table.question),
        **pair("says", explain.says(made)),
        **pair("otherwise", explain.otherwise(made)),
        "subject": None if made.subject is None else line(made.subject),
        "lines": [line(event) for event in made.events],
        "numbers": {name: number for name, number in made.numbers.items() if not isinstance(number, Mapping)},
    }


def line(event: Event) -> dict[str, Any]:
    """Return where a line stands, and its text."""
    return {"path": event.source, "line": event.line, "text": event.text[:TEXT]}


def _of_lines(made: list[Decision]) -> list[dict[str, Any]]:
    """Return the first decisions of each rule with the number of all."""
    by_rule: dict[str, list[Decision]] = {}
    for one in made:
        by_rule.setdefault(one.rule, []).append(one)
    return [
        {
            "rule": rule,
            "answer": found[0].answer,
            "number": len(found),
            "decisions": [decision(one) for one in found[:LINES]],
        }
        for rule, found in by_rule.items()
    ]


def _asked_before(diagnosis: Findings, candidate: Candidate) -> list[str]:
    """Return the methods and facts that were asked for the culprits and named nobody."""
    names = culprit.tried(diagnosis.case, candidate.weighed)
    return names if candidate.found_by is None else names[: names.index(candidate.found_by)]


def _cause(diagnosis: Findings, candidate: Candidate) -> dict[str, Any]:
    """Return why a cause stands where it does: its rows of evidence and what they add, its culprit, its status."""
    weighed = candidate.weighed
    return {
        "cause": candidate.id,
        "score": round(weighed.score, 3),
        "confidence": round(candidate.confidence, 3),
        "status": decision(candidate.ranked),
        "found_by": candidate.found_by,
        "asked_before": _asked_before(diagnosis, candidate),
        "rows": [
            {**row(diagnosis.case, item), "lines": [line(event) for event in item.events[:3]]}
            for item in weighed.contributions
        ],
    }


def row(case: Case, item: Contribution) -> dict[str, Any]:
    """Return a row of evidence that held: where it is defined, what it adds to the score, and what it says."""
    return {
        "row": item.evidence.id,
        "where": item.evidence.where_defined,
        "weight": item.evidence.weight,
        "adds": round(item.applied, 3),
        "against": item.against,
        "explained_by": item.explained_by,
        **pair("says", placeholders.fill_both(item.evidence.says, case, item.events)),
    }
