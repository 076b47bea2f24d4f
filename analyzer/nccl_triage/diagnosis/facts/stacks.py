"""Dumped stacks: where the processes of a hanging job stand, which of them wait, and which are elsewhere.

A process whose frames tell nothing is not blamed: it runs its own code, or waits for a GPU in ``tensor.item()``. Nobody
dumps the stacks of a healthy job.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.diagnosis.facts.hang import AT_WORK, SLEEPS, of_sides
from nccl_triage.engine.schema import Activity
from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event
from nccl_triage.parsers.stacks import SIGNATURE, is_standard
from nccl_triage.recorder.lines import spans

#: Packages whose frames do not belong to the job's own code.
_PACKAGES = frozenset(
    [
        "torch",
        "deepspeed",
        "transformers",
        "accelerate",
        "megatron",
        "lightning",
        "pytorch_lightning",
        "ray",
        "vllm",
        "sglang",
        "trl",
        "peft",
        "datasets",
        "apex",
        "transformer_engine",
        "safetensors",
        "numpy",
    ]
)
_LINE = lazily(r":\d+\)$")
#: Activities of processes that meet others in a call, so that all of a group should be in the same one.
_MEETS = frozenset({"collective", "rendezvous"})
#: Calls between two ranks: one sends what the other receives.
_BETWEEN_TWO = lazily(r"^(?:batch_isend_irecv|i?(?:send|recv)(?:_object_list)?|_?p2p\w*)$")
#: The activity of a worker of a data loader.
WORKER = "data-worker"
#: The activity of a process that waits for work.
IDLE = "idle"
#: Frames of functions that generate text.
_GENERATES = lazily(r"(?:^|\.)(?:generate|generate_sequences|_sample|_beam_search|sample|rollout) \(")


class StackReading(NamedTuple):
    """What the frames of a stack tell.

    ``frames`` have the form ``function (path:line)``, innermost first. ``decides`` is the index of the frame that tells the
    activity, and ``own`` that of the innermost frame of the job's own code. ``call`` is the collective that was called.
    """

    frames: tuple[str, ...]
    activity: Activity | None
    decides: int
    own: int | None
    generates: bool
    shown: str
    place: str | None
    call: str | None


class Stack(NamedTuple):
    """The stack of one process, and what it tells.

    ``moved``: an earlier dump of the process differs, so that it is not blocked. ``busy``: it is known to wait for no GPU, or to
    sleep, so that what its own code does needs no other rank.
    """

    event: Event
    read: StackReading
    moved: bool = False
    busy: bool = False

    @property
    def activity(self) -> Activity | None:
        """What the process does, if its frames tell."""
        return self.read.activity

    @property
    def waits(self) -> bool:
        """Whether the process waits for other ranks, or for a GPU that may wait for them."""
        return self.activity is not None and self.activity.stands == "waiting"

    @property
    def away(self) -> bool:
        """Whether the process does something that needs no other rank."""
        if self.activity is None:
            return self.busy and self.read.own is not None
        return self.activity.stands == "elsewhere"

    @property
    def generates(self) -> bool:
        """Whether the process generates text."""
        return self.read.generates

    @property
    def place(self) -> str | None:
        """The innermost function of the job's own code, without its line."""
        return self.read.place

    @property
    def call(self) -> str | None:
        """The collective in which the process waits; sends and receives are one."""
        return self.read.call

    @property
    def line(self) -> str | None:
        """The line of the job's own code at which the process waits, if it waits for no GPU: then it is not ahead of one."""
        return self.read.frames[self.read.own] if self.busy and self.read.own is not None else None

    @property
    def called(self) -> str:
        """The collective in which the process waits, and the line that called it."""
        own = self.read.frames[self.read.own] if self.read.own is not None else None
        return f"{self.call} ({own.rpartition('(')[2]}" if self.call and own else self.shown

    @property
    def shown(self) -> str:
        """The deciding frame, then the innermost frame of the job's own code or else the outermost frame."""
        return self.read.shown


def of_case(case: Case) -> list[Stack]:
    """Return the last stack of each process, except helpers such as launchers and workers of data loaders."""
    return [one for one in _all(case) if one.activity is None or one.activity.stands != "helper"]


def loading(case: Case) -> list[tuple[Stack, str]]:
    """Return the workers of data loaders that stand in the job's own code, each with its frame there."""
    workers = [one for one in _all(case) if one.activity is not None and one.activity.id == WORKER]
    return [
        (one, one.read.frames[one.read.own])
        for one in workers
        if one.read.own is not None and one.read.own < one.read.decides
    ]


def _all(case: Case) -> list[Stack]:
    return list(case.value("stacks.all") or [])


@fact("stacks.all", "every process with a dumped stack, as last dumped: ranks, launchers, data loader workers")
def _last_stacks(case: Case) -> Fact | None:
    last: dict[tuple[object, ...], Stack] = {}
    busy = _busy(case)
    known: dict[str, StackReading] = {}
    for number, event in enumerate(case.of(SIGNATURE)):
        text = event.fields.get("frames", "")
        if text not in known:  # most processes stand at the same place
            known[text] = _read(tuple(text.split("\n")), case.rules.activities.values())
        rank, pid = case.rank(event), event.context.pid
        key = (number,) if rank is None and pid is None else (case.host(event), rank, pid)
        moved = key in last and last[key].read.frames != known[text].frames
        host = case.host(event)
        hosts = busy.get(("rank", rank) if pid is None else ("pid", pid), ()) if key != (number,) else ()
        last[key] = Stack(event, known[text], moved, any(host in (None, other) for other in hosts))
    return Fact(list(last.values()), [one.event for one in last.values()][:2]) if last else None


def _busy(case: Case) -> dict[tuple[str, int | None], set[str]]:
    """Return the processes that wait for no GPU, by what was seen of them while they hung: pid or rank -> hosts."""
    found: dict[tuple[str, int | None], set[str]] = defaultdict(set)
    for event in case.telling("host", "pid", examined="hang"):
        if event.fields.get("gpu") == "no" or event.fields.get("wchan") in SLEEPS:
            for name in ("pid", "rank"):
                found[name, whole(event.fields.get(name))].add(event.fields["host"])
    return found


def kinds(stacks: Iterable[Stack]) -> list[str]:
    """Return the distinct activities of processes."""
    return sorted({one.activity.id for one in stacks if one.activity is not None})


def elsewhere(case: Case) -> tuple[list[Stack], list[Stack]]:
    """Return the processes that do something which needs no other rank, and those that wait.

    Both lists are empty if the former outnumber the latter.
    """
    found = of_case(case)
    waiting = [one for one in found if one.waits]
    away = [one for one in found if one.away]
    return (away, waiting) if len(away) <= len(waiting) else ([], [])


def alone(case: Case) -> list[Stack]:
    """Return the dumped processes if none of them waits. Others may wait for what they do."""
    found = of_case(case)
    return [] if any(one.waits for one in found) else found


def apart(case: Case) -> tuple[list[Stack], list[Stack]]:
    """Return the minority that waits at another place in the code than the majority, and the majority.

    Places differ if only one of them is below ``generate``, or if the functions of the job's own code differ, or the
    collectives that they call. Other lines of the same function are the same place for processes that may run ahead of a GPU.
    Both lists are empty if any process does not wait.
    """
    found = of_case(case)
    if not all(one.waits for one in found):
        return [], []
    ways: tuple[Callable[[Stack], object], ...] = (
        lambda one: one.generates,
        lambda one: one.place,
        lambda one: one.call,
        lambda one: one.line,
    )
    return next((parted for way in ways if (parted := _parted(found, way)) is not None), ([], []))


def calls(case: Case) -> list[list[Stack]]:
    """Return the processes by the collective in which they wait, most first, if all wait in one and not in the same."""
    found = of_case(case)
    by_call: dict[str | None, list[Stack]] = defaultdict(list)
    for one in found:
        by_call[one.call].append(one)
    differ = len(by_call) > 1 and None not in by_call and all(one.waits for one in found)
    return sorted(by_call.values(), key=lambda those: -len(those)) if differ else []


def at_odds(case: Case) -> list[Stack]:
    """Return the processes in other collectives than most are; both of two, since either may be wrong."""
    groups = calls(case)
    if not groups:
        return []
    others = [one for those in groups[1:] for one in those]
    if len(groups[0]) == len(groups[1]):
        return [*groups[0], *others] if len(others) == 1 else []
    return others if len(others) <= len(groups[0]) else []


def _parted(stacks: Sequence[Stack], place: Callable[[Stack], object]) -> tuple[list[Stack], list[Stack]] | None:
    groups = Counter(place(one) for one in stacks if place(one) is not None).most_common(2)
    if len(groups) < 2 or groups[0][1] == groups[1][1]:
        return None
    common, number = groups[0]
    minority = [one for one in stacks if place(one) not in (common, None)]
    return (minority, [one for one in stacks if place(one) == common]) if len(minority) < number else None


def _read(frames: tuple[str, ...], table: Iterable[Activity]) -> StackReading:
    helpers = [one for one in table if one.stands == "helper"]
    others = [one for one in table if one.stands != "helper"]
    # The outermost frame may be the one that identifies a helper.
    found = _first(frames, helpers) or _first(frames, others)
    own = next((number for number, frame in enumerate(frames) if _is_own(frame)), None)
    if found is not None and found[0].id == IDLE and own is not None and own < found[1]:
        found = None  # a loop that waits for work has got some
    activity, decides = found if found is not None else (None, own or 0)
    numbers = sorted({decides, own if own is not None else len(frames) - 1})
    return StackReading(
        frames=frames,
        activity=activity,
        decides=decides,
        own=own,
        generates=any(_GENERATES.search(frame) for frame in frames),
        shown=" < ".join(frames[number] for number in numbers),
        place=_LINE.sub("", frames[own]) if own is not None else None,
        call=_call(frames[decides:own], activity) if activity is not None and activity.id in _MEETS else None,
    )


def _call(frames: Sequence[str], activity: Activity) -> str | None:
    """Return the function of the activity that the job's own code called: the outermost one."""
    called = [
        frame.partition(" (")[0].rpartition(".")[2] for frame in frames if activity.frame.search(frame) is not None
    ]
    if not called:
        return None
    return "send or recv" if _BETWEEN_TWO.match(called[-1]) else called[-1]


def _is_own(frame: str) -> bool:
    """Tell whether a frame belongs to the job's own code rather than to a package or the standard library."""
    return not is_standard(frame) and _PACKAGES.isdisjoint(frame.rpartition("(")[2].split("/")[:-1])


def _first(frames: Sequence[str], table: Sequence[Activity]) -> tuple[Activity, int] | None:
    """Return the first activity that matches a frame, by the innermost such frame, and the index of the frame."""
    return next(
        ((one, number) for number, frame in enumerate(frames) for one in table if one.frame.search(frame) is not None),
        None,
    )


@fact("stacks.dumped", "how many processes' stacks were dumped, as people do for a hung job")
def _dumped(case: Case) -> Fact | None:
    found = of_case(case)
    return of_sides(len(found), found[:2])


@fact("stacks.doing", "what the dumped processes do, as far as known: activities of rules/stacks")
def _doing(case: Case) -> Fact | None:
    found = [one for one in of_case(case) if one.activity is not None]
    return of_sides(kinds(found), found)


@fact("stacks.diverging", "processes outside any collective while others are in one")
def _diverging(case: Case) -> Fact | None:
    found = of_case(case)
    inside = [one for one in found if one.waits]
    outside = [one for one in found if not one.waits]
    meets = _MEETS.intersection(kinds(inside))
    return of_sides(len(outside), outside, inside) if meets else None


@fact("stacks.elsewhere", "processes in something that needs no other rank while the others wait")
def _elsewhere(case: Case) -> Fact | None:
    away, waiting = elsewhere(case)
    return of_sides(len(away), away, waiting)


@fact("stacks.elsewhere_doing", "what they do: activities of rules/stacks")
def _elsewhere_doing(case: Case) -> Fact | None:
    away, waiting = elsewhere(case)
    return of_sides(kinds(away), away, waiting)


@fact("stacks.elsewhere_frame", "the telling frame of the first of them, and the job's own frame below it")
def _elsewhere_frame(case: Case) -> Fact | None:
    away, waiting = elsewhere(case)
    return of_sides(away[0].shown if away else None, away, waiting)


@fact("stacks.elsewhere_moved", "how many of them moved between two dumps: they run, and are not blocked")
def _elsewhere_moved(case: Case) -> Fact | None:
    away, waiting = elsewhere(case)
    moved = [one for one in away if one.moved]
    return of_sides(len(moved), moved, waiting)


@fact("stacks.elsewhere_runs", "how many of them took half a processor or more between the two looks at them")
def _elsewhere_runs(case: Case) -> Fact | None:
    away, waiting = elsewhere(case)
    runs = {
        whole(event.fields.get("pid"))
        for event in case.telling("host", "pid", "cpu", examined="hang")
        if (event.number("cpu") or 0.0) >= AT_WORK
    }
    running = [one for one in away if one.event.context.pid in runs]
    return of_sides(len(running), running, waiting)


@fact("stacks.waiting", "how many wait meanwhile")
def _waiting(case: Case) -> Fact | None:
    _, waiting = elsewhere(case)
    return of_sides(len(waiting), waiting)


@fact("stacks.waiting_frame", "where the first waiting process is")
def _waiting_frame(case: Case) -> Fact | None:
    _, waiting = elsewhere(case)
    return of_sides(waiting[0].shown if waiting else None, waiting)


@fact("stacks.alone_frame", "where the first dumped process is, if none of them waits for others")
def _alone_frame(case: Case) -> Fact | None:
    found = alone(case)
    return of_sides(found[0].shown if found else None, found)


@fact("stacks.apart", "how many wait in a different place than the majority")
def _apart(case: Case) -> Fact | None:
    minority, rest = apart(case)
    return of_sides(len(minority), minority, rest)


@fact("stacks.apart_frame", "where the first of them is")
def _apart_frame(case: Case) -> Fact | None:
    minority, rest = apart(case)
    return of_sides(minority[0].shown if minority else None, minority, rest)


@fact("stacks.majority_frame", "where the first of the majority is")
def _majority_frame(case: Case) -> Fact | None:
    _, rest = apart(case)
    return of_sides(rest[0].shown if rest else None, rest)


@fact("stacks.apart_generating", "whether one of the two sides generates text and the other does not")
def _apart_generating(case: Case) -> Fact | None:
    minority, rest = apart(case)
    return of_sides(True, minority, rest) if minority and minority[0].generates != rest[0].generates else None


#: Collectives that a sentence names, and ranks or pids of each.
_CALLS, _NAMES = 4, 8


@fact(
    "stacks.calls",
    "the collectives in which the dumped processes wait and who in which, if all wait and not in the same",
)
def _calls(case: Case) -> Fact | None:
    groups = calls(case)
    told = [f"{whose(case, those)} in {those[0].called}" for those in groups[:_CALLS]]
    more = [f"and {len(groups) - _CALLS} more"] if len(groups) > _CALLS else []
    # The line of the fewest proves most.
    return of_sides(", ".join([*told, *more]), [those[0] for those in reversed(groups)])


def whose(case: Case, those: Sequence[Stack]) -> str:
    """Return processes in words: ``rank 0-2``, ``pid 812``, or how many they are."""
    ranks = [rank for one in those if (rank := case.rank(one.event)) is not None]
    pids = [pid for one in those if (pid := one.event.context.pid) is not None]
    if len(ranks) == len(those):
        return f"rank {spans(sorted(ranks))}"
    return (
        f"pid {', '.join(map(str, sorted(pids)))}" if len(pids) == len(those) <= _NAMES else f"{len(those)} processes"
    )


@fact("stacks.together", "how many are in the same place, if all dumped ones are")
def _together(case: Case) -> Fact | None:
    found = of_case(case)
    places = {(one.activity.id if one.activity else None, one.place, one.call, one.line) for one in found}
    return of_sides(len(found), found) if len(found) > 1 and len(places) == 1 and found[0].waits else None


@fact("stacks.loading_frame", "where in the job's own code a data loader worker is")
def _loading_frame(case: Case) -> Fact | None:
    found = loading(case)
    return of_sides(found[0][1] if found else None, [one for one, _ in found])
