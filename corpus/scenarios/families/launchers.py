"""Other ways to start ranks: torch.multiprocessing, home-made launchers, redirected consoles, torchrun's variants."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from corpus.scenarios.build import bare_ranks, torchrun
from corpus.scenarios.scenario import Culprit, Node, Scenario

KILLED = ("host-out-of-memory", "unknown")
LOST = r"Connection (?:closed|reset) by peer"


def spawned(
    routine: str,
    world: int,
    odd: int,
    *words: str,
    how: str = "--spawn",
    env: Mapping[str, str] | None = None,
    label: str | None = None,
    prelude: str = "",
) -> Node:
    """Return one command that starts all ranks itself."""
    arguments = (routine, "--world", str(world), "--odd", str(odd), how, *words)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"}
    return Node(
        ("{python}", "{jobs}/workbench.py", *arguments),
        env=address if env is None else env,
        label=label,
        prelude=prelude,
    )


def _spawned(
    name: str,
    cause: str,
    routine: str,
    world: int,
    odd: int,
    *words: str,
    family: str,
    injected: str,
    expect: str,
    telling: str | None = None,
    how: str = "--spawn",
    env: Mapping[str, str] | None = None,
    label: str | None = None,
    culprit: Culprit | None = None,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
) -> Scenario:
    return Scenario(
        id=f"{name}_w{world}",
        cause=cause,
        family=family,
        injected=injected,
        nodes=(spawned(routine, world, odd, *words, how=how, env=env, label=label),),
        world_size=world,
        culprit=culprit or Culprit(ranks=(odd,)),
        expect=expect,
        telling=telling,
        also=also,
        determinable=determinable,
    )


SPAWNED = (
    _spawned(
        "spawn_shape", "application-exception", "features", 4, 2,
        family="spawn-exception", injected="a wrong shape on rank 2 of torch.multiprocessing.spawn",
        expect=r"-- Process \d terminated with the following error", telling=r"mat1 and mat2 shapes",
    ),
    _spawned(
        "spawn_killed", "process-crashed", "vanish", 3, 1, "--console", "bare",
        family="spawn-signal", injected="SIGKILL of rank 1 of torch.multiprocessing.spawn; the console names no ranks",
        expect=r"terminated with signal SIGKILL|terminated with the following error",
        telling=r"terminated with signal SIGKILL", also=KILLED,
    ),
    _spawned(
        "spawn_pointer", "process-crashed", "pointer", 2, 0, "--console", "pipes",
        family="spawn-signal", injected="rank 0 of torch.multiprocessing.spawn reads address 0",
        expect=r"terminated with signal SIGSEGV|terminated with the following error",
        telling=r"terminated with signal SIGSEGV",
    ),
    _spawned(
        "spawn_leaves", "rank-divergence", "leave", 4, 3, "--console", "glog",
        family="spawn-leaves", injected="rank 3 of torch.multiprocessing.spawn stops early with sys.exit(0)",
        expect=LOST, telling=r"target loss reached", also=("process-crashed",),
    ),
    _spawned(
        "spawn_no_address", "rendezvous-failed", "healthy", 2, 1,
        env={}, family="spawn-configuration", injected="MASTER_ADDR is not set",
        expect=r"MASTER_ADDR expected, but not set", culprit=Culprit(why="all ranks"),
        also=("application-exception",),
    ),
    _spawned(
        "processes_killed", "process-crashed", "vanish", 4, 2, "--patient",
        how="--processes", family="processes-signal",
        injected="SIGKILL of rank 2 of a home-made launcher that waits for all", expect=r"Worker-2 exited with code -9",
        telling=r"Worker-2 exited with code -9", also=KILLED, label="trainer-0  | ",
    ),
    _spawned(
        "processes_cleanup_barrier", "application-exception", "cleanup_barrier", 3, 1, "--timeout", "8", "--patient",
        how="--processes", family="exception-behind-barrier",
        injected="KeyError on rank 1, which first waits in a barrier of its finally block",
        expect=r"KeyError: 'rouge'", telling=r"KeyError: 'rouge'",
    ),
    _spawned(
        "processes_healthy", "healthy", "healthy_worried", 3, 1, "--console", "pipes",
        how="--processes", family="healthy-home-made", injected="nothing", expect=r"done", label="trainer-0  | ",
    ),
)  # fmt: skip


def _torchrun(
    name: str,
    cause: str,
    routine: str,
    world: int,
    odd: int,
    *words: str,
    family: str,
    injected: str,
    expect: str,
    telling: str | None = None,
    options: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    culprit: Culprit | None = None,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
    deadline: float = 90.0,
) -> Scenario:
    arguments = (routine, "--odd", str(odd), *words)
    return Scenario(
        id=f"{name}_w{world}",
        cause=cause,
        family=family,
        injected=injected,
        nodes=(torchrun("workbench.py", *arguments, nproc=world, tee=False, options=options, env=env),),
        world_size=world,
        culprit=culprit or Culprit(ranks=(odd,)),
        expect=expect,
        telling=telling,
        also=also,
        determinable=determinable,
        deadline=deadline,
    )


TORCHRUN = (
    _torchrun(
        "redirected_shape", "application-exception", "features", 4, 1, "--console", "glog",
        options=("--log-dir", "{logs}", "--redirects", "3"),
        family="redirected", injected="a wrong shape on rank 1; every rank writes into files, the console has the summary",
        expect=r"exitcode\s*: 1", telling=r"rank\s*: 1 \(", also=("unknown", "process-crashed"), determinable="partly",
    ),
    _torchrun(
        "redirected_pointer", "process-crashed", "pointer", 3, 2,
        options=("--log-dir", "{logs}", "--redirects", "3", "--tee", "0:3"),
        family="redirected", injected="rank 2 reads address 0; only rank 0 writes to the console",
        expect=r"exitcode\s*: -11|SIGSEGV", telling=r"exitcode\s*: -11|failed \(exitcode: -11\)",
    ),
    _torchrun(
        "restarts_shape", "application-exception", "features", 2, 1, "--console", "pipes",
        options=("--max-restarts", "2"),
        family="restarts", injected="a wrong shape on rank 1 in each of three attempts",
        expect=r"mat1 and mat2 shapes(?s:.*)mat1 and mat2 shapes", telling=r"mat1 and mat2 shapes",
    ),
    _torchrun(
        "standalone_quiet_leave", "rank-divergence", "quiet_leave", 4, 2, "--console", "json",
        options=("--standalone",),
        family="quiet-leave", injected="rank 2 ends with os._exit(0) and says nothing",
        expect=rf"{LOST}|Broken pipe", telling=LOST, also=("process-crashed", "unknown"), determinable="partly",
        culprit=Culprit(ranks=(2,)),
    ),
    _torchrun(
        "thread_dies", "application-exception", "thread_dies", 4, 2, "--timeout", "8",
        family="thread-dies", injected="a prefetch thread of rank 2 dies of a KeyError; its rank waits for ever",
        expect=r"Exception in thread prefetch(?s:.*)Timed out", telling=r"KeyError: 1|Exception in thread prefetch",
        also=("data-pipeline-failure", "rank-divergence"),
    ),
    _torchrun(
        "recursion", "application-exception", "recursion", 2, 0, "--console", "json",
        family="recursion", injected="rank 0 recurses without end", expect=r"RecursionError", telling=r"RecursionError",
    ),
)  # fmt: skip


def pods(nodes: tuple[Node, ...], form: str = "[pod/llm-train-worker-{}/pytorch] ") -> tuple[Node, ...]:
    """Label processes as ``kubectl logs --prefix`` does."""
    return tuple(dataclasses.replace(node, label=form.format(index)) for index, node in enumerate(nodes))


OTHERS = (
    Scenario(
        id="pods_leave_w4",
        cause="rank-divergence",
        family="quiet-leave",
        injected="rank 1 stops early with sys.exit(0); one pod a rank",
        nodes=pods(bare_ranks("workbench.py", "leave", "--odd", "1", "--console", "glog", world_size=4)),
        world_size=4,
        culprit=Culprit(ranks=(1,)),
        expect=LOST,
        telling=r"target loss reached",
        also=("process-crashed",),
    ),
    Scenario(
        id="script_missing_w2",
        cause="launch-failed",
        family="script-missing",
        injected="the script that torchrun shall start does not exist",
        nodes=(Node(("{bin}/torchrun", "--nproc-per-node", "2", "pretrain_gpt.py", "--steps", "10")),),
        world_size=2,
        culprit=Culprit(why="all ranks"),
        also=("application-exception",),
        expect=r"can't open file",
    ),
    Scenario(
        id="old_launcher_argument_w2",
        cause="framework-version-incompatibility",
        family="old-launcher",
        injected="torch.distributed.launch hands --local-rank to a script that does not know it",
        nodes=(
            Node(("{python}", "-m", "torch.distributed.launch", "--nproc_per_node=2", "{jobs}/workbench.py", "healthy")),
        ),
        world_size=2,
        culprit=Culprit(why="all ranks"),
        also=("application-exception",),
        expect=r"unrecognized arguments: --local-rank",
    ),
)  # fmt: skip

SCENARIOS = (*SPAWNED, *TORCHRUN, *OTHERS)
