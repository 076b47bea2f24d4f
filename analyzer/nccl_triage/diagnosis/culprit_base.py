"""What all culprit methods need: the culprit, the register of methods, and the order in which a family tries them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.weigh import Contribution, Weighed
from nccl_triage.engine.schema import WEIGHTS
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event
from nccl_triage.story.devices import is_kernel


@dataclass(slots=True)
class Culprit:
    """A rank, process, GPU or host that is to blame, and why."""

    rank: int | None
    host: str | None
    address: str | None
    pid: int | None
    gpu: int | None
    why: dict[str, str]


#: A larger number of suspects is a property of the job: none of them is a culprit.
MAX_CULPRITS = 8

Method = Callable[[Case, Weighed], list[Culprit]]
METHODS: dict[str, Method] = {}


def method(name: str) -> Callable[[Method], Method]:
    """Register a culprit method."""

    def register(function: Method) -> Method:
        METHODS[name] = function
        return function

    return register


#: What a cause lists under ``culprit`` if it is nobody's fault.
NOBODY = ("nobody",)
#: Facts that name the processes which ended first.
EXITS = ("process.killed_ranks", "process.crashed_ranks", "process.first_exit_ranks", "process.aborted_ranks")
#: Methods and facts that name whoever spoke or ended first. If all ranks said the same, that is chance.
BY_SPEAKER = frozenset({"exception", "evidence", "evidence-host", "dead-actor", "lone-host", *EXITS})

#: Methods and facts that name a rank. They are ruled out if the whole host is at fault.
BY_RANK = frozenset({"evidence", "exception", "named-rank", "named-gpu", *EXITS})
#: Those of them that name the rank or GPU in the text of a line.
NAMED = frozenset({"named-rank", "named-gpu"})

#: Family of causes -> the methods and facts that are tried, in this order. A name with a dot is a fact whose ranks or
#: hosts are to blame (``fact(..., blames=)``); any other is a method.
FAMILIES: dict[str, tuple[str, ...]] = {
    "collective": (
        "stands",
        "recorder.mismatch_ranks", "recorder.circle_ranks", "recorder.late_ranks", "recorder.slow_surely", "recorder.slow_ranks",
        "recorder.missing_ranks", "recorder.ahead_ranks", "recorder.unmet_ranks", "recorder.lagging_ranks",
        "progress.odd_amount_ranks", "progress.unserved_ranks", "mismatch.unmet_pair",
        "progress.finished_early_ranks", "mismatch.culprit_ranks", "collective.shape_mismatch",
        "collective.awaited_ranks", "collective.absent_ranks", "rendezvous.named_tasks",
        "named-rank",
        "progress.silent_ranks", "pace.slow_ranks", "pace.reported_ranks", "progress.long_task_ranks",
        "main-rank", "stalled-actor", "collective.left_out_ranks", "collective.odd_ranks",
        "exception", "evidence", "silent-host", "evidence-host",
    ),
    "network": (
        "rendezvous.named_tasks", "rendezvous.odd_world_ranks",
        "rendezvous.barrier_missing_ranks",
        "rendezvous.stranded_ranks", "rendezvous.stranded_hosts", "collective.awaited_ranks",
        "recorder.broken_nic_ranks",
        "loopback-announcer", "two-networks",
        "lone-host", "odd-host", "pair", "named-rank", "evidence", "evidence-host", "named-host", "progress.init_missing_ranks", "progress.missing_ranks", "listener",
    ),
    "configuration": ("exception", "dead-actor", "odd-host", "lone-host", "evidence", "evidence-host", "named-host"),
    "application": (
        "stands", "exception.checkpoint_ranks", "named-rank", "bad-numbers", "exception", "dead-actor", "evidence", "named-gpu", "lone-host", *EXITS, "evidence-host",
    ),
    "hardware": (
        "device", "recorder.broken_gpu_ranks", "named-rank", "recorder.unfinished_ranks", "collective.unfinished_ranks", "evidence", "named-gpu",
        "lone-host", "evidence-host", "named-host", *EXITS,
    ),
    "host": (
        "device", "lost-node", "progress.lost_host_ranks", "process.terminated_ranks", "rendezvous.named_tasks", "dead-actor", "exception", "named-rank", "victim",
        "evidence", "process.crashed_ranks", "process.first_exit_ranks", "named-gpu", "named-host", "evidence-host", "ras.silent_ranks", "collective.absent_ranks", "progress.silent_ranks", *EXITS,
    ),
}  # fmt: skip


def of_rank(case: Case, rank: int, en: str, zh: str) -> Culprit:
    """Return a rank as a culprit with its known host, process and GPU; the texts say why it is to blame."""
    info = case.identity.ranks.get(rank)
    pid = next(iter(info.pids)) if info is not None and len(info.pids) == 1 else None
    return Culprit(
        rank=rank,
        host=case.stated_hosts.get(rank) or (info.host if info is not None else None),
        address=info.address if info is not None else None,
        pid=pid,
        gpu=info.gpu if info is not None else None,
        why={"en": en, "zh": zh},
    )


def dead_rank(case: Case, event: Event) -> int | None:
    """Return the rank of the process that a line is about (by a pid in its text), not of the one that printed it."""
    pid = whole(event.fields.get("pid"))
    if is_kernel(event):
        return case.devices.rank_of_pid(pid, case.host(event))
    return case.identity.rank_of_pid(pid, case.host(event)) if pid is not None else None


def _sole_failing_rank(case: Case) -> int | None:
    """Return the rank of the one process that fails without a rank, if a single rank fails: they are the same."""
    failed = case.failures
    ranks = set(case.ranks(failed))
    pids = {event.context.pid for event in failed if case.rank(event) is None}
    return ranks.pop() if len(ranks) == 1 and len(pids) == 1 and None not in pids else None


def of_event(case: Case, event: Event, en: str, zh: str) -> Culprit:
    """Return the process that a line is about, or else the one that printed it, as a culprit."""
    rank = dead_rank(case, event)
    rank = rank if rank is not None else case.rank(event)
    if rank is None and event.context.pid is not None and event.role != "context":
        rank = _sole_failing_rank(case)
    if rank is not None:
        found = of_rank(case, rank, en, zh)
        found.host = found.host or case.host(event)
        return found
    context = event.context
    return Culprit(None, case.host(event), context.address, context.pid, context.gpu, {"en": en, "zh": zh})


def by_weight(weighed: Weighed) -> list[Contribution]:
    """Return the evidence of a cause, heaviest first."""
    return sorted(weighed.rule_items, key=lambda item: -WEIGHTS[item.evidence.weight])


def strongest(weighed: Weighed) -> list[Event]:
    """Return the lines behind the evidence of a cause, heaviest evidence first."""
    return [event for item in by_weight(weighed) for event in item.events]
