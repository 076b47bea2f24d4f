"""How a run ended."""

from __future__ import annotations

from nccl_triage.observations.event import Event
from nccl_triage.recorder.compare import compare
from nccl_triage.story import ends, last_words
from nccl_triage.story.exceptions import is_communication, is_launcher
from nccl_triage.story.fates import ADVANCES, MOVES, NUMBERS
from nccl_triage.story.model import Outcome
from nccl_triage.story.view import View

#: Lines of processes that end at slightly different times, after the work: consequences of that, no failures.
FAREWELLS = (
    "rendezvous.failed", "connection.lost", "connection.refused", "process.lost", "process.stopped", "process.signalled",
    "teardown", "communicator.closed", "collective.error",
)  # fmt: skip

#: Kinds of lines that somebody prints who gets no further, and how many of them at the end prove it.
WAITS = (
    "waiting", "retry", "connection.refused", "address.unresolved", "rendezvous.failed", "collective.waiting", "collective.absent",
    "process.stalled", "call.timeout",
)  # fmt: skip
WAITED = 2
#: Kinds of failures by which somebody gives up waiting in a collective.
HANGS = ("collective.timeout", "collective.absent", "process.stalled")
#: Kinds of lines by which a run is seen to work: what comes up may hang at once, and prints nothing then.
WORKS = (*ADVANCES, "recovered")


def of(view: View) -> Outcome:
    """Return how a run ended, by the events of it that count."""
    if spoilt := [event for event in view.of(NUMBERS) if "lasts" in event.fields]:
        return Outcome("failed", spoilt[0])
    finish = finished(view)
    if finish is not None:
        return Outcome("finished", finish)
    bad = view.failures
    if not bad:
        return _without_failure(view)
    stop = next((event for event in bad if ends.stops_job(event)), None)
    if stop is None:
        return Outcome("hung" if _is_wait(bad[0]) else "failed", bad[0])
    before = bad[: bad.index(stop)] if view.order_known else []
    if any(_is_wait(event) for event in before[:1]):
        return Outcome("hung", bad[0])
    return Outcome("failed", bad[0]) if any(_is_fault(event) for event in before) else Outcome("stopped", stop)


def _is_wait(event: Event) -> bool:
    """Tell whether a failure is that somebody gave up waiting for others: by then the job had hung for a while."""
    return event.kind in HANGS


def _is_fault(event: Event) -> bool:
    """Tell whether a failure is one of the job itself, behind which a stop is only what its launcher or user did then."""
    return event.role == "root" or (
        event.kind == "exception" and not is_communication(event) and not is_launcher(event)
    )


def _without_failure(view: View) -> Outcome:
    """Return the outcome of a run of which no line speaks of a failure: it goes on, waits, or the input ends before."""
    if spoilt := view.of(NUMBERS):
        return Outcome("failed", spoilt[0])
    if said := view.of("job.finished") + view.telling(end="orderly"):
        return Outcome("finished", said[-1])
    if (bad := _bad_end(view)) is not None:
        return bad
    if leaving := view.telling("end"):
        return Outcome("finished", leaving[0])  # processes ended, and none said that anything was wrong
    if worked := _works(view):
        return Outcome("running", worked[-1])
    if view.observations.recorder:
        return Outcome("running", view.events[-1] if view.events else None)
    known = [event for event in view.events if event.kind not in ("salient", "speaker", "note", "variable", "setting")]
    return Outcome("cut", known[-1]) if known else Outcome("none")


def _works(view: View) -> list[Event]:
    """Return the lines by which the job is seen at work: its steps, or a server that is ready for requests."""
    return [
        event
        for event in view.events
        if event.role == "progress" and (event.kind in WORKS or event.fields.get("engine") == "serving")
    ]


def _bad_end(view: View) -> Outcome | None:
    """Return the outcome of a run whose last words are of trouble that is no failure by itself, None where they are not."""
    table = view.observations.recorder
    # Whoever waits for what all of them have begun only works, unless somebody gave it up.
    if table and any(finding.kind != "entered" or finding.given_up for finding in compare(table).findings):
        return Outcome("hung", view.events[-1] if view.events else None)
    if said := last_words.trouble(view):
        return Outcome("failed", said[-1])
    if not view.order_known:
        return None
    worked = _works(view)
    dumps = view.observations.recorder.sources()
    behind = view.events[view.position(worked[-1]) + 1 if worked else 0 :]
    behind = [event for event in behind if event.source not in dumps]
    stacks = [e for e in behind if e.kind == "exception.frame" and e.fields.get("language", "python") == "python"]
    if stacks:
        return Outcome("hung" if any("frames" in event.fields for event in stacks) else "failed", stacks[-1])
    # Who waited and then came further in its set-up waits no more.
    further = max((n for n, e in enumerate(behind) if e.role == "progress" and e.kind in MOVES), default=-1)
    behind = behind[further + 1 :]
    waits = [event for event in behind if event.kind in WAITS]
    if len(waits) >= WAITED or any("awaits" in event.fields for event in behind):
        return Outcome("hung", behind[-1])
    return None


def finished(view: View) -> Event | None:
    """Return the line by which the run is known to have come to its end in good order, or None.

    Every rank must say so after its last failure, or somebody who speaks for the job; what processes print while they end
    at slightly different times is no failure.
    """
    found, ended = view.of("job.finished"), view.of("process.finished")
    if not view.order_known:
        return _each_file(view, found)
    if ended and len(view.identity.ranks) <= view.count("process.finished") > 1 and not view.count("process.exit"):
        last = view.position(view.failures[-1]) if view.failures else -1
        return ended[-1] if view.position(ended[-1]) > last else None
    if (event := _counted_out(view) or _left_first(view)) is not None:
        return event
    if not found or any(exit_.code != 0 for exit_ in ends.exits_of(view)):
        return None
    said: dict[int | None, int] = {}
    for event in found:
        said[view.rank(event)] = view.position(event)
    if None not in said and not set(view.identity.ranks) <= set(said):
        return None
    last = max(said.values())
    for event in view.failures:
        end = said.get(view.rank(event), said.get(None, last))
        if view.position(event) > end and not _is_farewell(event):
            return None
        if view.position(event) < end and None not in said and _is_unknown_end(view, event):
            return None  # a process that nobody knows failed; it did not say that it finished
    return found[-1]


def _counted_out(view: View) -> Event | None:
    """Return the line by which the work came to its last step, where all trouble is that processes ended behind it."""
    ends_ = [
        e
        for e in view.events
        if (e.kind == "step" or ("step" in e.fields and e.kind == "task.finished")) and _is_last(e)
    ]
    if not ends_ or not view.failures:
        return None
    last = view.position(ends_[-1])
    later = [
        e
        for e in view.events[last + 1 :]
        if e.role == "progress" and (e.source, e.line) != (ends_[-1].source, ends_[-1].line)
    ]
    well = all(view.position(e) > last and _is_farewell(e) and not e.fields.get("exitcode") for e in view.failures)
    return ends_[-1] if well and not later else None


def _left_first(view: View) -> Event | None:
    """Return the line by which processes began to leave, where all trouble came behind it: that is how they leave."""
    worked = [event for event in view.events if event.role == "progress" and event.kind in ADVANCES]
    leaving = view.telling("end")
    if not worked or not leaving or not view.failures:
        return None
    place = view.position(leaving[0])
    if place < view.position(worked[-1]):
        return None
    well = all(
        view.position(e) > place
        and not e.fields.get("exitcode")
        and (_is_farewell(e) or (e.kind == "exception" and is_launcher(e)))
        for e in view.failures
    )
    return leaving[0] if well else None


def _is_last(event: Event) -> bool:
    step, total = event.number("step"), event.number("total")
    return step is not None and total is not None and step >= total > 0


def _is_farewell(event: Event) -> bool:
    return event.kind in FAREWELLS or (event.kind == "exception" and is_communication(event))


def _is_unknown_end(view: View, event: Event) -> bool:
    """Tell whether a line may be the end of a process that the log does not name: an uncaught exception or a root cause."""
    if view.rank(event) is not None or event.context.level in ("I", "INFO"):
        return False
    return event.role == "root" or (event.kind == "exception" and not is_communication(event))


def _each_file(view: View, found: list[Event]) -> Event | None:
    """Return the last word of files that no clock joins, each of which says after its failures that its rank finished."""
    said = {event.source: event.line for event in found}
    if not found or not set(view.identity.ranks) <= set(view.ranks(found)) or ends.exits_of(view):
        return None
    return found[-1] if all(event.line < said.get(event.source, 0) for event in view.failures) else None
