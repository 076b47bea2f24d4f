"""Exits of processes and ends of jobs, as launchers and schedulers report them."""

from __future__ import annotations

from dataclasses import dataclass

from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event
from nccl_triage.parsers.elastic_report import REPORT
from nccl_triage.story.decisions import ITSELF, Decision, Grounds, Table
from nccl_triage.story.view import View

_NAMES = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
          9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 31: "SIGSYS"}  # fmt: skip
_BY_NAME = {name: number for number, name in _NAMES.items()}
#: Signals by the words of strsignal(3), which shells and Slurm print.
SIGNAL_TEXTS = {"hangup": 1, "interrupt": 2, "illegal instruction": 4, "trace/breakpoint trap": 5, "aborted": 6, "bus error": 7,
                "floating point exception": 8, "killed": 9, "segmentation fault": 11, "broken pipe": 13, "alarm clock": 14,
                "terminated": 15, "bad system call": 31}  # fmt: skip


@dataclass(slots=True)
class Exit:
    """How one process ended."""

    rank: int | None
    code: int
    event: Event
    first: bool = False

    @property
    def signal(self) -> int | None:
        """The number of the signal that ended the process, or None for an ordinary exit code."""
        return signal_of_code(self.code)


RULES: Table[Event] = Table("ends")
#: The answer of rules by which the whole job was told to stop; by the others it ended.
STOPPED = "job-stopped"


@RULES.condition("cancelled")
def _cancelled(event: Event) -> Grounds | None:
    return ITSELF


@RULES.condition("launcher-signalled")
def _launcher_signalled(event: Event) -> Grounds | None:
    return ITSELF if event.fields.get("of") == "launcher" else None


@RULES.condition("failure-reported")
def _failure_reported(event: Event) -> Grounds | None:
    return ITSELF


def end_of(event: Event) -> Decision | None:
    """Return which end of the whole job a line reports, None if it reports none."""
    return RULES.decide(event, event, event.kind)


def stops_job(event: Event) -> bool:
    """Tell whether a line says that the whole job was told to stop: by a limit, a cancel, or a signal to its launcher."""
    decision = end_of(event)
    return decision is not None and decision.answer == STOPPED


def ends_job(event: Event) -> bool:
    """Tell whether a line ends the whole job, not only one of its processes."""
    return event.is_failure and end_of(event) is not None


def signal_of_code(code: int) -> int | None:
    """Return the number of the signal that an exit code tells of, or None for an ordinary one."""
    if code < 0:
        return -code
    return code - 128 if 128 < code <= 160 else None


def signal_number(text: str | None) -> int | None:
    """Return the number of a signal given by name or number."""
    if not text:
        return None
    if (stated := whole(text)) is not None:
        return stated
    for words, number in SIGNAL_TEXTS.items():
        if text.lower().startswith(words):
            return number
    upper = text.upper()
    return _BY_NAME.get(upper if upper.startswith("SIG") else f"SIG{upper}")


def exits_of(view: View) -> list[Exit]:
    """Return all exits that launchers report, one per process."""
    found: dict[object, Exit] = {}
    workers = {event.fields.get("worker") for event in view.having("process.exit", names="worker")}
    for event in view.of("process.exit"):
        names = event.fields.get("names")
        signal = event.fields.get("signal") or event.fields.get("signo")
        if names == "worker" and not {"rank", "worker"}.intersection(event.fields):
            continue
        if names == "task" and not signal:
            continue  # a scheduler names a task, not a rank, so the exit code is not known to be that of a rank
        code = event.number("exitcode")
        if code is None and (number := signal_number(signal)) is not None:
            code = float(-number)
        if code is None:
            continue
        rank = view.rank(event)
        if event.signature != REPORT:
            local, pid = event.number("local_rank"), event.number("pid")
            if pid is not None and (by_pid := view.identity.rank_of_pid(int(pid))) is not None:
                rank = by_pid
            elif local is not None:
                rank = view.identity.rank_of_local(int(local), event.context.host)
            elif names == "task":
                # The launcher printed the line, whatever task label precedes it.
                task = whole(event.fields.get("rank"))
                rank = view.identity.rank_of_task(task) if task is not None else None
            elif rank is None and names is not None:
                rank = whole(event.fields.get("rank")) if "rank" in event.fields else _worker_of(event, workers)
        key: object = event.fields.get("pid") or (rank, event.line)
        if key in found:
            if event.signature == REPORT:
                found[key].rank = rank if rank is not None else found[key].rank
                found[key].first = found[key].first or event.fields.get("root") == "1"
            continue
        # A launcher that names the rank (Composer's, Paddle's) names the first that it saw exit.
        first = event.fields.get("root") == "1" or (names == "worker" and "rank" in event.fields)
        found[key] = Exit(rank=rank, code=int(code), event=event, first=first)
    return list(found.values())


def _worker_of(event: Event, workers: set[str | None]) -> int | None:
    """Return the number of a launcher's worker as a rank, if the launcher counts from 0."""
    return whole(event.fields.get("worker")) if "0" in workers else None
