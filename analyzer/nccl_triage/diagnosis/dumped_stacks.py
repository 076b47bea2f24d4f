"""Where the processes of a hanging job stand, by the stacks that somebody dumped: who waits, and who is elsewhere.

A process whose frames say nothing blames nobody: its own code runs, or waits for a GPU in ``tensor.item()``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.engine.schema import Activity
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.parsers.stacks import SIGNATURE, is_standard

#: Packages whose frames are no place in the job's own code.
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
#: The activity of a data loader's worker.
WORKER = "data-worker"
#: Calls below which text is generated.
_GENERATES = lazily(r"(?:^|\.)(?:generate|generate_sequences|_sample|_beam_search|sample|rollout) \(")


@dataclass(frozen=True, slots=True)
class StackReading:
    """What frames tell: an activity, by which of them, and which is the job's own innermost one.

    ``frames`` are ``function (path:line)``, the innermost first; ``decides`` and ``own`` their numbers.
    """

    frames: tuple[str, ...]
    activity: Activity | None
    decides: int
    own: int | None
    generates: bool
    shown: str
    place: str | None


@dataclass(frozen=True, slots=True)
class Stack:
    """One process and what its frames tell."""

    event: Event
    read: StackReading

    @property
    def activity(self) -> Activity | None:
        """What it does, as far as its frames tell."""
        return self.read.activity

    @property
    def waits(self) -> bool:
        """Whether it waits for other ranks, or for a GPU that may wait for them."""
        return self.activity is not None and self.activity.stands == "waiting"

    @property
    def generates(self) -> bool:
        """Whether it stands below a call that generates text."""
        return self.read.generates

    @property
    def place(self) -> str | None:
        """The function of the job's own code, whatever its line."""
        return self.read.place

    @property
    def shown(self) -> str:
        """The frame that decides and the job's own, or the outermost one, called before its caller."""
        return self.read.shown


def of_case(case: Case) -> list[Stack]:
    """Return where each process stood when it was dumped last; launchers, loaders' workers and the like are left out."""
    return [one for one in _all(case) if one.activity is None or one.activity.stands != "helper"]


def loading(case: Case) -> list[tuple[Stack, str]]:
    """Return the workers of data loaders that stand in the job's own code, with the frame."""
    workers = [one for one in _all(case) if one.activity is not None and one.activity.id == WORKER]
    return [
        (one, one.read.frames[one.read.own])
        for one in workers
        if one.read.own is not None and one.read.own < one.read.decides
    ]


def _all(case: Case) -> list[Stack]:
    return list(case.value("stacks.all") or [])


@fact("stacks.all", "every process whose stack was dumped, as it was dumped last: ranks, launchers, loaders' workers")
def _dumped(case: Case) -> Fact | None:
    last: dict[tuple[object, ...], Stack] = {}
    known: dict[str, StackReading] = {}
    for number, event in enumerate(case.of(SIGNATURE)):
        text = event.fields.get("frames", "")
        if text not in known:  # nearly all stand where others do
            known[text] = _read(tuple(text.split("\n")), case.rules.activities.values())
        rank, pid = case.rank(event), event.context.pid
        key = (number,) if rank is None and pid is None else (case.host(event), rank, pid)
        last[key] = Stack(event, known[text])
    return Fact(list(last.values()), [one.event for one in last.values()][:2]) if last else None


def kinds(stacks: Iterable[Stack]) -> list[str]:
    """Return the activities of processes, each once."""
    return sorted({one.activity.id for one in stacks if one.activity is not None})


def elsewhere(case: Case) -> tuple[list[Stack], list[Stack]]:
    """Return those that do something which needs no other rank, and those that wait; nobody where the former are more."""
    found = of_case(case)
    waiting = [one for one in found if one.waits]
    away = [one for one in found if one.activity is not None and one.activity.stands == "elsewhere"]
    return (away, waiting) if len(away) <= len(waiting) else ([], [])


def alone(case: Case) -> list[Stack]:
    """Return the processes that were dumped, where none of them waits: what they do is what others may wait for."""
    found = of_case(case)
    return [] if any(one.waits for one in found) else found


def apart(case: Case) -> tuple[list[Stack], list[Stack]]:
    """Return the minority that waits at another place of the code than the majority, and the majority.

    Below ``generate`` or not is another place, and another function of the job's own code is; another line is not.
    Nobody is apart where one of the processes does not wait.
    """
    found = of_case(case)
    if not all(one.waits for one in found):
        return [], []
    return _parted(found, lambda one: one.generates) or _parted(found, lambda one: one.place) or ([], [])


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
    # What makes a process a helper may be its outermost frame.
    found = _first(frames, helpers) or _first(frames, others)
    own = next((number for number, frame in enumerate(frames) if _is_own(frame)), None)
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
    )


def _is_own(frame: str) -> bool:
    """Tell whether a frame is of the job's own code: of no package and not of the standard library."""
    return not is_standard(frame) and _PACKAGES.isdisjoint(frame.rpartition("(")[2].split("/")[:-1])


def _first(frames: Sequence[str], table: Sequence[Activity]) -> tuple[Activity, int] | None:
    """Return the first activity that knows one of the frames, from the first frame on, and its number."""
    return next(
        ((one, number) for number, frame in enumerate(frames) for one in table if one.frame.search(frame) is not None),
        None,
    )
