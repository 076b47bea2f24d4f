"""How a log ends: with a warning of NCCL or an error that no signature knows and nothing after it, or within NCCL's start."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.diagnosis.facts.progress import progress_of
from nccl_triage.events import Event
from nccl_triage.parsers.salient import SALIENT
from nccl_triage.patterns import lazily

#: So many lines may stand below the warning: what NCCL says of itself on its way out.
_BELOW = 3
_WARNING = "NCCL WARN "
_LEVELS = ("ERROR", "FATAL", "CRITICAL", "E", "F")
_ERROR = lazily(
    r"^(?:\S{1,60}: |\[[^\]]{1,60}\]:? ?){0,2}(?:\[(?i:error|fatal|critical)\]|(?i:error|fatal|critical)\b(?! ?(?:=|rate|bar)))"
)


@fact("progress.ends_warned", "a log ends with a warning of NCCL that no signature knows, and nothing goes on after it")
def _ends_warned(case: Case) -> Fact | None:
    found = [event for event in _last_words(case) if _WARNING in event.text]
    return Fact(True, found[-2:]) if found else None


@fact("progress.ends_in_error", "the only log ends with an error that no signature knows, and nothing goes on after it")
def _ends_in_error(case: Case) -> Fact | None:
    # Of several logs one may end early, and in whatever, while the job goes on.
    if len(case.observations.sources) > 1:
        return None
    found = [e for e in _last_words(case) if e.context.level in _LEVELS or _ERROR.search(e.text) is not None]
    return Fact(True, found[-2:]) if found else None


def _last_words(case: Case) -> list[Event]:
    """Return the lines that sound like trouble at the end of a log, behind its last step."""
    last_step: dict[str, int] = {}
    for event in progress_of(case):
        last_step[event.source] = max(event.line, last_step.get(event.source, 0))
    found = []
    for event in case.of(SALIENT):
        info = case.observations.sources.get(event.source)
        if (
            info is not None
            and info.lines - event.line - _trace_below(case, event) <= _BELOW
            and event.line > last_step.get(event.source, 0)
        ):
            found.append(event)
    return found


def _trace_below(case: Case, event: Event) -> int:
    """Return how many lines of NCCL's own trace of an error stand below a line."""
    return sum(
        e.source == event.source and e.line > event.line for e in case.having("exception.frame", "func", "result")
    )


@fact(
    "progress.ends_in_init", "a log ends while NCCL sets up its first communicator: none came up, and nothing advanced"
)
def _ends_in_init(case: Case) -> Fact | None:
    begun = [e for e in case.of("interface.chosen", "communicator.starting") if e.signature.startswith("nccl.")]
    came_up = case.of("communicator.ready", "communicator.closed") or case.having("collective.counters", "op_count")
    if not begun or came_up or progress_of(case) or case.value("progress.finished"):
        return None
    return Fact(True, begun[-2:])
