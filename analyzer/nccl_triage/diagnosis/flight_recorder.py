"""The flight recorder's dumps as evidence: one comparison a case, and its lines as events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nccl_triage.diagnosis.case import Case
from nccl_triage.observations.event import Context, Event, Role
from nccl_triage.observations.recorder_table import RecorderLine
from nccl_triage.recorder.compare import RecorderComparison
from nccl_triage.recorder.lines import RECORD
from nccl_triage.recorder.vote import RecorderFinding


def comparison(case: Case) -> RecorderComparison:
    """Return what the dumps show together; empty without any."""
    found = case.value("recorder.comparison")
    return found if isinstance(found, RecorderComparison) else RecorderComparison()


def event(line: RecorderLine, role: Role = "context") -> Event:
    """Return a line of a dump as an event."""
    time = line.created / 1e9 if line.created else None
    message = line.text.split("]: ", 1)[-1]
    return Event(RECORD, line.source, line.line, message, Context(rank=line.rank, time=time), role)


def events(findings: Iterable[RecorderFinding], role: Role = "context") -> list[Event]:
    """Return the lines of findings as events, those of the ranks in the wrong first."""
    return [event(line, role) for line in _lines(findings)]


def _lines(findings: Iterable[RecorderFinding]) -> Iterator[RecorderLine]:
    for finding in findings:
        yield from sorted(finding.lines, key=lambda line: line.rank not in finding.ranks)
