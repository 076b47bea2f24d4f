"""How processes ended: which rank died first and why, and which ranks were only cleaned up.

A SIGTERM (-15) after an agent's "closing signal" and a SIGKILL after its "forcefully exiting" are clean-up. The agent's
"first observed failure" is reliable for deaths and exceptions, but meaningless if every rank died of a communication error.
"""

from __future__ import annotations

from collections.abc import Sequence

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.observations.event import Event
from nccl_triage.parsers.elastic_report import REPORT
from nccl_triage.story import devices
from nccl_triage.story.exits import Exit, exits_of, signal_number

#: Ranks that somebody kills together end within so many seconds.
AT_ONCE = 2.0
#: Maximum number of lines that the kernel prints for a blocked process: header, registers and stack.
_STACK_LINES = 60
_CRASH = {4, 5, 6, 7, 8, 11, 31}
#: Exit codes of success and of SIGHUP, SIGINT and SIGTERM.
_STOP_CODES = ("0", "129", "130", "143")


def _reports(case: Case) -> list[Event]:
    """Return the entries of agents' reports, which list every worker that failed or was stopped."""
    return case.of(REPORT)


def _cleaned_up(case: Case) -> set[str]:
    """Return the pids of processes that agents stopped."""
    return {event.fields["pid"] for event in case.having("process.stopped", "pid") if event.fields["pid"]}


@fact("process.exits", "how processes exited, as launchers report it")
def _exits(case: Case) -> Fact | None:
    exits = exits_of(case)
    return Fact(exits, [e.event for e in exits][:6]) if exits else None


def _own_deaths(case: Case) -> list[Exit]:
    """Return the exits that no launcher caused."""
    cleaned = _cleaned_up(case)
    exits: list[Exit] = case.value("process.exits") or []
    return [e for e in exits if not (e.event.fields.get("pid") in cleaned and e.signal in (9, 15))]


def _with_signal(case: Case, *numbers: int) -> Fact | None:
    dead = [e for e in _own_deaths(case) if e.signal in numbers]
    if not dead:
        return None
    return Fact(sorted({e.rank for e in dead if e.rank is not None}), [e.event for e in dead][:4])


@fact(
    "process.killed_ranks",
    "ranks killed by SIGKILL that no agent sent",
    blames=("its process died first", "它的进程最先退出"),
)
def _killed(case: Case) -> Fact | None:
    return _with_signal(case, 9)


@fact(
    "process.killed_together",
    "SIGKILL killed every rank within two seconds: the kernel kills one process at a time, for memory",
)
def _killed_together(case: Case) -> Fact | None:
    dead = {e.rank: e.event for e in _own_deaths(case) if e.signal == 9 and e.rank is not None}
    # An agent's report times all ends by one clock, while the line above it may lack the year.
    dead |= {rank: event for event in _reports(case) if (rank := case.rank(event)) in dead}
    times = [time for event in dead.values() if (time := event.context.time) is not None]
    if (
        len(dead) < 2
        or len(times) < len(dead)
        or not dead.keys() >= set(case.identity.ranks)
        or case.of("memory.killed")
    ):
        return None
    return Fact(True, list(dead.values())[:4]) if max(times) - min(times) <= AT_ONCE else None


@fact("process.killed_before_stop", "tasks of Slurm were killed before it cancelled the job or step")
def _killed_before_stop(case: Case) -> Fact | None:
    cancelled = case.of("job.cancelled")
    if any(event.role == "root" for event in cancelled):
        return None
    killed = [e for e in case.having("process.exit", "signal", names="task") if signal_number(e.fields["signal"]) == 9]
    # A step that somebody cancels says so first. Its tasks are only killed if they ignore SIGTERM.
    early = [k for k in killed if all(k.line < c.line for c in cancelled if c.source == k.source)]
    return Fact(True, [*early[:2], *cancelled[:1]]) if early and cancelled else None


@fact(
    "process.crashed_ranks",
    "ranks that died of SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGTRAP",
    blames=("its process died first", "它的进程最先退出"),
)
def _crashed(case: Case) -> Fact | None:
    return _with_signal(case, *(_CRASH - {6}))


@fact("process.bus_error_ranks", "ranks that died of SIGBUS")
def _bus(case: Case) -> Fact | None:
    return _with_signal(case, 7)


@fact(
    "process.terminated_ranks",
    "ranks, fewer than half, killed by SIGTERM, SIGINT or SIGHUP that no agent sent",
    blames=("only this rank was killed by a signal that the launcher did not send", "只有它被并非启动器发送的信号终止"),
)
def _terminated(case: Case) -> Fact | None:
    found = _with_signal(case, 1, 2, 15)
    return found if found is not None and found.value and len(found.value) * 2 < len(case.identity.ranks) else None


@fact("process.aborted_ranks", "ranks that died of SIGABRT", blames=("its process died first", "它的进程最先退出"))
def _aborted(case: Case) -> Fact | None:
    return _with_signal(case, 6)


@fact("process.terminated_only", "all reported exits are SIGTERM, SIGINT or SIGHUP: something outside stopped the job")
def _terminated_only(case: Case) -> Fact | None:
    exits: list[Exit] | None = case.value("process.exits")
    if not exits:
        return None
    # Slurm names tasks rather than ranks, but the exit code of a task tells that it failed by itself.
    stopped = all(e.signal in (1, 2, 15) for e in exits)
    failed = [
        e for e in case.having("process.exit", "exitcode", names="task") if e.fields["exitcode"] not in _STOP_CODES
    ]
    return Fact(stopped and not failed, [*failed, *(e.event for e in exits)][:3])


@fact(
    "process.first_exit_ranks",
    "the ranks whose exit a launcher saw first",
    blames=("its process died first", "它的进程最先退出"),
)
def _first(case: Case) -> Fact | None:
    first = [e for e in _own_deaths(case) if e.first and e.signal != 15]
    if not first:
        return None
    return Fact(sorted({e.rank for e in first if e.rank is not None}), [e.event for e in first][:3])


@fact("process.first_exit_code", "the exit code that a launcher saw first (negative: a signal)")
def _first_code(case: Case) -> Fact | None:
    first = [e for e in _own_deaths(case) if e.first]
    return Fact(first[0].code, [first[0].event]) if first else None


@fact("process.ended_alike", "every rank of the job ended by itself, with the same code or signal: which")
def _ended_alike(case: Case) -> Fact | None:
    own = {e.rank: e for e in _own_deaths(case) if e.rank is not None and e.code != 0}
    codes = {e.code for e in own.values()}
    if len(own) < 2 or len(codes) > 1 or not own.keys() >= set(case.identity.ranks):
        return None
    return Fact(codes.pop(), [e.event for e in own.values()][:4])


@fact(
    "process.failed_together",
    "some ranks, not all, exited with one and the same code without being stopped, while others were: their number",
)
def _failed_together(case: Case) -> Fact | None:
    own = {e.rank: e for e in _own_deaths(case) if e.signal is None and e.code != 0 and e.rank is not None}
    stopped = any(e.fields.get("exitcode") == "-15" for e in _reports(case))
    alike = len({e.code for e in own.values()}) == 1
    return Fact(len(own), [e.event for e in own.values()][:4]) if len(own) > 1 and alike and stopped else None


@fact(
    "process.clean_exit_ranks",
    "ranks absent from a report that lists every failed or stopped worker: they exited with code 0",
    blames=("exited while the others continued", "其他 rank 仍在运行时它已退出"),
)
def _clean_exit(case: Case) -> Fact | None:
    reports = [e for e in _reports(case) if case.rank(e) is not None]
    if not reports:
        return None
    ended = frozenset(case.identity.ranks)
    if not any(e.fields.get("exitcode") == "-15" for e in reports):
        # Older releases list only failures, so an absent rank may have been running, unless nobody was left to stop.
        silent: list[int] = case.value("progress.silent_ranks") or []
        ended = frozenset() if case.of("process.stopped") else case.presence.heard.intersection(silent)
    listed = {case.rank(e) for e in reports}
    by_host: dict[str | None, set[int]] = {}
    for rank, info in case.identity.ranks.items():
        by_host.setdefault(info.host, set()).add(rank)
    absent: set[int] = set(_missing_between(case, reports)) if ended else set()
    for ranks in by_host.values():
        if ranks & listed:
            absent |= {rank for rank in ranks if rank not in listed and rank in ended}
    return Fact(sorted(absent), reports[:2]) if absent else None


def _missing_between(case: Case, reports: Sequence[Event]) -> list[int]:
    """Return the ranks whose local numbers are missing between those of a host's report, unless they were stopped.

    A worker that is stopped and then exits with code 0 is not in the report either.
    """
    told = {event.fields.get("pid") for event in reports}
    if _cleaned_up(case) - told:
        return []
    hosts: dict[str | None, dict[int, int]] = {}
    for event in reports:
        rank, local = case.rank(event), event.context.local_rank
        if rank is not None and local is not None:
            hosts.setdefault(event.fields.get("host"), {})[local] = rank
    missing: list[int] = []
    for ranks in hosts.values():
        first = {rank - local for local, rank in ranks.items()}
        if len(first) == 1 and max(ranks) - len(ranks) < len(ranks):
            missing += [local + min(first) for local in range(max(ranks)) if local not in ranks]
    return missing


@fact(
    "process.left_children",
    "ranks that mp.spawn neither saw fail nor had to stop when the first child failed: they had exited with code 0",
    blames=("exited while the others continued", "其他 rank 仍在运行时它已退出"),
)
def _left_children(case: Case) -> Fact | None:
    failed = case.having("exception.relayed", by="spawn")
    stopped = case.having("process.stopped", by="spawn")
    size = case.identity.world_size
    # Processes on other hosts have launchers of their own.
    if len(failed) != 1 or size is None or size <= 1 + len(stopped) or not case.identity.single_host:
        return None
    if case.value("process.exits") or case.value("exception.application"):
        return None
    there = {case.identity.rank_of_pid(int(event.fields["pid"])) for event in stopped}
    there.add(case.identity.rank_of_local(int(failed[0].fields["local_rank"])))
    left = sorted(set(range(size)) - {rank for rank in there if rank is not None})
    return Fact(left if len(left) == size - 1 - len(stopped) else [], [*failed, *stopped[:2]])


@fact("process.killed_by_os", "a line reports the kernel's, a cgroup's or Ray's out-of-memory killer")
def _oom_killer(case: Case) -> Fact | None:
    events = case.of("memory.killed")
    return Fact(True, events[:3]) if events else None


@fact("process.stalled_in", "where a blocked process is in the kernel: storage or gpu (its driver)")
def _stalled_in(case: Case) -> Fact | None:
    stalled = [event for event in case.of("process.stalled") if devices.is_kernel(event)]
    for event in stalled:
        for frame in case.having("exception.frame", "of"):
            if frame.source == event.source and 0 < frame.line - event.line <= _STACK_LINES:
                return Fact(frame.fields["of"], [event, frame])
    return None
