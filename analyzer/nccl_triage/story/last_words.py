"""How a log ends: with a warning of NCCL or an error that no signature knows, and nothing after it."""

from __future__ import annotations

from bisect import bisect_right

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.parsers.unknown_errors import SALIENT
from nccl_triage.story.view import View

#: So many lines may stand below the warning: what NCCL says of itself on its way out.
_BELOW = 3
_WARNING = "NCCL WARN "
_LEVELS = ("ERROR", "FATAL", "CRITICAL", "E", "F")
_ERROR = lazily(
    r"^(?:\S{1,60}: |\[[^\]]{1,60}\]:? ?){0,2}(?:\[(?i:error|fatal|critical)\]|(?i:error|fatal|critical)\b(?! ?(?:=|rate|bar)))"
)


def trouble(view: View) -> list[Event]:
    """Return the lines of trouble that nobody knows with which a log ends."""
    found = _last_words(view)
    # Of several logs one may end early, and in whatever, while the job goes on.
    alone = len(view.observations.sources) == 1
    return [e for e in found if _WARNING in e.text or (alone and (e.context.level in _LEVELS or _ERROR.search(e.text)))]


def _last_words(view: View) -> list[Event]:
    """Return the lines that sound like trouble at the end of a log, behind its last step."""
    last_step: dict[str, int] = {}
    for event in view.events:
        if event.role != "progress":
            continue
        last_step[event.source] = max(event.line, last_step.get(event.source, 0))
    found = []
    for event in view.of(SALIENT):
        info = view.observations.sources.get(event.source)
        if (
            info is not None
            and info.lines - event.line - _trace_below(view, event) <= _BELOW
            and event.line > last_step.get(event.source, 0)
        ):
            found.append(event)
    return found


def _trace_below(view: View, event: Event) -> int:
    """Return how many lines of NCCL's own trace of an error stand below a line."""
    lines = view.once(_trace_lines).get(event.source, [])
    return len(lines) - bisect_right(lines, event.line)


def _trace_lines(view: View) -> dict[str, list[int]]:
    """Return source -> the lines of NCCL's own traces in it."""
    found: dict[str, list[int]] = {}
    for event in view.having("exception.frame", "func", "result"):
        found.setdefault(event.source, []).append(event.line)
    return {source: sorted(lines) for source, lines in found.items()}
