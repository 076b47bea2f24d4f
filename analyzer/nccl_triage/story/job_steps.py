"""Job steps of Slurm that ran one after the other: where the log of the next one begins.

Steps of one job may as well run side by side (the head and the workers of a Ray cluster), so their ids alone separate
nothing: the first step is named for the last time before the second is named at all, and between them something comes
up, or a task ends that had ended before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from nccl_triage.numbers import listed
from nccl_triage.observations.event import Event

#: The field in which lines of Slurm name what they are about: 4711.0, or 4711 for a whole job.
FIELD = "stepid"
#: Steps that a job has beside those that srun makes are not counted ("4711.batch").
_ID = re.compile(r"(?P<job>\d{1,18})(?:\+\d{1,9})?(?:\.(?P<step>\d{1,9}))?", re.ASCII)
#: What a scheduler and its launcher print while a step ends.
_ENDING = ("process.exit", "process.stopped", "process.signalled", "job.cancelled", "job.failed")
Step = tuple[str, str | None]


def beginnings(events: Sequence[Event], begins: Collection[str]) -> set[int]:
    """Return the positions at which the events of a later step begin; lines of the kinds ``begins`` open one."""
    lines = {(event.source, event.line): step for event in events if (step := _step_of(event)) is not None}
    if not lines:
        return set()
    spans: dict[Step, list[int]] = {}
    for position, event in enumerate(events):
        named = lines.get((event.source, event.line))
        if named is not None:
            spans.setdefault(named, [position, position])[1] = position
    # A line about a whole job tells of no step of it.
    jobs = {job for job, step in spans if step is not None}
    ordered = sorted((span, step) for step, span in spans.items() if step[1] is not None or step[0] not in jobs)
    found: set[int] = set()
    start = 0
    for ((_, last), _), ((first, end), _) in pairwise(ordered):
        if last < first and (begin := _between(events, start, last, first, end, begins)) is not None:
            found.add(begin)
            start = begin
    return found


def _step_of(event: Event) -> Step | None:
    text = event.fields.get(FIELD)
    named = _ID.fullmatch(text) if text else None
    return None if named is None else (named["job"], named["step"])


def _between(
    events: Sequence[Event], start: int, last: int, first: int, end: int, begins: Collection[str]
) -> int | None:
    """Return where the second of two steps begins: behind the last line of the first, at the first of the second."""
    for position in range(last + 1, first + 1):
        if events[position].kind in begins and not events[position].is_failure:
            return position
    ended = {task for event in events[start : last + 1] for task in _ended(event)}
    for position in range(last + 1, end + 1):
        tasks = _ended(events[position])
        if ended.intersection(tasks):
            behind = next((at for at in range(last + 1, position) if events[at].kind not in _ENDING), position)
            return min(behind, first)
        if position < first:
            ended.update(tasks)
    return None


def _ended(event: Event) -> set[tuple[str | None, int]]:
    """Return host and number of the tasks that a line of the launcher reports as ended."""
    if event.fields.get("names") != "task":
        return set()
    return {(event.fields.get("host"), task) for task in listed(event.fields.get("ranks") or event.fields.get("rank"))}
