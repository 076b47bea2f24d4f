"""Did the job advance, when did it stop, did it go on after an error, who stopped early."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.observations.event import Event


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


@fact("progress.finished", "the job says that it finished")
def _finished(case: Case) -> Fact | None:
    found = case.of("job.finished")
    return Fact(True, found[-2:]) if found else None


@fact(
    "progress.finished_early_ranks",
    "ranks that say they finished or ran out of data while others failed or waited afterwards",
    blames=("left while the others went on", "其他 rank 仍在运行时它已离开"),
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


@fact(
    "progress.p2p_off_helped",
    "a run whose GPUs talked over P2P failed or was stopped, and a later one with NCCL_P2P_DISABLE=1 did not",
)
def _p2p_off(case: Case) -> Fact | None:
    over: Event | None = None
    for run in case.story.runs:
        off = [
            e
            for e in run.printed
            if e.kind == "variable" and e.fields.get("name") == "NCCL_P2P_DISABLE" and e.fields.get("value") == "1"
        ]
        if off and over is not None and not run.outcome.is_bad:
            return Fact(True, [over, off[0]])
        talked = [e for e in run.printed if e.kind == "transport.chosen" and e.fields.get("transport") == "P2P"]
        if talked and not off and run.outcome.is_bad:
            over = talked[0]
    return None


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
