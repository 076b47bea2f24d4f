"""Did the job advance, when did it stop, did it go on after an error, who stopped early."""

from __future__ import annotations

from itertools import pairwise

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.diagnosis.facts.exceptions import is_communication
from nccl_triage.events import Event
from nccl_triage.numbers import whole

#: Lines of processes that end at slightly different times, after the work: consequences of that, no failures.
_FAREWELLS = (
    "rendezvous.failed",
    "connection.lost",
    "connection.refused",
    "process.lost",
    "process.stopped",
    "process.signalled",
    "teardown",
)


def progress_of(case: Case) -> list[Event]:
    """Return the events that show the job advancing."""
    return [e for e in case.events if e.role == "progress"]


@fact("progress.steps", "how many lines showed that training or serving advanced")
def _steps(case: Case) -> Fact | None:
    found = progress_of(case)
    names = {e.signature for e in found}
    return Fact(sum(case.observations.count(name) for name in names), found[-2:]) if found else None


@fact("job.failed", "how many lines speak of a failure, as its cause or as a consequence")
def _failed(case: Case) -> Fact | None:
    found = case.failures
    return Fact(len(found), found[:1]) if found else None


@fact("progress.before_failure", "training steps (or their like) stand before the first sign of failure")
def _before(case: Case) -> Fact | None:
    before: list[Event] = []
    if not case.failures:
        return None
    for events in case.scopes():
        first = next((i for i, e in enumerate(events) if e.is_failure), None)
        before += [e for e in events[: first or 0] if e.role == "progress" and e.kind != "setup"]
    return Fact(bool(before), before[-1:]) if progress_of(case) else None


def _taken_down(case: Case) -> bool:
    """Tell whether a backend takes its processes down: progress of other ranks that comes later is no recovery."""
    return bool(case.having("collective.timeout", "seq", by="watchdog") or case.of("process.abort"))


@fact("progress.resumed", "the job went on after its last error line")
def _resumed(case: Case) -> Fact | None:
    found, bad = progress_of(case), case.failures
    if not found or not bad:
        return None
    after: list[Event] = []
    for events in case.scopes():
        # Without a common order every source that shows a failure must have gone on by itself.
        last = max((i for i, e in enumerate(events) if e.is_failure), default=None)
        if last is not None:
            went_on = [e for e in events[last + 1 :] if e.role == "progress"]
            if not went_on:
                return Fact(False, [])
            after += went_on
    finished = any(e.kind == "job.finished" for e in after)
    if not finished and max(bad, key=case.position).kind == "process.signalled":
        return Fact(False, after[:2])  # what comes after a stop signal is the way out
    if _taken_down(case) and not finished and not case.of("job.restarted"):
        return Fact(False, after[:2])
    over = any(e.kind == "recovered" for e in after)
    return Fact(len(after) >= 2 or finished or over, after[:2])


@fact(
    "progress.ends_waiting",
    "after all progress processes say again and again that they wait for others or for resources",
)
def _ends_waiting(case: Case) -> Fact | None:
    found = case.of("waiting")
    if case.count("waiting") < 3 or not case.order_known:
        return None
    last = max((case.position(event) for event in progress_of(case)), default=-1)
    after = [event for event in found if case.position(event) > last]
    return Fact(True, after[-2:]) if len(after) >= 2 else None


@fact("progress.finished", "the job says that it finished")
def _finished(case: Case) -> Fact | None:
    found = case.of("job.finished")
    return Fact(True, found[-2:]) if found else None


def _unknown_end(case: Case, event: Event) -> bool:
    """Tell whether a line may be the end of a process that the log does not name: an uncaught exception or a root cause."""
    if case.rank(event) is not None or event.context.level in ("I", "INFO"):
        return False
    return event.role == "root" or (event.kind == "exception" and not is_communication(event))


def _each_file_ended(case: Case, found: list[Event]) -> Fact | None:
    """Return whether each file with a failure says after it that its rank finished, where no clock joins the files."""
    finished = {event.source: event.line for event in found}
    if not found or not set(case.identity.ranks) <= set(case.ranks(found)) or case.value("process.exits"):
        return None
    after = all(event.line < finished.get(event.source, 0) for event in case.failures)
    return Fact(True, found[-2:]) if after else None


def _engine_left(case: Case) -> Fact | None:
    """Return whether the only trouble is vLLM's monitor, which missed its engine while a finished script ended.

    A program that still needed the engine would raise an exception.
    """
    done, died = case.having("task.finished", "step", "total"), case.failures
    if not done or not died:
        return None
    monitor = all(
        event.kind == "process.lost"
        and str(event.fields.get("name") or "").startswith("EngineCore")
        and not event.fields.get("exitcode")
        for event in died
    )
    last = max(done, key=case.position)
    later = [event for event in progress_of(case) if case.position(event) > case.position(last)]
    went_on = any((event.source, event.line) != (last.source, last.line) for event in later)
    first = min(case.position(event) for event in died)
    return Fact(True, [last]) if monitor and not went_on and case.position(last) < first else None


@fact(
    "progress.ended_well",
    "every rank says that it finished, after its last failure or with nothing but farewells after it",
)
def _ended_well(case: Case) -> Fact | None:
    found, ended = case.of("job.finished"), case.of("process.finished")
    if not case.order_known:
        return _each_file_ended(case, found)
    if (left := _engine_left(case)) is not None:
        return left
    if ended and len(case.identity.ranks) <= case.count("process.finished") > 1 and not case.count("process.exit"):
        return Fact(case.position(ended[-1]) > case.position(case.failures[-1]) if case.failures else True, ended[-2:])
    if not found:
        return None
    if any(ended.code not in (0, None) for ended in case.value("process.exits") or []):
        return Fact(False)
    finished: dict[int | None, int] = {}
    for event in found:
        finished[case.rank(event)] = case.position(event)
    if not set(case.identity.ranks) <= set(finished):
        return Fact(False)
    last = max(finished.values())
    if None not in finished and any(_unknown_end(case, event) for event in case.failures):
        return Fact(False)  # a process that nobody knows failed; it did not say that it finished
    for event in case.failures:
        end = finished.get(case.rank(event), last)
        farewell = event.kind in _FAREWELLS or (event.kind == "exception" and is_communication(event))
        if case.position(event) > end and not farewell:
            return Fact(False)
    return Fact(True, found[-2:])


@fact("progress.exhausted_ranks", "ranks that DDP's join() names as out of batches")
def _exhausted(case: Case) -> Fact | None:
    found = case.having("loop.left", "rank")
    ranks = {rank for event in found if (rank := whole(event.fields["rank"])) is not None}
    return Fact(sorted(ranks), found[:2]) if ranks else None


@fact(
    "progress.finished_early_ranks",
    "ranks that say they finished or ran out of data while others failed or waited afterwards",
)
def _early(case: Case) -> Fact | None:
    bad = case.failures
    failed = {r for e in bad if (r := case.rank(e)) is not None}
    known = set(case.identity.ranks)
    # A line that names the rank which left is no word of that rank's own.
    left = [event for event in case.of("job.finished", "loop.left") if "rank" not in event.fields]
    for found in (left, case.having("task.finished", work="phase")):
        if found is not left:
            # Only a phase that the others began too and did not end.
            began = set(case.ranks(case.having("task.started", work="phase")))
            found = [e for e in found if began >= known and (r := case.rank(e)) is not None and r in began]
        ranks = set(case.ranks(found))
        if ranks and failed - ranks and not ranks >= known:
            return Fact(sorted(ranks), found[:2])
    return None


@fact("progress.skipped_ranks", "ranks that say they left out a step while others did not")
def _skipped(case: Case) -> Fact | None:
    found = case.of("step.skipped")
    ranks = set(case.ranks(found))
    if not ranks or ranks >= set(case.identity.ranks):
        return None
    return Fact(sorted(ranks), found[:2])


@fact("progress.slowing", "iterations take longer and longer: the ratio of the last to the first of at least four")
def _slowing(case: Case) -> Fact | None:
    found = [
        (value, e)
        for e in case.having("step", measures="iteration-time")
        if (value := e.number("value")) is not None and value > 0
    ]
    if len(found) < 4:
        return None
    values = [value for value, _ in found]
    ratio = values[-1] / values[0]
    if ratio < 1.05 or any(b < a * 0.995 for a, b in pairwise(values)):
        return None
    return Fact(round(ratio, 3), [found[0][1], found[-1][1]])


@fact("progress.last_step_rank_gap", "ranks whose last step is behind that of the others")
def _gap(case: Case) -> Fact | None:
    last: dict[int, tuple[float, Event]] = {}
    for event in progress_of(case):
        rank, step = case.rank(event), event.number("step")
        step = event.number("iter") if step is None else step
        if rank is not None and step is not None:
            last[rank] = (step, event)
    if len(last) < 3:
        return None
    top = max(step for step, _ in last.values())
    behind = {rank: event for rank, (step, event) in last.items() if step < top}
    if not behind or len(behind) * 2 > len(last):
        return None
    return Fact(sorted(behind), list(behind.values())[:3])


@fact(
    "progress.p2p_off_helped",
    "a run whose GPUs talked over P2P failed or was stopped, and a later one with NCCL_P2P_DISABLE=1 did not",
)
def _p2p_off(case: Case) -> Fact | None:
    off = case.having("variable", name="NCCL_P2P_DISABLE", value="1")
    over = case.having("transport.chosen", transport="P2P")
    if not off or not over or not case.order_known or case.position(over[0]) > case.position(off[0]):
        return None
    bad = [case.position(e) for e in case.failures]
    failed = [place for place in bad if case.position(over[0]) < place < case.position(off[0])]
    if not failed or max(bad) > case.position(off[0]):
        return None
    return Fact(True, [over[0], off[0]])


@fact("progress.stalled_after_engine", "an inference engine came up, no error and no training step follows")
def _stalled_engine(case: Case) -> Fact | None:
    up = case.telling(engine="up")
    if not up or case.failures:
        return None
    last = case.position(up[-1])
    after = [
        event
        for event in case.events
        if case.position(event) > last
        and (
            event.fields.get("engine") == "serving"
            or (event.role == "progress" and not event.signature.startswith("vllm."))
        )
    ]
    return Fact(not after, up[-2:])
