"""Did the job advance, when did it stop, did it go on after an error, who stopped early, who was busy."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.events import Event

FINISHED = ("training.finished*", "ray.job_succeeded", "nccl.comm_teardown_clean", "deepspeed.process_exits_ok")
LONG_TASK = ("training.long_task*",)
ENTERED = ("training.collective_entered",)


def _progress(case: Case) -> list[Event]:
    return [e for e in case.events if e.role == "progress"]


def failures(case: Case) -> list[Event]:
    """Return the events that speak of a failure."""
    return [e for e in case.events if e.role in ("root", "cascade")]


@fact("progress.steps", "how many lines showed that training or serving advanced")
def _steps(case: Case) -> Fact | None:
    found = _progress(case)
    names = {e.signature for e in found}
    return Fact(sum(case.observations.count(name) for name in names), found[-2:]) if found else None


@fact("progress.before_failure", "training steps (or their like) stand before the first sign of failure")
def _before(case: Case) -> Fact | None:
    found, bad = _progress(case), failures(case)
    if not found or not bad:
        return None
    first = min(case.position(e) for e in bad)
    before = [e for e in found if case.position(e) < first]
    return Fact(bool(before), before[-1:])


@fact("progress.resumed", "the job went on after its last error line")
def _resumed(case: Case) -> Fact | None:
    found, bad = _progress(case), failures(case)
    if not found or not bad:
        return None
    last = max(case.position(e) for e in bad)
    after = [e for e in found if case.position(e) > last]
    return Fact(len(after) >= 2 or any(e in after for e in case.of(*FINISHED)), after[:2])


@fact("progress.finished", "the job says that it finished")
def _finished(case: Case) -> Fact | None:
    found = case.of(*FINISHED)
    return Fact(True, found[-2:]) if found else None


@fact("progress.finished_early_ranks", "ranks that say they finished while others failed or waited afterwards")
def _early(case: Case) -> Fact | None:
    found, bad = case.of(*FINISHED), failures(case)
    ranks = set(case.ranks(found))
    others = {r for e in bad if (r := case.rank(e)) is not None} - ranks
    known = set(case.identity.ranks)
    if not ranks or not others or ranks >= known:
        return None
    return Fact(sorted(ranks), found[:2])


@fact("progress.long_task_ranks", "ranks whose last words are about long work (evaluation, tokenising, saving, loading)")
def _long_task(case: Case) -> Fact | None:
    bad = failures(case)
    first_bad = min((case.position(e) for e in bad), default=len(case.events))
    ranks: list[int] = []
    events: list[Event] = []
    for event in case.of(*LONG_TASK):
        if case.position(event) > first_bad:
            continue
        rank = case.rank(event)
        later = [
            e for e in _progress(case)
            if case.rank(e) == rank and first_bad > case.position(e) > case.position(event) and e.signature not in case.signatures(LONG_TASK[0])
        ]  # fmt: skip
        if not later:
            events.append(event)
            if rank is not None and rank not in ranks:
                ranks.append(rank)
    return Fact(ranks, events[:3]) if events else None


@fact("progress.last_step_rank_gap", "ranks whose last step is behind that of the others")
def _gap(case: Case) -> Fact | None:
    last: dict[int, tuple[float, Event]] = {}
    for event in _progress(case):
        rank, step = case.rank(event), event.number("step") or event.number("iter")
        if rank is not None and step is not None:
            last[rank] = (step, event)
    if len(last) < 3:
        return None
    top = max(step for step, _ in last.values())
    behind = {rank: event for rank, (step, event) in last.items() if step < top}
    if not behind or len(behind) * 2 > len(last):
        return None
    return Fact(sorted(behind), list(behind.values())[:3])


@fact("progress.entered_ranks", "ranks that say they entered the collective, where others do not")
def _entered(case: Case) -> Fact | None:
    found = case.of(*ENTERED)
    return Fact(case.ranks(found), found[:3]) if found else None


@fact("progress.not_entered_ranks", "ranks that were ready and never entered the collective that others entered")
def _not_entered(case: Case) -> Fact | None:
    entered = set(case.value("progress.entered_ranks") or [])
    ready = {r for e in _progress(case) if (r := case.rank(e)) is not None} | set(case.identity.ranks)
    absent = sorted(ready - entered)
    if not entered or not absent or len(absent) > len(entered):
        return None
    events = [e for e in case.events if case.rank(e) in absent]
    return Fact(absent, events[-2:])


@fact("progress.silent_ranks", "ranks without any error line of their own while others report errors")
def _silent(case: Case) -> Fact | None:
    world = case.identity.world_size
    known = set(case.identity.ranks) | (set(range(world)) if world and world <= 4096 else set())
    own = [e for e in failures(case) if not e.signature.startswith(("torchelastic.", "slurm.", "deepspeed."))]
    loud = {r for e in own if (r := case.rank(e)) is not None}
    silent = sorted(known - loud)
    if not loud or not silent or len(silent) > max(1, len(known) // 2):
        return None
    return Fact(silent, [e for e in case.events if case.rank(e) in silent][-2:])


@fact("progress.missing_ranks", "ranks of the world that printed nothing at all")
def _missing(case: Case) -> Fact | None:
    world = case.identity.world_size
    if not world or world < 2 or world > 65_536 or len(case.identity.ranks) < 2:
        return None
    missing = sorted(set(range(world)) - set(case.identity.ranks))
    if not missing or len(missing) > world // 2:
        return None
    return Fact(missing, [])


@fact("progress.init_missing_ranks", "ranks of the communicator that never printed Init START while others did")
def _init_missing(case: Case) -> Fact | None:
    started = case.of("nccl.init_start")
    ranks = set(case.ranks(started))
    sizes = [int(n) for e in started if (n := e.number("nranks")) is not None]
    if not ranks or not sizes or case.of("nccl.init_complete"):
        return None
    size = max(sizes)
    missing = sorted(set(range(size)) - ranks)
    return Fact(missing, started[:2]) if missing and size <= 65_536 else None


@fact("progress.loss_nan", "a loss or gradient norm became NaN or infinite")
def _nan(case: Case) -> Fact | None:
    found = case.of("training.loss_nan*", "huggingface.loss_nan", "megatron.nan_*", "training.nan_detected*")
    return Fact(True, found[:3]) if found else None


@fact("progress.stalled_after_engine", "an inference engine came up, no error and no training step follows")
def _stalled(case: Case) -> Fact | None:
    up = case.of("vllm.init_engine", "vllm.core_engine_ready", "vllm.v1_engine_start")
    if not up or failures(case):
        return None
    last = case.position(up[-1])
    after = [e for e in _progress(case) if case.position(e) > last and not e.signature.startswith("vllm.")]
    return Fact(not after, up[-2:])
