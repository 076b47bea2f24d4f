"""What the kernel says of the processes of a hanging job: which are stopped, asleep, at work, or wait where most do not.

It needs no stacks. Where there are some, they tell more, except that a stopped process is stopped wherever it stands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event

#: Where the kernel has a process sleep that asked for it (``time.sleep``), or that waits for a child.
SLEEPS = frozenset({"hrtimer_nanosleep", "do_nanosleep", "common_nsleep", "do_wait"})
#: Share of a processor from which on a process is at work. One that waits may poll.
AT_WORK = 0.5
_STOPPED, _UNINTERRUPTIBLE, _GONE = frozenset("Tt"), "D", "gone"

Doing = Literal["stopped", "blocked", "working", "asleep", "waiting"]
_WORDS = {
    "stopped": ("stopped by a signal or a debugger", "被信号或调试器暂停"),
    "blocked": ("blocked in {place} (uninterruptible)", "阻塞在 {place}（不可中断）"),
    "working": ("at work ({cpu} of a processor)", "在运行（占用 {cpu} 个处理器）"),
    "asleep": ("asleep in {place}", "睡眠在 {place}"),
    "waiting": ("in {place}", "在 {place}"),
}


class Seen(NamedTuple):
    """A process that was there, and what the kernel says of it; ``place`` is the function of the kernel, if it is shown."""

    event: Event
    doing: Doing
    place: str | None

    @property
    def stands(self) -> str:
        """Where it is, in no language."""
        state, cpu = self.event.fields.get("state", "?"), self.event.fields.get("cpu")
        if self.doing == "working":
            return f"state {state} (CPU {cpu})"
        return (
            self.place if self.place and self.doing in ("asleep", "waiting") else f"state {state} ({self.place or '-'})"
        )

    def words(self, language: str) -> str:
        """Return what it does."""
        text = _WORDS[self.doing][language == "zh"]
        return text.format(place=self.place or "?", cpu=self.event.fields.get("cpu", "?"))


def seen(case: Case) -> list[Seen]:
    """Return the processes of ranks that were there when somebody looked last."""
    return [
        _read(event) for event in case.telling("host", "pid", examined="hang") if event.fields.get("state") != _GONE
    ]


def _read(event: Event) -> Seen:
    given = event.fields
    # A compiler's copy of a function: poll_schedule_timeout.constprop.0
    place = given.get("wchan", "-").partition(".")[0]
    cpu = event.number("cpu")
    doing: Doing = (
        "stopped" if given.get("state") in _STOPPED
        else "blocked" if given.get("state") == _UNINTERRUPTIBLE
        else "working" if cpu is not None and cpu >= AT_WORK
        else "asleep" if place in SLEEPS
        else "waiting"
    )  # fmt: skip
    return Seen(event, doing, place if place != "-" else None)


def stopped(case: Case) -> tuple[list[Seen], list[Seen]]:
    """Return the processes that are stopped, and the others; both are empty where all or most are."""
    found = seen(case)
    still = [one for one in found if one.doing == "stopped"]
    others = [one for one in found if one.doing != "stopped"]
    return (still, others) if len(still) <= len(others) else ([], [])


def apart(case: Case) -> tuple[list[Seen], list[Seen]]:
    """Return the processes that differ from most in what the kernel says of them, and the others, where no stack tells more.

    Those that do something are told from those that wait, as long as they are no more; else the minority from the rest.
    """
    if case.value("stacks.dumped"):
        return [], []
    found = seen(case)
    waiting = [one for one in found if one.doing == "waiting"]
    busy = [one for one in found if one.doing != "waiting"]
    if 0 < len(busy) <= len(waiting):
        return busy, waiting
    alike: dict[tuple[str, str | None], list[Seen]] = defaultdict(list)
    for one in found:
        alike[one.doing, one.place if one.doing in ("waiting", "blocked") else None].append(one)
    groups = sorted(alike.values(), key=len, reverse=True)
    few = [one for group in groups[1:] for one in group]
    return (few, groups[0]) if groups and 0 < len(few) < len(groups[0]) else ([], [])


class _Process(Protocol):
    """A process that a line tells about."""

    @property
    def event(self) -> Event: ...


def of_sides(value: object, who: Sequence[_Process], others: Sequence[_Process] = ()) -> Fact | None:
    """Return a fact with a line of each side first, followed by the lines of the other processes in question."""
    return Fact(value, [one.event for one in (*who[:1], *others[:1], *who[1:7])]) if who else None


@fact("hang.all_there", "how many ranks the job has, if a process of each was there when somebody looked at them")
def _all_there(case: Case) -> Fact | None:
    found = seen(case)
    looked = case.telling("host", "pid", examined="hang")
    ranks = {whole(one.event.fields.get("rank")) for one in found}
    world = max((whole(event.fields.get("world_size")) or 0 for event in looked), default=0)
    if not found or len(found) < len(looked) or case.telling(examined="gone"):
        return None
    return Fact(len(found), []) if None in ranks or len(ranks) >= world else None


@fact("hang.stopped", "how many processes are stopped while the others are not")
def _stopped(case: Case) -> Fact | None:
    return of_sides(len(stopped(case)[0]), *stopped(case))


@fact("hang.stopped_pids", "their pids, as text")
def _stopped_pids(case: Case) -> Fact | None:
    still, others = stopped(case)
    return of_sides(" ".join(one.event.fields["pid"] for one in still), still, others)


@fact("hang.apart", "how many processes differ from most in what the kernel says of them, where there are no stacks")
def _apart(case: Case) -> Fact | None:
    few, others = apart(case)
    return of_sides(len(few), few, others)


@fact("hang.apart_doing", "what the first of them does: stopped, blocked, working, asleep or waiting")
def _apart_doing(case: Case) -> Fact | None:
    few, others = apart(case)
    return of_sides(few[0].doing if few else None, few, others)


@fact("hang.apart_in", "where the first of them is in the kernel: the function, or the letter of its state")
def _apart_in(case: Case) -> Fact | None:
    few, others = apart(case)
    return of_sides(few[0].stands if few else None, few, others)


@fact("hang.others_in", "where the first of the others is in the kernel")
def _others_in(case: Case) -> Fact | None:
    _, others = apart(case)
    return of_sides(others[0].stands if others else None, others)


@fact("hang.others", "how many the others are")
def _others(case: Case) -> Fact | None:
    _, others = apart(case)
    return of_sides(len(others), others)
