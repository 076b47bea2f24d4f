"""Jobs with several groups that hang because one rank is dead, busy, elsewhere, late, stopped, or in another call."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace

from corpus.scenarios.acts import after, signal_host, signal_rank
from corpus.scenarios.build import bare_ranks, torchrun
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

JOB = "mixture.py"
TIMED_OUT = r"[Tt]imed out|wait timeout|Timeout"
LOST = r"Connection (?:closed|reset) by peer"
#: From a timeout alone nobody sees whether a rank would have come.
SILENT = ("rank-divergence", "timeout-too-short", "unknown")
#: Output waits in the process until there is much of it, or the process ends.
BUFFERED = {"PYTHONUNBUFFERED": ""}
FILES = ("--log-dir", "{logs}", "--redirects", "3")


def _apart(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return tasks whose standard output goes into a file of each, as with ``srun --output=%t.log``; errors do not."""
    script = 'exec "$@" >"$0"'
    return tuple(
        replace(node, command=("bash", "-c", script, f"{{logs}}/task{rank}.log", *node.command))
        for rank, node in enumerate(nodes)
    )


def _tasks(world: int, *words: str, env: Mapping[str, str] | None = None) -> tuple[Node, ...]:
    return bare_ranks(JOB, *words, world_size=world, env=env)


def _case(
    name: str,
    cause: str,
    rank: int,
    nodes: tuple[Node, ...],
    world: int,
    injected: str,
    *,
    family: str,
    expect: str = TIMED_OUT,
    telling: str | None = None,
    also: tuple[str, ...] = (),
    determinable: str = "partly",
    actions: tuple[Action, ...] = (),
) -> Scenario:
    return Scenario(
        id=f"absent_{name}_w{world}", cause=cause, family=family, injected=injected, nodes=nodes, world_size=world,
        culprit=Culprit(ranks=(rank,)), expect=expect, telling=telling, also=also, determinable=determinable,
        actions=actions, deadline=45.0,
    )  # fmt: skip


def _odd(rank: int, variant: str, *words: str) -> tuple[str, ...]:
    return ("--odd", str(rank), "--variant", variant, *words)


SCENARIOS = (
    _case(
        "elsewhere", "rank-divergence", 5, (torchrun(JOB, *_odd(5, "statistics"), nproc=8),), 8,
        "rank 5 waits in a function of its own for ever; eight ranks in pairs and parity groups, torchrun --tee",
        family="absent-elsewhere", also=("straggler", "timeout-too-short", "unknown"),
    ),
    _case(
        "elsewhere_apart", "rank-divergence", 2,
        _apart(_tasks(6, *_odd(2, "statistics", "--speaks", "all"), env=BUFFERED)), 6,
        "rank 2 waits in a function of its own for ever; srun's tasks, standard output buffered and in files of its own",
        family="absent-elsewhere", also=("straggler", "timeout-too-short", "unknown"),
    ),
    _case(
        "busy", "straggler", 2, _tasks(4, *_odd(2, "plan"), env=BUFFERED), 4,
        "rank 2 computes without end; srun's tasks, output buffered", family="absent-busy", also=SILENT,
    ),
    _case(
        "late", "straggler", 1, (torchrun(JOB, *_odd(1, "statistics", "--seconds", "16"), nproc=6, tee=False),), 6,
        "rank 1 comes six seconds after the timeout of ten; torchrun, plain console", family="absent-late", also=SILENT,
    ),
    _case(
        "order", "collective-mismatch", 3, (torchrun(JOB, *_odd(3, "meet", "--speaks", "all"), nproc=4),), 4,
        "rank 3 enters the barrier of all before the exchange of its pair, the others after it",
        family="absent-order", also=("rank-divergence", "straggler", "unknown"),
    ),
    _case(
        "size", "collective-mismatch", 4, _tasks(6, *_odd(4, "width")), 6,
        "rank 4 exchanges a quarter of the elements that rank 5 does; srun's tasks", family="absent-size",
        expect=rf"{TIMED_OUT}|{LOST}|op\.preamble", determinable="partly", also=("unknown",),
    ),
    _case(
        "killed", "process-crashed", 6, _tasks(8, "--speaks", "all"), 8,
        "SIGKILL of rank 6; srun's tasks, nobody kills the others", family="absent-killed", expect=LOST, telling=LOST,
        also=("host-out-of-memory", "unknown", "rank-divergence"),
        actions=(Action("rank 6: step 6/", signal_rank(6, signal.SIGKILL)),),
    ),
    _case(
        "left_apart", "rank-divergence", 4, (torchrun(JOB, *_odd(4, "leave"), nproc=6, options=FILES, tee=False),), 6,
        "rank 4 ends with os._exit(0) without a word; torchrun writes output and error of each rank into files",
        family="absent-left", expect="exitcode", also=("process-crashed", "unknown"),
    ),
    _case(
        "stopped", "straggler", 3, (torchrun(JOB, "--speaks", "all", nproc=8),), 8,
        "SIGSTOP of rank 3; eight ranks in pairs and parity groups, torchrun --tee", family="absent-stopped", also=SILENT,
        actions=(Action("rank 3: step 6/", signal_rank(3, signal.SIGSTOP)),),
    ),
    _case(
        "time_limit", "rank-divergence", 1,
        (torchrun(JOB, *_odd(1, "statistics", "--timeout", "600", "--speaks", "all"), nproc=4),), 4,
        "rank 1 waits in a function of its own; long before any timeout SIGTERM ends everything, as a time limit does",
        family="absent-time-limit", expect=r"SIGTERM|[Ss]ignal 15", also=("straggler", "job-preempted", "unknown"),
        actions=(Action("rank 0: step 5/", after(25.0, signal_host(0, signal.SIGTERM))),),
    ),
)  # fmt: skip
