"""Hangs of two halves of a job: one rank loads, saves, compiles, waits for itself, is dead, stopped, late, or calls otherwise."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace

from corpus.scenarios.acts import signal_rank
from corpus.scenarios.build import bare_ranks, torchrun
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

JOB = "adversarial.py"
TIMED_OUT = r"[Tt]imed out|wait timeout|Timeout"
LOST = r"Connection (?:closed|reset) by peer"
#: From a timeout alone nobody sees whether a rank would have come.
SILENT = ("rank-divergence", "timeout-too-short", "unknown")
FILES = ("--log-dir", "{logs}", "--redirects", "3")
RECORDED = {"TORCH_FR_BUFFER_SIZE": "500"}
TERMINATED = r"sending signal TERM"


def _case(
    name: str,
    cause: str,
    rank: int,
    nodes: tuple[Node, ...],
    world: int,
    injected: str,
    *,
    expect: str = TIMED_OUT,
    telling: str | None = None,
    also: tuple[str, ...] = (),
    actions: tuple[Action, ...] = (),
    keep: str = "**/*.log",
) -> Scenario:
    return Scenario(
        id=f"waits_{name}_w{world}", cause=cause, family=f"waits-{name}", injected=injected, nodes=nodes, world_size=world,
        culprit=Culprit(ranks=(rank,)), expect=expect, telling=telling, also=also, determinable="partly", actions=actions,
        deadline=60.0, keep=keep,
    )  # fmt: skip


def _odd(rank: int, does: str, *words: str) -> tuple[str, ...]:
    return ("--odd", str(rank), "--does", does, *words)


def _tasks(world: int, *words: str, env: Mapping[str, str] | None = None) -> tuple[Node, ...]:
    return bare_ranks(JOB, *words, world_size=world, env=env)


def _limited(node: Node, seconds: int) -> tuple[Node, ...]:
    """Return a host whose job is ended after some time, as a scheduler's limit does."""
    return (replace(node, command=("timeout", "--verbose", str(seconds), *node.command)),)


SCENARIOS = (
    _case(
        "tokenize", "timeout-too-short", 2, (torchrun(JOB, *_odd(2, "tokenize", "--seconds", "25"), nproc=4),), 4,
        "rank 2 needs 25 s for its texts, and tells so; the timeout is 9 s; torchrun --tee",
        also=("straggler",),
    ),
    _case(
        "save", "timeout-too-short", 0, _tasks(6, *_odd(0, "save", "--seconds", "14")), 6,
        "rank 0 saves for 14 s, and tells so; the timeout is 9 s; srun's tasks", also=("straggler",),
    ),
    _case(
        "compile", "straggler", 3, _tasks(4, *_odd(3, "compile", "--speaks", "first")), 4,
        "rank 3 computes without end and without a word; srun's tasks, rank 0 alone tells of steps", also=SILENT,
    ),
    _case(
        "feedback_limit", "rank-divergence", 3,
        _limited(torchrun(JOB, *_odd(3, "feedback", "--timeout", "600"), nproc=4), 25), 4,
        "rank 3 waits for itself; long before any timeout a limit of time ends everything; torchrun --tee",
        expect=TERMINATED, also=("straggler", "job-preempted", "unknown"),
    ),
    _case(
        "files_limit", "straggler", 1,
        _limited(
            torchrun(JOB, *_odd(1, "compile", "--timeout", "600", "--speaks", "first"), nproc=6, options=FILES, tee=False),
            25,
        ), 6,
        "rank 1 computes without end; a limit of time ends everything; torchrun writes output and error of each rank into files",
        expect=TERMINATED, also=("rank-divergence", "job-preempted", "unknown"),
    ),
    _case(
        "score_first", "collective-mismatch", 1, (torchrun(JOB, *_odd(1, "score-first"), nproc=4, tee=False),), 4,
        "rank 1 shares scores before it averages gradients, the others after it; torchrun, plain console",
        expect=rf"{TIMED_OUT}|{LOST}", also=("rank-divergence", "unknown"),
    ),
    _case(
        "score_first_recorded", "collective-mismatch", 2,
        (
            torchrun(
                JOB, *_odd(2, "score-first", "--records", "{logs}"), nproc=4, options=FILES, tee=False, env=RECORDED,
            ),
        ), 4,
        "rank 2 shares scores before it averages gradients, the others after it; all write their flight recorders",
        expect="exitcode", also=("rank-divergence",), keep="**/*.*",
    ),
    _case(
        "narrow", "collective-mismatch", 5, _tasks(6, *_odd(5, "narrow")), 6,
        "rank 5 shares 16 scores, the others 64; srun's tasks", expect=rf"{TIMED_OUT}|{LOST}|op\.preamble",
        also=("unknown",),
    ),
    _case(
        "gap", "rank-divergence", 2, _tasks(4, *_odd(2, "gap")), 4,
        "rank 2 leaves out one step without a word; srun's tasks", expect=rf"{TIMED_OUT}|{LOST}|op\.preamble",
        also=("collective-mismatch", "straggler", "unknown"),
    ),
    _case(
        "killed", "process-crashed", 4, _tasks(6), 6, "SIGKILL of rank 4; srun's tasks, nobody kills the others",
        expect=LOST, telling=LOST, also=("host-out-of-memory", "unknown"),
        actions=(Action("rank 4 INFO step 8/", signal_rank(4, signal.SIGKILL)),),
    ),
    _case(
        "stopped", "straggler", 1, _tasks(5), 5, "SIGSTOP of rank 1; srun's tasks", also=SILENT,
        actions=(Action("rank 1 INFO step 8/", signal_rank(1, signal.SIGSTOP)),),
    ),
    _case(
        "late_detail", "straggler", 5,
        (
            torchrun(
                JOB, *_odd(5, "feedback", "--seconds", "13"), nproc=8, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
            ),
        ), 8,
        "rank 5 comes four seconds after the timeout of nine; TORCH_DISTRIBUTED_DEBUG=DETAIL; torchrun --tee", also=SILENT,
    ),
)  # fmt: skip
