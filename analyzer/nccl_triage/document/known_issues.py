"""The known issues that the messages of a job show: those of its evidence, and of its telling lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts import software
from nccl_triage.diagnosis.findings import Candidate, Findings
from nccl_triage.diagnosis.weigh import VOTE_ID
from nccl_triage.document import telling_lines
from nccl_triage.document.evidence import optional_pair, pair
from nccl_triage.knowledge import known_issues
from nccl_triage.knowledge.known_issues import KnownIssue
from nccl_triage.observations.event import Event

#: Most issues that are told, and messages of a cause's evidence that are searched for one.
MAX_ISSUES, _MESSAGES = 3, 40


def describe(diagnosis: Findings) -> list[dict[str, Any]]:
    """Return the issues of a job that did not end well, those of the first cause's evidence before others."""
    if diagnosis.verdict == "healthy":
        return []
    versions = stated_versions(diagnosis.case)
    events = [event for candidate in diagnosis.candidates for event in evidence(candidate)]
    found: dict[str, dict[str, Any]] = {}
    for event in (*events, *telling_lines.events(diagnosis)):
        for issue in known_issues.of(event.text, versions):
            found.setdefault(issue.id, _entry(issue, event))
    return list(found.values())[:MAX_ISSUES]


def of_cause(case: Case, candidate: Candidate) -> KnownIssue | None:
    """Return the issue of a cause that a message of its own evidence shows."""
    versions = stated_versions(case)
    cause = candidate.weighed.cause.id
    found = (issue for event in evidence(candidate) for issue in known_issues.of(event.text, versions))
    return next((issue for issue in found if cause in issue.causes), None)


def stated_versions(case: Case) -> dict[str, list[str]]:
    """Return program -> the versions that the log states."""
    return {program: [version for version, _ in found] for program, found in software.versions(case).items()}


def evidence(candidate: Candidate) -> Iterable[Event]:
    """Return the messages that speak for a cause."""
    items = (item for item in candidate.weighed.for_items if item.evidence.id != VOTE_ID)
    return [event for item in items for event in item.events][:_MESSAGES]


def _entry(issue: KnownIssue, event: Event) -> dict[str, Any]:
    return {
        "id": issue.id,
        "program": issue.name,
        **pair("title", issue.title),
        "mended_in": issue.mended_in,
        **optional_pair("avoid", issue.avoid),
        **pair("says", issue.says),
        "url": issue.url,
        "how_known": issue.how_known,
        "path": event.source,
        "line": event.line,
    }
