"""Which ways to find a culprit suit a family of causes, in the order in which they are tried.

A word with a dot is a fact whose ranks or hosts are to blame (``fact(..., blames=)``), any other a method of the
register.
"""

from __future__ import annotations

#: Of a cause that is nobody's fault.
NOBODY = ("nobody",)
#: Who ended first.
_EXITS = ("process.killed_ranks", "process.crashed_ranks", "process.first_exit_ranks", "process.aborted_ranks")
#: Ways that name whoever said it or ended first: where all said the same, that is chance.
BY_SPEAKER = frozenset({"exception", "evidence", "evidence-host", "dead-actor", "lone-host", *_EXITS})

#: Ways that name a rank: not where the whole host is at fault.
BY_RANK = frozenset({"evidence", "exception", "named-rank", "named-gpu", *_EXITS})
#: Of these, those that name whom a line names.
NAMED = frozenset({"named-rank", "named-gpu"})

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
        "stands", "exception.checkpoint_ranks", "named-rank", "bad-numbers", "exception", "dead-actor", "evidence", "named-gpu", "lone-host", *_EXITS, "evidence-host",
    ),
    "hardware": ("device", "recorder.broken_gpu_ranks", "named-rank", "evidence", "named-gpu", "lone-host", "evidence-host", "named-host", *_EXITS),
    "host": (
        "device", "lost-node", "progress.lost_host_ranks", "process.terminated_ranks", "rendezvous.named_tasks", "dead-actor", "exception", "named-rank", "victim",
        "evidence", "process.crashed_ranks", "process.first_exit_ranks", "named-gpu", "named-host", "evidence-host", "ras.silent_ranks", "collective.absent_ranks", "progress.silent_ranks", *_EXITS,
    ),
}  # fmt: skip
