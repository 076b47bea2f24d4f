"""Ranks that never come, come late, or wait for long work that everybody expects: the time-out family."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from corpus.scenarios.build import bare_ranks, torchrun
from corpus.scenarios.recorder import Run
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
INFO = {"TORCH_CPP_LOG_LEVEL": "INFO", "TORCH_DISTRIBUTED_DEBUG": "INFO"}
FSDP = ("--parallel", "fsdp")
#: From a time-out alone nobody sees whether a rank would have come.
SILENT = ("rank-divergence", "timeout-too-short", "unknown")


@dataclass(frozen=True)
class _Form:
    """How the job is started and what its console shows."""

    world_size: int
    tee: bool = True
    bare: bool = False
    env: Mapping[str, str] = field(default_factory=dict)

    def nodes(self, job: str, *words: str) -> tuple[Node, ...]:
        if self.bare:
            return bare_ranks(job, *words, world_size=self.world_size, env=self.env)
        return (torchrun(job, *words, nproc=self.world_size, tee=self.tee, env=self.env),)


def _training(
    name: str,
    cause: str,
    fault: str,
    rank: int,
    form: _Form,
    *words: str,
    family: str,
    injected: str,
    expect: str,
    telling: str | None = None,
    culprit: Culprit | None = None,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
    actions: tuple[Action, ...] = (),
    timeout: int = 12,
) -> Scenario:
    arguments = ("--fault", fault, "--fault-rank", str(rank), "--timeout", str(timeout), *words)
    return Scenario(
        id=f"{name}_w{form.world_size}",
        cause=cause,
        family=family,
        injected=injected,
        nodes=form.nodes("train.py", *arguments),
        world_size=form.world_size,
        culprit=culprit or Culprit(ranks=(rank,)),
        expect=expect,
        telling=telling,
        also=also,
        determinable=determinable,
        actions=actions,
        deadline=150.0,
    )


def _exchange(
    name: str,
    cause: str,
    exchange: str,
    rank: int,
    form: _Form,
    *,
    family: str,
    injected: str,
    expect: str,
    telling: str | None = None,
    culprit: Culprit | None = None,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
) -> Scenario:
    words = ("--exchange", exchange, "--odd-rank", str(rank), "--timeout", "12")
    return Scenario(
        id=f"{name}_w{form.world_size}",
        cause=cause,
        family=family,
        injected=injected,
        nodes=form.nodes("collectives.py", *words),
        world_size=form.world_size,
        culprit=culprit or Culprit(ranks=(rank,)),
        expect=expect,
        telling=telling,
        also=also,
        determinable=determinable,
        deadline=120.0,
    )


def _signal(rank: int, number: int) -> Callable[[Run], str]:
    def act(run: Run) -> str:
        os.kill(run.pid_of_rank(rank), number)
        return f"{signal.Signals(number).name} to rank {rank}"

    return act


TIMED_OUT = r"Timed out waiting (?:\d+ms )?for|Application timeout|[Tt]imed out"
LOST = r"Connection (?:closed|reset) by peer"

DIVERGENCE = (
    _training(
        "diverge_main_barrier", "rank-divergence", "main_barrier", 0, _Form(4),
        family="diverge-main-only", injected="a barrier in code that only rank 0 runs",
        expect=r"validation on the main process(?s:.*)Error", telling=r"in validate_on_main",
        also=("collective-mismatch",),
    ),
    _training(
        "diverge_main_barrier_fsdp_detail", "rank-divergence", "main_barrier", 0, _Form(2, env=DETAIL), *FSDP,
        family="diverge-main-only", injected="a barrier in code that only rank 0 runs, FSDP2, DETAIL",
        expect=r"validation on the main process(?s:.*)Error", telling=r"Detected mismatch|in validate_on_main",
        also=("collective-mismatch",),
    ),
    _training(
        "diverge_uneven_data", "rank-divergence", "uneven", 1, _Form(4),
        family="diverge-uneven", injected="rank 1 has seven batches fewer",
        expect=rf"leaving the epoch(?s:.*)(?:{LOST}|{TIMED_OUT})", telling=r"dataloader exhausted after 13",
        also=("data-pipeline-failure",),
    ),
    _training(
        "diverge_uneven_data_plain", "rank-divergence", "uneven", 6, _Form(8, tee=False),
        family="diverge-uneven", injected="rank 6 has seven batches fewer, plain console",
        expect=rf"leaving the epoch(?s:.*)(?:{LOST}|{TIMED_OUT})", telling=r"dataloader exhausted after 13",
        also=("data-pipeline-failure",),
    ),
    _training(
        "diverge_uneven_data_fsdp_detail", "rank-divergence", "uneven", 0, _Form(3, env=DETAIL), *FSDP,
        family="diverge-uneven", injected="rank 0 has seven batches fewer, FSDP2, DETAIL",
        expect=r"leaving the epoch(?s:.*)Error", telling=r"dataloader exhausted after 13",
        also=("data-pipeline-failure",),
    ),
    _training(
        "diverge_early_exit", "rank-divergence", "early_exit", 2, _Form(3),
        family="diverge-early-exit", injected="rank 2 stops early with status 0",
        expect=rf"patience exhausted(?s:.*)(?:{LOST})", telling=r"early stopping: patience exhausted",
        also=("process-crashed",),
    ),
    _training(
        "diverge_early_exit_bare", "rank-divergence", "early_exit", 0, _Form(4, bare=True), *FSDP,
        family="diverge-early-exit", injected="rank 0 stops early with status 0, FSDP2; no launcher",
        expect=rf"patience exhausted(?s:.*)(?:{LOST})", telling=r"early stopping: patience exhausted",
        also=("process-crashed",),
    ),
    _training(
        "diverge_swallowed_exception", "rank-divergence", "swallowed", 2, _Form(4),
        family="diverge-skipped-step", injected="rank 2 swallows an exception and skips a step",
        expect=r"skipping the rest of this step(?s:.*)Error", telling=r"could not push metrics, skipping",
    ),
    _training(
        "diverge_skipped_batch_fsdp", "rank-divergence", "skip_batch", 1, _Form(2, tee=False), *FSDP,
        family="diverge-skipped-step", injected="rank 1 leaves out a batch under FSDP2, plain console",
        expect=r"skipping it(?s:.*)Error", telling=r"batch holds only padding",
        also=("collective-mismatch",),
    ),
    _training(
        "diverge_conditional_reduce", "rank-divergence", "conditional", 3, _Form(4), "--parallel", "none",
        "--extra-mib", "1",
        family="diverge-conditional", injected="rank 3 calls an all_reduce of its own inside an if",
        expect=r"loss spike at step(?s:.*)Error", telling=r"loss spike at step|in average_spike",
        also=("collective-mismatch",),
    ),
    _exchange(
        "diverge_conditional_detail", "rank-divergence", "branch", 2, _Form(4, env=DETAIL),
        family="diverge-conditional", injected="rank 2 calls an all_reduce of its own inside an if, DETAIL",
        expect=r"new best accuracy(?s:.*)Error", telling=r"Detected mismatch|new best accuracy",
        also=("collective-mismatch",),
    ),
    _exchange(
        "diverge_conditional", "rank-divergence", "branch", 0, _Form(6, tee=False),
        family="diverge-conditional", injected="rank 0 calls an all_reduce of its own inside an if, plain console",
        expect=r"new best accuracy(?s:.*)Error", telling=r"new best accuracy", also=("collective-mismatch",),
    ),
    _exchange(
        "diverge_early_destroy", "rank-divergence", "early_destroy", 2, _Form(4),
        family="diverge-early-destroy", injected="rank 2 destroys its process group and leaves",
        expect=rf"process group destroyed(?s:.*)(?:{LOST})", telling=r"process group destroyed, bye",
    ),
    _exchange(
        "diverge_early_destroy_bare_detail", "rank-divergence", "early_destroy", 0, _Form(3, bare=True, env=DETAIL),
        family="diverge-early-destroy",
        injected="rank 0, which hosts the store, destroys its process group and leaves; DETAIL, no launcher",
        expect=r"process group destroyed(?s:.*)Error", telling=r"process group destroyed, bye",
    ),
    _exchange(
        "diverge_absent_monitored", "rank-divergence", "absent_monitored", 2, _Form(4),
        family="diverge-monitored-barrier", injected="rank 2 skips a monitored_barrier (wait_all_ranks)",
        expect=r"failed to pass monitoredBarrier", telling=r"Ranks? 2 .*failed to pass monitoredBarrier|cache hit",
    ),
    _exchange(
        "diverge_absent_monitored_plain", "rank-divergence", "absent_monitored", 5, _Form(6, tee=False, env=INFO),
        family="diverge-monitored-barrier",
        injected="rank 5 skips a monitored_barrier (wait_all_ranks), plain console, INFO",
        expect=r"failed to pass monitoredBarrier", telling=r"Ranks? 5 .*failed to pass monitoredBarrier|cache hit",
    ),
)  # fmt: skip

STRAGGLERS = (
    _training(
        "straggler_slow_data", "straggler", "slow_data", 3, _Form(4), timeout=10,
        family="straggler-data", injected="a sample takes 2.5 times the time-out on rank 3; nothing is logged",
        expect=TIMED_OUT, also=(*SILENT, "data-pipeline-failure"), determinable="partly",
    ),
    _training(
        "straggler_slow_store", "straggler", "slow_store", 1, _Form(2, tee=False), *FSDP, timeout=10,
        family="straggler-data", injected="a storage client retries on rank 1 for longer than the time-out, FSDP2",
        expect=rf"took too long, attempt 2(?s:.*)(?:{TIMED_OUT})", telling=r"took too long, attempt",
        also=("data-pipeline-failure", "storage-fault"),
    ),
    _training(
        "straggler_stopped", "straggler", "none", 1, _Form(2), "--steps", "400", timeout=10,
        family="straggler-stopped", injected="SIGSTOP of rank 1 from outside",
        expect=TIMED_OUT, also=SILENT, determinable="partly", actions=(Action("step 6/", _signal(1, signal.SIGSTOP)),),
        culprit=Culprit(ranks=(1,)),
    ),
    _training(
        "straggler_stopped_bare", "straggler", "none", 2, _Form(3, bare=True), "--steps", "400", timeout=10,
        family="straggler-stopped",
        injected="SIGSTOP of rank 2 from outside, SIGCONT after the others have given up; no launcher",
        expect=TIMED_OUT, also=SILENT, determinable="partly",
        actions=(Action("step 6/", _signal(2, signal.SIGSTOP)), Action("imed out", _signal(2, signal.SIGCONT))),
    ),
    _training(
        "straggler_stuck_read", "straggler", "stuck_read", 2, _Form(4), timeout=10,
        family="straggler-read", injected="rank 2 waits for ever for a shard to open",
        expect=TIMED_OUT, telling=r"opening the next shard",
        also=("rank-divergence", "data-pipeline-failure", "storage-fault"), determinable="partly",
    ),
    _training(
        "straggler_stuck_read_stacks", "straggler", "stuck_read_watched", 0, _Form(4, tee=False), *FSDP, timeout=10,
        family="straggler-read",
        injected="rank 0 waits for ever for a shard to open and dumps its stacks; FSDP2, plain console",
        expect=rf"in read_next_shard(?s:.*)(?:{TIMED_OUT})", telling=r"opening the next shard|in read_next_shard",
        also=("rank-divergence", "data-pipeline-failure", "storage-fault"),
    ),
    _training(
        "straggler_compile", "straggler", "compile", 1, _Form(4), timeout=10,
        family="straggler-compile", injected="only rank 1 compiles, for twice the time-out",
        expect=rf"recompiling(?s:.*)(?:{TIMED_OUT})", telling=r"torch.compile: recompiling",
        also=("timeout-too-short",),
    ),
    _training(
        "straggler_fsdp_detail", "straggler", "pause", 2, _Form(4, env=DETAIL), *FSDP, timeout=10,
        family="straggler-detail", injected="rank 2 pauses for twice the time-out, FSDP2, DETAIL",
        expect=r"monitoredBarrier|imed out", telling=r"failed to pass monitoredBarrier", also=SILENT,
        determinable="partly",
    ),
    _exchange(
        "straggler_detail", "straggler", "late", 4, _Form(6, env=DETAIL),
        family="straggler-detail", injected="rank 4 comes late to an all_reduce, DETAIL",
        expect=r"monitoredBarrier|imed out", telling=r"failed to pass monitoredBarrier", also=SILENT,
        determinable="partly",
    ),
    _exchange(
        "straggler_silent_bare", "straggler", "late", 1, _Form(4, bare=True),
        family="straggler-silent", injected="rank 1 comes late to an all_reduce and says nothing; no launcher",
        expect=TIMED_OUT, also=SILENT, determinable="partly",
    ),
    _exchange(
        "straggler_monitored_barrier", "straggler", "late_monitored", 1, _Form(4),
        family="straggler-monitored-barrier", injected="rank 1 is late in a monitored_barrier",
        expect=r"failed to pass monitoredBarrier", telling=r"[Rr]ank 1 failed to pass monitoredBarrier",
        also=("rank-divergence",),
    ),
    _exchange(
        "straggler_monitored_barrier_some", "straggler", "late_monitored_some", 3, _Form(8, tee=False),
        family="straggler-monitored-barrier",
        injected="ranks 3 and 5 are late in a monitored_barrier (wait_all_ranks), plain console",
        expect=r"failed to pass monitoredBarrier", telling=r"Ranks 3, 5 failed to pass",
        culprit=Culprit(ranks=(3, 5)), also=("timeout-too-short",),
    ),
    _exchange(
        "straggler_late_receiver", "straggler", "late_receiver", 1, _Form(2),
        family="straggler-p2p", injected="the receiver comes after the sender's time-out",
        expect=TIMED_OUT, telling=r"loading engine weights", also=("rank-divergence", "timeout-too-short"),
    ),
    _exchange(
        "straggler_late_receiver_detail", "straggler", "late_receiver", 2, _Form(3, env=DETAIL, tee=False),
        family="straggler-p2p", injected="the receiver comes after the sender's time-out, DETAIL, plain console",
        expect=TIMED_OUT, telling=r"loading engine weights", also=("rank-divergence", "timeout-too-short"),
    ),
)  # fmt: skip

EXPECTED_WAITS = (
    _training(
        "short_timeout_tokenise", "timeout-too-short", "tokenise", 0, _Form(4), timeout=10,
        family="short-timeout-tokenise", injected="rank 0 tokenises for twice the time-out, the others wait for it",
        expect=rf"tokenising: 40%(?s:.*)(?:{TIMED_OUT})", telling=r"tokenising 1.2M documents", also=("straggler",),
    ),
    _training(
        "short_timeout_tokenise_plain", "timeout-too-short", "tokenise", 0, _Form(8, tee=False), timeout=10,
        family="short-timeout-tokenise",
        injected="rank 0 tokenises for twice the time-out, the others wait for it; plain console",
        expect=rf"tokenising: 40%(?s:.*)(?:{TIMED_OUT})", telling=r"tokenising 1.2M documents", also=("straggler",),
    ),
    _training(
        "short_timeout_download_bare", "timeout-too-short", "download", 0, _Form(3, bare=True), timeout=10,
        family="short-timeout-download",
        injected="rank 0 downloads weights for twice the time-out, the others wait; no launcher",
        expect=rf"downloading model-00002(?s:.*)(?:{TIMED_OUT})", telling=r"downloading model-00001",
        also=("straggler",),
    ),
    _training(
        "short_timeout_evaluate", "timeout-too-short", "evaluate", -1, _Form(4), *FSDP, timeout=10,
        family="short-timeout-evaluate",
        injected="rank 0 evaluates for twice the time-out, the others wait for it and say so; FSDP2",
        expect=rf"waiting for evaluation on rank 0(?s:.*)(?:{TIMED_OUT})", telling=r"running evaluation on 5000",
        culprit=Culprit(ranks=(0,)), also=("straggler",),
    ),
    _training(
        "short_timeout_evaluate_quiet", "timeout-too-short", "evaluate_quietly", 0, _Form(2, tee=False), timeout=10,
        family="short-timeout-evaluate",
        injected="rank 0 evaluates for twice the time-out, the others are in the next all_reduce; plain console",
        expect=rf"running evaluation(?s:.*)(?:{TIMED_OUT})", telling=r"running evaluation on 5000",
        also=("straggler", "rank-divergence"),
    ),
    _training(
        "short_timeout_save", "timeout-too-short", "save", -1, _Form(6), timeout=10,
        family="short-timeout-save", injected="rank 0 saves a checkpoint for twice the time-out, the others wait",
        expect=rf"saving checkpoint(?s:.*)(?:{TIMED_OUT})", telling=r"saving checkpoint step_5",
        culprit=Culprit(ranks=(0,)), also=("straggler",),
    ),
    _training(
        "short_timeout_save_fsdp_detail", "timeout-too-short", "save", -1, _Form(4, env=DETAIL, tee=False), *FSDP,
        timeout=10, family="short-timeout-save",
        injected="rank 0 saves a checkpoint for twice the time-out, the others wait; FSDP2, DETAIL, plain console",
        expect=r"saving checkpoint(?s:.*)(?:monitoredBarrier|imed out)", telling=r"saving checkpoint step_5",
        culprit=Culprit(ranks=(0,)), also=("straggler",),
    ),
    _exchange(
        "short_timeout_dataset_monitored", "timeout-too-short", "main_works_monitored", 0, _Form(3),
        family="short-timeout-monitored",
        injected="rank 0 builds an index for longer than the monitored_barrier in which the others wait",
        expect=r"main process builds(?s:.*)monitoredBarrier", telling=r"main process builds the dataset index",
        also=("straggler",),
    ),
)  # fmt: skip

HEALTHY = (
    Scenario(
        id="healthy_exchange_detail_w3",
        cause="healthy",
        family="healthy-exchange",
        injected="nothing",
        nodes=_Form(3, env={**DETAIL, "TORCH_CPP_LOG_LEVEL": "INFO"}).nodes("collectives.py"),
        world_size=3,
        expect="exchange done",
    ),
)

SCENARIOS = (*DIVERGENCE, *STRAGGLERS, *EXPECTED_WAITS, *HEALTHY)
