"""Progress: whether the job advanced and finished, and which ranks fell silent, came late or never appeared."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.observations.event import Event
from nccl_triage.story.exceptions import ERROR_LEVELS


def progress_of(case: Case) -> list[Event]:
    """Return the events that show the job advancing."""
    return [e for e in case.events if e.role == "progress"]


@fact("progress.steps", "how many lines showed that training or serving advanced")
def _steps(case: Case) -> Fact | None:
    found = progress_of(case)
    names = {e.signature for e in found}
    return Fact(sum(case.observations.count(name) for name in names), found[-2:]) if found else None


@fact("job.failed", "how many lines report a failure, as cause or consequence")
def _failed(case: Case) -> Fact | None:
    found = case.failures
    return Fact(len(found), found[:1]) if found else None


@fact("progress.before_failure", "training steps (or similar) precede the first sign of failure")
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
    blames=("exited while the others continued", "其他 rank 仍在运行时它已退出"),
)
def _early(case: Case) -> Fact | None:
    bad = case.failures
    failed = {r for e in bad if (r := case.rank(e)) is not None}
    known = set(case.identity.ranks)
    # A line that names the rank which left was printed by another rank.
    left = [event for event in case.of("job.finished", "loop.left") if "rank" not in event.fields]
    for found in (left, case.having("task.finished", work="phase")):
        if found is not left:
            # The phase must be one that all ranks began.
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


@fact("progress.stalled_ranks", "ranks that were alive, had not finished and reported no error while others timed out")
def _stalled(case: Case) -> Fact | None:
    timed_out = case.fact("collective.timed_out_ranks")
    silent = case.value("progress.silent_ranks")
    if timed_out is None or not silent or case.fact("mismatch.crossed_ranks") is not None:
        return None  # where some wait for each other, others only wait for them
    gone: set[int] = set()
    for name in ("process.clean_exit_ranks", "progress.finished_early_ranks", "process.killed_ranks", "process.crashed_ranks",
                 "process.aborted_ranks", "exception.ranks"):  # fmt: skip
        gone |= set(case.value(name) or [])
    ranks = [r for r in silent if r not in gone and r in case.identity.ranks]
    if not case.presence.stand_out(ranks):
        return None
    return (
        Fact(ranks, [*timed_out.events[:2], *[e for e in case.events if case.rank(e) in ranks][-1:]]) if ranks else None
    )


@fact("progress.entered_late_ranks", "ranks that entered the collective only after another rank had given up waiting")
def _entered_late(case: Case) -> Fact | None:
    # A driver may report the timeout first, for one of its ranks.
    gave_up = case.of("collective.timeout")
    if not gave_up or not case.order_known:
        return None
    first = case.position(gave_up[0])
    late: dict[int, Event] = {}
    early: set[int] = set()
    for event in case.of("collective.entered"):
        rank = case.rank(event)
        if rank is None:
            continue
        if case.position(event) < first:
            early.add(rank)
        elif rank != case.rank(gave_up[0]):
            late.setdefault(rank, event)
    ranks = sorted(set(late) - early)
    return Fact(ranks, [gave_up[0], *late.values()][:3]) if ranks and early else None


def _of_nccl(case: Case, kind: str) -> list[Event]:
    return [event for event in case.of(kind) if event.context.program == "nccl"]


@fact(
    "progress.vanished_ranks",
    "ranks whose NCCL communicator came up and which, unlike the others, never aborted or destroyed it",
)
def _vanished(case: Case) -> Fact | None:
    up = set(case.ranks(_of_nccl(case, "communicator.ready")))
    ended = set(case.ranks(_of_nccl(case, "communicator.closed")))
    closed = [event for event in _of_nccl(case, "connection.lost") if "peer" in event.fields]
    ranks = sorted(up - ended)
    if not closed or not ended or not ranks or len(ranks) >= len(ended):
        return None
    return Fact(ranks, [*[e for e in case.events if case.rank(e) in ranks][-1:], *closed[:2]])


@fact(
    "progress.silent_ranks",
    "ranks without any error line of their own while others report errors",
    blames=("reported no error while the others timed out", "其他 rank 超时，它没有任何报错"),
)
def _silent(case: Case) -> Fact | None:
    if case.observations.interruption is not None:
        return None
    known = case.presence.known
    own = [e for e in case.failures if not e.signature.startswith(("torchelastic.", "slurm.", "deepspeed."))]
    loud = {r for e in own if (r := case.rank(e)) is not None} | _last_error_records(case)
    silent = sorted(known - loud)
    if not loud or not silent or len(silent) > max(1, len(known) // 2):
        return None
    return Fact(silent, [e for e in case.events if case.rank(e) in silent][-2:])


def _last_error_records(case: Case) -> set[int]:
    """Return the ranks that logged an error after their last step, or after the job's where they print none."""
    steps: dict[int | None, int] = {}
    for event in progress_of(case):
        steps[None] = steps[case.rank(event)] = case.position(event)
    records = [e for e in case.of("salient", "speaker") if e.context.level in ERROR_LEVELS]
    return {
        rank
        for e in records
        if (rank := case.rank(e)) is not None and case.position(e) > steps.get(rank, steps.get(None, -1))
    }


@fact(
    "progress.lost_host_ranks",
    "ranks of a host that, launcher included, prints nothing once other hosts' ranks fail",
    blames=(
        "its whole host went silent when the others lost their connections",
        "其他 rank 连接中断时，它所在的整台主机陷入沉默",
    ),
)
def _lost_host(case: Case) -> Fact | None:
    silent = set(case.value("progress.silent_ranks") or [])
    by_host: dict[str, list[int]] = {}
    for rank, info in case.identity.ranks.items():
        if info.host:
            by_host.setdefault(info.host, []).append(rank)
    if not silent or len(by_host) < 2 or not case.order_known:
        return None
    first = case.position(case.failures[0])
    lost = [host for host, ranks in by_host.items() if len(ranks) > 1 and silent.issuperset(ranks)]
    heard = {case.host(event) for event in case.events if case.position(event) > first}
    lost = [host for host in lost if host not in heard]
    ranks = sorted(rank for host in lost for rank in by_host[host])
    last = [event for event in case.events if case.host(event) in lost][-1:]
    return Fact(ranks, [*last, *case.failures[:1]]) if ranks else None


@fact("progress.missing_ranks", "ranks of the world that printed nothing at all", blames=("never appeared", "从未出现"))
def _missing(case: Case) -> Fact | None:
    if case.observations.interruption is not None:
        return None
    world = case.identity.world_size
    if not world or world < 2 or world > 65_536 or len(case.identity.ranks) < 2 or case.presence.by_file:
        return None
    missing = sorted(set(range(world)) - set(case.identity.ranks))
    if not missing or len(missing) > world // 2:
        return None
    return Fact(missing, [])


@fact(
    "progress.init_missing_ranks",
    "ranks of the communicator that never printed Init START while others did",
    blames=("never appeared", "从未出现"),
)
def _init_missing(case: Case) -> Fact | None:
    if case.observations.interruption is not None:
        return None
    started = case.having("communicator.starting", "nranks", "busid")  # every rank prints its own line
    ranks = set(case.ranks(started))
    sizes = [int(n) for e in started if (n := e.number("nranks")) is not None]
    if not ranks or not sizes or case.of("communicator.ready"):
        return None
    size = max(sizes)
    if size > 65_536:
        return None
    # A rank that printed another line of NCCL, or that failed, was there.
    ranks |= set(case.ranks(e for e in case.events if e.is_failure or e.signature.startswith("nccl.")))
    missing = sorted(set(range(size)) - ranks)
    # A log with few of many ranks is only a part of the output and tells nothing about the others.
    if not missing or len(missing) > 2 * len(ranks):
        return None
    return Fact(missing, started[:2])
