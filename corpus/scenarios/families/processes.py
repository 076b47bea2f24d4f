"""Processes that die: by a signal, by an exception, by a scheduler, by a closed terminal."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from corpus.scenarios.build import bare_ranks, torchrun
from corpus.scenarios.recorder import Run
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

FAULTHANDLER = {"PYTHONFAULTHANDLER": "1"}
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
LONG = ("--steps", "400", "--timeout", "30")
#: A SIGKILL without a kernel log may as well be the OOM killer's.
KILLED = ("host-out-of-memory", "unknown")


def _job(
    fault: str,
    rank: int,
    world_size: int,
    *arguments: str,
    tee: bool = True,
    bare: bool = False,
    env: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
) -> tuple[Node, ...]:
    words = ("--fault", fault, "--fault-rank", str(rank), "--timeout", "30", *arguments)
    if bare:
        return bare_ranks("train.py", *words, world_size=world_size, env=env)
    return (torchrun("train.py", *words, nproc=world_size, tee=tee, env=env, options=options),)


def _crash(
    name: str,
    fault: str,
    rank: int,
    world_size: int,
    *arguments: str,
    family: str,
    injected: str,
    expect: str,
    telling: str | None = None,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
    tee: bool = True,
    bare: bool = False,
    env: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
) -> Scenario:
    return Scenario(
        id=f"{name}_w{world_size}",
        cause="process-crashed",
        family=family,
        injected=injected,
        nodes=_job(fault, rank, world_size, *arguments, tee=tee, bare=bare, env=env, options=options),
        world_size=world_size,
        culprit=Culprit(ranks=(rank,)),
        expect=expect,
        telling=telling,
        also=also,
        determinable=determinable,
        deadline=150.0,
    )


def _exception(
    name: str,
    fault: str,
    rank: int,
    world_size: int,
    *arguments: str,
    family: str,
    injected: str,
    expect: str,
    telling: str | None = None,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
    tee: bool = True,
    bare: bool = False,
    env: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
) -> Scenario:
    """Like ``_crash``; rank -1: every rank, nobody is to blame."""
    return Scenario(
        id=f"{name}_w{world_size}",
        cause="application-exception",
        family=family,
        injected=injected,
        nodes=_job(fault, rank, world_size, *arguments, tee=tee, bare=bare, env=env, options=options),
        world_size=world_size,
        culprit=Culprit(ranks=(rank,)) if rank >= 0 else Culprit(why="all ranks"),
        expect=expect,
        telling=telling,
        also=also,
        determinable=determinable,
        deadline=150.0,
    )


def _signal_launcher(number: int) -> Callable[[Run], str]:
    def act(run: Run) -> str:
        os.kill(run.processes[0].pid, number)
        return f"{signal.Signals(number).name} to the launcher"

    return act


def _signal_group(number: int) -> Callable[[Run], str]:
    def act(run: Run) -> str:
        for process in run.processes:
            os.killpg(process.pid, number)
        return f"{signal.Signals(number).name} to the foreground process group"

    return act


def _signal_rank(rank: int, number: int) -> Callable[[Run], str]:
    def act(run: Run) -> str:
        os.kill(run.pid_of_rank(rank), number)
        return f"{signal.Signals(number).name} to rank {rank}"

    return act


def _signal_ranks(world_size: int, number: int) -> Callable[[Run], str]:
    def act(run: Run) -> str:
        for rank in range(world_size):
            os.kill(run.pid_of_rank(rank), number)
        return f"{signal.Signals(number).name} to every rank"

    return act


def _hang_up_training(run: Run) -> str:
    """Send SIGHUP to the Python processes, not to the shells that wait for them."""
    for pid in run.lab.pids(0):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(b"python"):
                os.kill(pid, signal.SIGHUP)
    return "SIGHUP to every training process"


def _stopped(
    name: str,
    cause: str,
    act: Callable[[Run], str],
    nodes: tuple[Node, ...],
    world_size: int,
    *,
    family: str,
    injected: str,
    expect: str,
    telling: str | None = None,
    when: float | str = "step 6/",
    culprit: Culprit | None = None,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
) -> Scenario:
    """A job that trains well until somebody sends it a signal."""
    return Scenario(
        id=f"{name}_w{world_size}",
        cause=cause,
        family=family,
        injected=injected,
        nodes=nodes,
        world_size=world_size,
        culprit=culprit or Culprit(why="sent from outside to the whole job"),
        expect=expect,
        telling=telling,
        also=also,
        determinable=determinable,
        actions=(Action(when, act),),
        deadline=150.0,
    )


def _under_time_limit(node: Node, seconds: int) -> Node:
    limit = ("timeout", "--verbose", "--signal", "TERM", "--kill-after", "20", str(seconds))
    return dataclasses.replace(node, command=(*limit, *node.command))


def _with_launch_script(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Run each rank from a shell script that reports how it ended."""
    script = '"$@"; code=$?; echo "training process exited with status $code"; exit $code'
    return tuple(
        dataclasses.replace(node, command=("bash", "-c", script, "launch_rank.sh", *node.command)) for node in nodes
    )


CRASHES = (
    _crash(
        "sigkill", "sigkill", 2, 4,
        family="sigkill-between-collectives", injected="SIGKILL of rank 2 between two steps",
        expect=r"exitcode: -9", telling=r"failed \(exitcode: -9\)", also=KILLED,
    ),
    _crash(
        "sigkill_fsdp_detail", "sigkill", 1, 2, "--parallel", "fsdp",
        family="sigkill-fsdp", injected="SIGKILL of rank 1 between two steps under FSDP2, TORCH_DISTRIBUTED_DEBUG=DETAIL",
        expect=r"exitcode: -9", telling=r"failed \(exitcode: -9\)", also=KILLED, env=DETAIL,
    ),
    _crash(
        "sigkill_bare_rank0", "sigkill", 0, 4,
        family="sigkill-no-launcher", injected="SIGKILL of rank 0, which hosts the store; no launcher",
        expect=r"Connection (reset|closed) by peer", also=KILLED, determinable="partly", bare=True,
    ),
    _crash(
        "sigkill_in_allreduce", "sigkill_later", 5, 8, "--extra-mib", "128", "--fault-step", "2",
        family="sigkill-in-collective", injected="SIGKILL of rank 5 in the middle of a large all_reduce, plain console",
        expect=r"all_reduce\(extra\)(?s:.*)exitcode: -9", telling=r"failed \(exitcode: -9\)", also=KILLED, tee=False,
    ),
    _crash(
        "sigkill_in_allreduce", "sigkill_later", 1, 2, "--extra-mib", "400", "--parallel", "none",
        family="sigkill-in-collective", injected="SIGKILL of rank 1 in the middle of a large all_reduce",
        expect=r"all_reduce\(extra\)(?s:.*)exitcode: -9", telling=r"failed \(exitcode: -9\)", also=KILLED,
    ),
    _crash(
        "sigkill_in_allreduce_bare", "sigkill_later", 2, 3, "--extra-mib", "256",
        family="sigkill-no-launcher", injected="SIGKILL of rank 2 in the middle of a large all_reduce; no launcher",
        expect=r"all_reduce\(extra\)(?s:.*)Connection (reset|closed) by peer", also=KILLED, determinable="partly",
        telling=r"Connection (reset|closed) by peer", bare=True,
    ),
    _crash(
        "sigsegv", "sigsegv", 3, 4,
        family="sigsegv", injected="SIGSEGV of rank 3: a null pointer is read",
        expect=r"exitcode: -11", telling=r"failed \(exitcode: -11\)",
    ),
    _crash(
        "sigsegv_faulthandler", "sigsegv", 1, 2,
        family="sigsegv-faulthandler", injected="SIGSEGV of rank 1 with faulthandler, plain console",
        expect=r"Segmentation fault(?s:.*)exitcode: -11", telling=r"Fatal Python error: Segmentation fault",
        tee=False, env=FAULTHANDLER,
    ),
    _crash(
        "sigsegv_restart", "sigsegv", 1, 2,
        family="sigsegv-restart", injected="SIGSEGV of rank 1, and again after torchrun's restart",
        expect=r"exitcode: -11", telling=r"failed \(exitcode: -11\)", options=("--max-restarts", "1"),
    ),
    _crash(
        "sigsegv_in_allreduce_bare", "sigsegv_later", 0, 4, "--extra-mib", "160",
        family="sigsegv-no-launcher",
        injected="SIGSEGV on a thread of rank 0 during a large all_reduce, faulthandler; no launcher",
        expect=r"Fatal Python error: Segmentation fault", telling=r"Fatal Python error: Segmentation fault",
        bare=True, env=FAULTHANDLER,
    ),
    _crash(
        "sigabrt_free", "sigabrt", 0, 4,
        family="sigabrt-allocator", injected="SIGABRT of rank 0: the C library finds an invalid pointer",
        expect=r"invalid pointer(?s:.*)exitcode: -6", telling=r"invalid pointer",
    ),
    _crash(
        "sigabrt_terminate", "terminate", 2, 3,
        family="sigabrt-terminate", injected="SIGABRT of rank 2: an uncaught C++ exception, plain console",
        expect=r"terminate called after throwing", telling=r"terminate called after throwing", tee=False,
    ),
    _crash(
        "sigbus", "sigbus", 1, 2,
        family="sigbus", injected="SIGBUS of rank 1: a mapped file was truncated",
        expect=r"exitcode: -7", telling=r"failed \(exitcode: -7\)", also=("shared-memory-exhausted",),
    ),
    _crash(
        "sigbus_in_allreduce", "sigbus_later", 4, 6, "--extra-mib", "128", "--fault-step", "3",
        family="sigbus-in-collective",
        injected="SIGBUS of rank 4 (mapped file truncated) on a thread while a large all_reduce runs, faulthandler",
        expect=r"Fatal Python error: Bus error(?s:.*)exitcode: -7", telling=r"Fatal Python error: Bus error",
        also=("shared-memory-exhausted",), env=FAULTHANDLER,
    ),
    _crash(
        "sigfpe", "sigfpe", 2, 3,
        family="sigfpe", injected="SIGFPE of rank 2: integer division by zero in native code",
        expect=r"exitcode: -8", telling=r"failed \(exitcode: -8\)",
    ),
    _crash(
        "sigill_faulthandler", "sigill", 1, 4, "--parallel", "fsdp",
        family="sigill", injected="SIGILL of rank 1 with faulthandler under FSDP2, plain console",
        expect=r"Illegal instruction(?s:.*)exitcode: -4", telling=r"Fatal Python error: Illegal instruction",
        tee=False, env=FAULTHANDLER,
    ),
)  # fmt: skip

EXCEPTIONS = (
    _exception(
        "exception_shape", "wrong_shape_matmul", 3, 4,
        family="exception-shape", injected="matrix shapes do not fit on rank 3",
        expect=r"mat1 and mat2 shapes cannot be multiplied",
    ),
    _exception(
        "exception_shape_bare", "wrong_shape_matmul", 1, 3,
        family="exception-shape", injected="matrix shapes do not fit on rank 1; no launcher",
        expect=r"mat1 and mat2 shapes cannot be multiplied", bare=True,
    ),
    _exception(
        "exception_index", "index", 1, 2,
        family="exception-index", injected="token id beyond the vocabulary on rank 1, plain console",
        expect=r"IndexError: index out of range in self", tee=False,
    ),
    _exception(
        "exception_key_fsdp", "key", 1, 4, "--parallel", "fsdp",
        family="exception-fsdp", injected="KeyError on rank 1 under FSDP2",
        expect=r"KeyError: 'labels'",
    ),
    _exception(
        "exception_type_fsdp_detail", "type", 0, 4, "--parallel", "fsdp",
        family="exception-fsdp", injected="TypeError on rank 0 under FSDP2, DETAIL, plain console",
        expect=r"TypeError: .*is not an Optimizer", env=DETAIL, tee=False,
    ),
    _exception(
        "exception_assertion_cppinfo", "assertion", 0, 4,
        family="exception-assertion", injected="assertion fails on rank 0, TORCH_CPP_LOG_LEVEL=INFO",
        expect=r"AssertionError: sequence length 16", env={"TORCH_CPP_LOG_LEVEL": "INFO"},
    ),
    _exception(
        "exception_import", "import", 5, 6,
        family="exception-before-group", injected="import fails on rank 5 before the process group, plain console",
        expect=r"ModuleNotFoundError: No module named 'flash_attn'", tee=False,
    ),
    _exception(
        "exception_file_before_group", "file", 1, 4,
        family="exception-before-group", injected="a file is missing on rank 1 before the process group",
        expect=r"FileNotFoundError: .*tokenizer.json",
    ),
    _exception(
        "exception_config_everywhere", "config", -1, 8,
        family="exception-everywhere", injected="every rank refuses the configuration, plain console",
        expect=r"ValueError: unknown activation", tee=False,
    ),
    _exception(
        "exit_17_with_message", "exit_17", 2, 4,
        family="exit-status", injected="rank 2 logs an error and leaves with os._exit(17)",
        expect=r"exitcode: 17", telling=r"checkpoint manifest does not match",
    ),
    _exception(
        "exit_3_silent", "exit_3", 0, 2,
        family="exit-status", injected="rank 0 leaves with os._exit(3) and prints nothing, plain console",
        expect=r"exitcode: 3\b", telling=r"failed \(exitcode: 3\)", also=("process-crashed", "unknown"),
        determinable="partly", tee=False,
    ),
)  # fmt: skip

PREEMPTIONS = (
    _stopped(
        "sigterm_launcher", "job-preempted", _signal_launcher(signal.SIGTERM),
        (torchrun("train.py", *LONG),), 4,
        family="sigterm-launcher", injected="SIGTERM to torchrun, as a scheduler sends it",
        expect=r"SignalException: .*got signal: 15", telling=r"got signal: 15",
    ),
    _stopped(
        "sigterm_launcher_plain", "job-preempted", _signal_launcher(signal.SIGTERM),
        (torchrun("train.py", *LONG, "--parallel", "fsdp", nproc=6, tee=False),), 6,
        family="sigterm-launcher", injected="SIGTERM to torchrun, plain console, FSDP2",
        expect=r"SignalException: .*got signal: 15", telling=r"got signal: 15",
    ),
    _stopped(
        "sigterm_launcher_saves", "job-preempted", _signal_launcher(signal.SIGTERM),
        (torchrun("train.py", *LONG, "--fault", "save_when_told", "--fault-rank", "-1"),), 4,
        family="sigterm-grace", injected="SIGTERM to torchrun; every rank saves a checkpoint and leaves",
        expect=r"received SIGTERM, saving a checkpoint", telling=r"received SIGTERM|got signal: 15",
    ),
    _stopped(
        "sigterm_ranks_save_bare", "job-preempted", _signal_ranks(3, signal.SIGTERM),
        bare_ranks("train.py", *LONG, "--fault", "save_when_told", "--fault-rank", "-1", world_size=3), 3,
        family="sigterm-grace", injected="SIGTERM to every rank (scancel), each saves a checkpoint; no launcher",
        expect=r"received SIGTERM, saving a checkpoint", telling=r"received SIGTERM",
    ),
    _stopped(
        "sigusr1_requeue", "job-preempted", _signal_ranks(2, signal.SIGUSR1),
        (torchrun("train.py", *LONG, "--fault", "save_when_told", "--fault-rank", "-1", nproc=2, tee=False),), 2,
        family="sigusr1-grace", injected="SIGUSR1 before the time limit; ranks save and leave with status 0",
        expect=r"Caught signal SIGUSR1", telling=r"Caught signal SIGUSR1",
    ),
    _stopped(
        "sigterm_one_rank", "job-preempted", _signal_rank(3, signal.SIGTERM),
        (torchrun("train.py", *LONG, "--extra-mib", "96"),), 4,
        family="sigterm-one-rank", injected="SIGTERM from outside to rank 3 while large all_reduces run",
        expect=r"exitcode: -15", telling=r"failed \(exitcode: -15\)", culprit=Culprit(ranks=(3,)),
        also=("process-crashed",), when="step 2/",
    ),
    _stopped(
        "ctrl_c_launcher", "job-preempted", _signal_group(signal.SIGINT),
        (torchrun("train.py", *LONG, nproc=2, tee=False),), 2,
        family="ctrl-c", injected="Ctrl-C: SIGINT to the foreground process group of torchrun",
        expect=r"KeyboardInterrupt|got signal: 2", telling=r"got signal: 2|KeyboardInterrupt",
    ),
    _stopped(
        "ctrl_c_bare", "job-preempted", _signal_group(signal.SIGINT),
        bare_ranks("train.py", *LONG, world_size=4), 4,
        family="ctrl-c", injected="Ctrl-C: SIGINT to every rank; no launcher",
        expect=r"KeyboardInterrupt", telling=r"KeyboardInterrupt",
    ),
    Scenario(
        id="time_limit_w4",
        cause="job-preempted",
        family="time-limit",
        injected="the job's time limit (coreutils timeout) sends SIGTERM to torchrun and its group",
        nodes=(_under_time_limit(torchrun("train.py", *LONG, "--step-time", "0.3"), 40),),
        world_size=4,
        culprit=Culprit(why="the time limit, the whole job"),
        expect=r"timeout: sending signal TERM",
        telling=r"timeout: sending signal TERM",
        deadline=150.0,
    ),
)  # fmt: skip

HANGUPS = (
    _stopped(
        "sighup_launcher", "terminal-hangup", _signal_launcher(signal.SIGHUP),
        (torchrun("train.py", *LONG),), 4,
        family="sighup-launcher", injected="SIGHUP to torchrun: the terminal was closed",
        expect=r"SignalException: .*got signal: 1\b", telling=r"got signal: 1\b", also=("job-preempted",),
    ),
    _stopped(
        "sighup_launcher_plain", "terminal-hangup", _signal_group(signal.SIGHUP),
        (torchrun("train.py", *LONG, "--parallel", "fsdp", nproc=2, tee=False),), 2,
        family="sighup-launcher", injected="SIGHUP to torchrun's process group, plain console, FSDP2",
        expect=r"SignalException: .*got signal: 1\b", telling=r"got signal: 1\b", also=("job-preempted",),
    ),
    _stopped(
        "sighup_bare", "terminal-hangup", _hang_up_training,
        _with_launch_script(bare_ranks("train.py", *LONG, world_size=3)), 3,
        family="sighup-no-launcher", injected="SIGHUP to every rank; each runs from a shell script, no launcher",
        expect=r"Hangup", telling=r"Hangup|status 129", also=("job-preempted",),
    ),
)  # fmt: skip

SCENARIOS = (
    *CRASHES,
    *EXCEPTIONS,
    *PREEMPTIONS,
    *HANGUPS,
    Scenario(
        id="ddp_detail_crash_w2",
        cause="process-crashed",
        family="ddp-detail-crash",
        injected="nothing but TORCH_DISTRIBUTED_DEBUG=DETAIL: wrapping a model with DDP crashes in torch 2.13.0 (CPU)",
        nodes=(torchrun("train.py", nproc=2, env=DETAIL),),
        world_size=2,
        culprit=Culprit(why="all ranks"),
        expect=r"exitcode: -11",
        telling=r"failed \(exitcode: -11\)",
        also=("framework-version-incompatibility",),
    ),
)
