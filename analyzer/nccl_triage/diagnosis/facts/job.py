"""The job itself: its size, what kind of log it left, and its batch sizes."""

from __future__ import annotations

from math import prod

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.observations.event import Event


@fact("job.world_size", "the number of ranks of the job")
def _world(case: Case) -> Fact | None:
    return Fact(case.identity.world_size, []) if case.identity.world_size else None


@fact("job.ranks_seen", "how many different ranks printed something")
def _seen(case: Case) -> Fact | None:
    return Fact(len(case.identity.ranks), [])


@fact("job.pids", "the pids that ranks of the job are known by, as a list of texts")
def _pids(case: Case) -> Fact | None:
    return Fact([str(pid) for info in case.identity.ranks.values() for pid in sorted(info.pids)], [])


@fact("job.filtered", "the input looks filtered by grep: tracebacks and other programs' lines are missing")
def _filtered(case: Case) -> Fact | None:
    return Fact(any("filtered" in note for note in case.observations.notes), [])


@fact("job.rank_files_alone", "only files of single ranks are in the input, and they end while the ranks work")
def _rank_files_alone(case: Case) -> Fact | None:
    decision = case.story.outcome.decision
    return Fact(True, list(decision.events)) if decision.rule == "outcome.rank-files-alone" else None


@fact("job.clockless", "most lines that report a failure have no timestamp")
def _clockless(case: Case) -> Fact | None:
    bad = [event for event in case.events if event.is_failure]
    bare = [event for event in bad if event.context.time is None]
    return Fact(True, bare[:1]) if len(bare) * 2 > len(bad) else None


def _launched(case: Case) -> int | None:
    """Return the number of processes that the launch command or the launcher's report asks for."""
    asked = [
        int(per_node * (event.number("nnodes") or 1))
        for event in case.of("job.launched")
        if (per_node := event.number("nproc_per_node") or event.number("world"))
    ]
    if asked:
        return max(asked)
    numbers = [event.number("local_rank") for event in case.having("process.exit", "local_rank", "root")]
    highest = max((int(number) for number in numbers if number is not None), default=0)
    return highest + 1 if highest > 0 else None


# -- batch sizes: train_batch_size must be micro_batch_per_gpu * gradient_acc_step * world_size ------------------------


def _batch(case: Case) -> tuple[Event, list[int]] | None:
    for event in case.having("configuration", "train", "micro", "acc", "world"):
        numbers = [event.number(name) for name in ("train", "micro", "acc", "world")]
        if all(number is not None for number in numbers):
            return event, [int(number) for number in numbers if number is not None]
    return None


@fact("batch.numbers", "train batch, micro batch, accumulation steps and world size of the failed check, as text")
def _numbers(case: Case) -> Fact | None:
    found = _batch(case)
    if found is None:
        return None
    event, (train, micro, accumulation, world) = found
    product = micro * accumulation * world
    sign = "!=" if train != product else "="
    return Fact(f"{train} {sign} {micro} * {accumulation} * {world} (= {product})", [event])


@fact("batch.valid_sizes", "the nearest batch sizes that the failed check accepts, the nearest first, as text")
def _valid(case: Case) -> Fact | None:
    found = _batch(case)
    if found is None:
        return _multiples(case)
    event, (train, micro, accumulation, world) = found
    step = micro * world
    if step <= 0:
        return None
    # A total that divides evenly stays: its accumulation steps are wrong, or the total is that of the other numbers.
    sizes = _around(train, step) if train % step or not train else [train, micro * accumulation * world]
    shown = [f"{size} (= {micro} * {size // step} * {world})" for size in dict.fromkeys(sizes) if size > 0]
    return Fact(", ".join(shown), [event])


def _around(number: int, step: int) -> list[int]:
    """Return the multiples of a step below and above a number, the nearer one first; 0 is none."""
    lower = number // step * step
    return sorted((size for size in (lower, lower + step) if size), key=lambda size: abs(size - number))


#: The batch that is refused, and the sizes whose product it must be a multiple of.
_DIVIDED = (("gbs", ("mbs", "dp")), ("batch", ("min",)), ("size", ("chunk",)))


def _multiples(case: Case) -> Fact | None:
    """Return the multiples next to a batch that cannot be split evenly."""
    for batch, sizes in _DIVIDED:
        for event in case.having("configuration", batch, *sizes):
            numbers = [event.number(name) for name in (batch, *sizes)]
            if all(number is not None and number > 0 for number in numbers):
                number, *parts = (int(number) for number in numbers if number is not None)
                return Fact(", ".join(map(str, _around(number, prod(parts)))), [event])
    return None


@fact("batch.world_is_one", "the check saw world size 1 although the job has several processes")
def _world_is_one(case: Case) -> Fact | None:
    found = _batch(case)
    if found is None or found[1][3] != 1:
        return None
    event, (train, micro, accumulation, _) = found
    launched = _launched(case) or case.identity.world_size
    implied = train // (micro * accumulation) if micro * accumulation and train % (micro * accumulation) == 0 else 0
    if (launched and launched > 1) or implied in (2, 4, 8, 16, 32, 64):
        return Fact(implied or launched, [event])
    return None
