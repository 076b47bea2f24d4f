"""Which logs, and which speakers of one log, belong to the same job.

An input may hold several jobs: the outputs of an array, the folders of a week, the pods of two jobs in one stream. A
*share* of it, the logs or the pods that are surely of one job, has *traits*: ids, ranks, sizes, commands, a span of time.
Two shares are compared by them. The ids of a scheduler, of a communicator and of a process decide; the rest makes it
likely, and who asks is told which way it was taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise

from nccl_triage.ingest import pods
from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.parsers import times
from nccl_triage.story.identity import MAX_WORLD

#: Variables that hold the id of a job.
_ID_VARIABLES = frozenset({"SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"})
#: Ids in one log from which on it tells of jobs and is of none, as that of a scheduler does.
_MANY_IDS = 4
#: Fields with the number of ranks of the whole job.
_WORLDS = ("world_size", "world", "dist_world_size")
#: Seconds between two spans of time from which on they are apart: output may be held back, and clocks differ.
APART = 600.0
#: Process ids below are those of containers, which count from 1 in each.
_OWN_PIDS = 1000
#: Lines that are remembered of a share.
_MOST_SAID = 200
#: Shares of one group without any likeness from which on they are not the logs of one job's programs.
MANY = 4
#: Roles of pods that say what a process does in a job; hosts are called node, head or server as well.
_ROLES = frozenset({"master", "worker", "launcher", "chief", "trainer", "ps", "replica"})
#: What differs between the hosts of a job in its launch command.
_OF_NODE = lazily(r"--?(?:node[_-]rank|machine[_-]rank|host)[= ]\S{1,80}|^\W*\S{0,80}[$#%] ")


class Likeness(IntEnum):
    """Whether two shares are of one job, as far as their traits tell."""

    OTHER = 0
    RATHER_OTHER = 1
    RATHER_SAME = 2
    SAME = 3


@dataclass(slots=True)
class Traits:
    """What tells the job of some logs from others."""

    ids: set[str] = field(default_factory=set)
    communicators: set[str] = field(default_factory=set)
    processes: set[tuple[str, int]] = field(default_factory=set)
    #: Ranks that speak, each with the processes that it is known to be.
    ranks: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    #: What ranks print of steps and errors: the output of a rank may be in two logs.
    said: set[tuple[str, float | None]] = field(default_factory=set)
    errors: set[tuple[str, float | None]] = field(default_factory=set)
    worlds: set[int] = field(default_factory=set)
    commands: set[str] = field(default_factory=set)
    #: Jobs that the names of pods tell, and the roles of these pods.
    pods: set[str] = field(default_factory=set)
    roles: set[str] = field(default_factory=set)
    #: The first and the last time, where a year is known.
    start: float | None = None
    end: float | None = None
    steps: bool = False
    finished: bool = False
    failed: bool = False
    launched: bool = False

    @property
    def is_main(self) -> bool:
        """Whether a job worked, failed or began in it; a report about a host is of any job."""
        return self.steps or self.finished or self.failed or self.launched

    @property
    def works(self) -> bool:
        """Whether a job began, advanced or finished in it."""
        return self.steps or self.finished or self.launched

    def note(self, event: Event) -> None:
        """Take what an event tells."""
        context, fields = event.context, event.fields
        if context.job is not None:
            self.ids.add(context.job)
        if (step := fields.get("stepid")) is not None:
            self.ids.add(step.partition(".")[0])
        if event.kind == "variable" and (fields.get("var") or fields.get("name")) in _ID_VARIABLES:
            self.ids.add(fields.get("value", "").strip("'\""))
        if (made := fields.get("comm_id")) is not None:
            self.communicators.add(made)
        process = {(context.host or context.place or "", context.pid)} if context.pid is not None else set()
        self.processes |= process
        if context.rank is not None:
            self.ranks.setdefault(context.rank, set()).update(process)
        kept = self.errors if event.is_failure else self.said
        if len(kept) < _MOST_SAID and (event.kind == "step" or (event.is_failure and context.rank is not None)):
            kept.add((event.text, context.time))
        for name in _WORLDS:
            if (world := whole(fields.get(name))) is not None and 0 < world < MAX_WORLD:
                self.worlds.add(world)
        if context.place is not None:
            pod = pods.read(context.place)
            self.pods.add(pod.job)
            if pod.role is not None:
                self.roles.add(pod.role)
        if context.time is not None and times.has_year(context.time):
            self.start = context.time if self.start is None else min(self.start, context.time)
            self.end = context.time if self.end is None else max(self.end, context.time)
        self.steps = self.steps or event.role == "progress"
        self.finished = self.finished or event.kind == "job.finished"
        self.failed = self.failed or event.is_failure
        if event.kind == "job.launched":
            self.launched = True
            self.commands.add(" ".join(_OF_NODE.sub("", event.text).split()))

    def add(self, other: Traits) -> None:
        """Take those of another share of the same job."""
        for name in ("ids", "communicators", "processes", "said", "errors", "worlds", "commands", "pods", "roles"):
            getattr(self, name).update(getattr(other, name))
        for rank, processes in other.ranks.items():
            self.ranks.setdefault(rank, set()).update(processes)
        for name in ("steps", "finished", "failed", "launched"):
            setattr(self, name, getattr(self, name) or getattr(other, name))
        self.start = min((t for t in (self.start, other.start) if t is not None), default=None)
        self.end = max((t for t in (self.end, other.end) if t is not None), default=None)

    def settle(self) -> None:
        """Forget ids that are those of other jobs."""
        if len(self.ids) >= _MANY_IDS:
            self.ids.clear()


def traits_of(events: Iterable[Event], ids: Iterable[str | None] = ()) -> Traits:
    """Return the traits of events, and of logs whose names tell these ids."""
    found = Traits()
    for event in events:
        found.note(event)
    found.settle()
    found.ids.update(one for one in ids if one is not None)
    return found


def compare(one: Traits, two: Traits) -> Likeness | None:
    """Return how like two shares are, None where their traits do not tell."""
    if one.ids & two.ids or one.communicators & two.communicators:
        return Likeness.SAME
    if one.ids and two.ids:
        return Likeness.OTHER
    together = not _apart(one, two)
    if any(host or pid >= _OWN_PIDS for host, pid in one.processes & two.processes) and together:
        return Likeness.SAME
    if not together or (one.commands and two.commands and not one.commands & two.commands):
        return Likeness.RATHER_OTHER
    if one.worlds and two.worlds and not one.worlds & two.worlds:
        return Likeness.RATHER_OTHER
    shared = one.ranks.keys() & two.ranks.keys()
    if one.ranks and two.ranks and not shared:
        return Likeness.SAME if one.worlds & two.worlds else Likeness.RATHER_SAME
    if any(one.ranks[r] and two.ranks[r] and not one.ranks[r] & two.ranks[r] for r in shared):
        return Likeness.RATHER_OTHER
    if _tell_apart(one.said, two.said) or _end_unlike(one, two):
        return Likeness.RATHER_OTHER
    if shared and not (one.said and two.said) and _tell_apart(one.errors, two.errors):
        return Likeness.RATHER_OTHER
    return None


def _apart(one: Traits, two: Traits) -> bool:
    """Tell whether two spans of time are known and far from each other."""
    if one.start is None or two.start is None or one.end is None or two.end is None:
        return False
    return one.start - two.end > APART or two.start - one.end > APART


def _tell_apart(one: set[tuple[str, float | None]], two: set[tuple[str, float | None]]) -> bool:
    """Tell whether both say something and mostly other things: the output of a rank may stand in two logs."""
    return bool(one and two) and 2 * len(one & two) < min(len(one), len(two))


def _end_unlike(one: Traits, two: Traits) -> bool:
    """Tell whether one ended well and the other did not."""
    return (one.finished and not one.failed and two.failed) or (two.finished and not two.failed and one.failed)


def overlap(one: Traits, two: Traits) -> bool:
    """Tell whether the times of two shares are known, and near each other."""
    return one.start is not None and two.start is not None and not _apart(one, two)


def are_jobs(files: Mapping[int, Traits]) -> Likeness | None:
    """Tell of files by the numbers in their names, which may be ranks, whether each is a job; None: they are ranks.

    Their traits are those of their lines alone.
    """
    every = list(files.values())
    ids = [one.ids for one in every if one.ids]
    if len(ids) > 1 and not set.intersection(*ids):
        return Likeness.OTHER
    if any(number > 0 and number in one.ranks for number, one in files.items()):
        return None
    if sum(0 in one.ranks for one in every) > 1 or any(_apart(one, two) for one, two in pairwise(every)):
        return Likeness.RATHER_OTHER
    if any(one.communicators or max(one.worlds, default=0) > 1 for one in every):
        return None
    return Likeness.RATHER_OTHER if any(one.is_main for one in every) else None


def speakers(observations: Observations) -> dict[str, Traits]:
    """Return the traits of each job that the records of the input name, or the names of pods; fewer than two: one job.

    What names no job is of all of them. Pods with other names may be of one job, unless something else tells.
    """
    events: dict[str, list[Event]] = {}
    for event in observations.kept():
        if (name := label(event)) is not None:
            events.setdefault(name, []).append(event)
    if len(events) < 2:
        return {}
    found = {name: traits_of(mine) for name, mine in sorted(events.items())}
    main = {name: traits for name, traits in found.items() if traits.is_main}
    return main if len(main) > 1 else {}


def label(event: Event) -> str | None:
    """Return the job that a record names, or the name of its pod; None for one that is of any job."""
    context = event.context
    if context.job is not None:
        return context.job
    if context.place is None:
        return None
    return pods.read(context.place).job or None


def compare_speakers(one: Traits, two: Traits) -> Likeness:
    """Return how like the pods of two names are."""
    if one.ids and two.ids:
        return Likeness.SAME if one.ids & two.ids else Likeness.OTHER
    found = compare(one, two)
    if found is Likeness.SAME:
        return found
    if one.roles & two.roles & _ROLES and not _share_a_word(one.pods, two.pods):
        return Likeness.OTHER  # by the names that a controller gave to the workers of two jobs
    if _end_unlike(one, two) or (found is Likeness.RATHER_OTHER and one.works and two.works):
        return Likeness.RATHER_OTHER
    return Likeness.RATHER_SAME


def _share_a_word(one: Iterable[str], two: Iterable[str]) -> bool:
    """Tell whether names of jobs begin alike, as those of the groups of workers of one cluster do."""
    return bool({name.partition("-")[0] for name in one} & {name.partition("-")[0] for name in two})
