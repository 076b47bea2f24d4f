"""Which lines of the logs a report shows: those that matter, to be read again with the lines around them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from nccl_triage.diagnosis import incident
from nccl_triage.diagnosis.model import Findings
from nccl_triage.observations.event import Event

#: Lines marked at most.
MAX_WINDOWS = 24


def _telling(diagnosis: Findings) -> Iterator[Event]:
    """Yield the lines that the reader should see: evidence, the first fault, and without a cause the first failures."""
    for candidate in diagnosis.candidates[:2]:
        for item in candidate.weighed.for_items:
            yield from item.events[:4]
    fault = incident.first_fault(diagnosis)
    if fault is not None:
        yield fault
    if diagnosis.verdict == "unknown":
        yield from diagnosis.case.failures[:4]


def wanted(diagnosis: Findings) -> dict[str, list[int]]:
    """Return the lines that matter by their source, each source's sorted."""
    marks: dict[str, list[int]] = defaultdict(list)
    count = 0
    for event in _telling(diagnosis):
        if not event.is_remembered and event.line not in marks[event.source] and count < MAX_WINDOWS:
            marks[event.source].append(event.line)
            count += 1
    return {path: sorted(lines) for path, lines in marks.items() if lines}
