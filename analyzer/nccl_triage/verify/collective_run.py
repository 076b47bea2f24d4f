"""A run of collectives in the verifier: its hosts and ranks, its limits, what each rank reported, and what it shows.

Plain data: no torch, no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

RunOutcome = Literal["passed", "wrong-data", "error", "crashed", "hung", "not-run"]


@dataclass(frozen=True, slots=True)
class HostPlace:
    """A host where ranks can run: the command that reaches it (empty for this host), and the most ranks on it."""

    name: str
    command: tuple[str, ...] = ()
    slots: int | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """One rank of the whole job: its number, and the index of its host."""

    number: int
    place: int


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a rank may spend before each mark; the parent keeps them, the library's own limit is half.

    Values of ``reference`` experience: a cold import from NFS takes a minute, NCCL retries a connection for about 60 s.
    """

    start: float = 60.0
    store: float = 15.0
    group: float = 30.0
    entered: float = 20.0
    first: float = 30.0
    timed: float = 45.0
    grace: float = 5.0

    def scaled(self, factor: float) -> Deadlines:
        """Return all limits times a factor, the start's left alone: importing takes what it takes."""
        return Deadlines(
            self.start,
            *(value * factor for value in (self.store, self.group, self.entered, self.first, self.timed, self.grace)),
        )

    def before(self, stage: str) -> float:
        """Return the limit until the mark ``stage``."""
        limits = {
            "start": self.start,
            "imported": self.start,
            "device": self.start,
            "store": self.store,
            "group": self.group,
            "entered": self.entered,
            "warm": self.first,
            "done": self.timed,
        }
        return limits[stage]

    def longest(self) -> float:
        """Return the most that one run can take."""
        return self.start + self.store + self.group + self.entered + self.first + self.timed + self.grace


#: Several hosts: slower imports, and connections that are tried again for a minute.
SEVERAL_HOSTS = Deadlines(start=120.0, store=45.0, group=90.0, entered=30.0, first=90.0, timed=60.0, grace=8.0)


@dataclass(frozen=True, slots=True)
class CollectiveMessage:
    """The collective as the log names it, or as it is scaled: elements of one rank's input."""

    op: str = "ALLREDUCE"
    numel: int = 1 << 20
    dtype: str = "float32"
    root: int = 0
    pair: tuple[int, int] = (0, 1)


@dataclass(frozen=True, slots=True)
class CollectiveRun:
    """One run of one collective on some slots with one setting; ``label`` says what it stands for.

    ``more`` are further collectives in the same processes, after the first: setting up is what takes long on GPUs.
    ``alone``: no collective at all, each rank measures what it can compute by itself.
    """

    label: str
    slots: tuple[Slot, ...]
    message: CollectiveMessage
    backend: str = "gloo"
    device: str = "cpu"
    env: dict[str, str] = field(default_factory=dict)
    per_rank_env: dict[int, dict[str, str]] = field(default_factory=dict)
    iterations: int = 3
    timeout: float | None = None
    port: int | None = None
    store_address: str | None = None
    changed: str = ""
    faults: dict[str, Any] = field(default_factory=dict)
    more: tuple[CollectiveMessage, ...] = ()
    alone: bool = False

    @property
    def world(self) -> int:
        """The number of ranks."""
        return len(self.slots)

    @property
    def places(self) -> tuple[int, ...]:
        """The indices of the places used, each once, in order."""
        return tuple(dict.fromkeys(slot.place for slot in self.slots))

    def first_rank(self, place: int) -> int:
        """Return the first of the ranks at a place."""
        return next(rank for rank, slot in enumerate(self.slots) if slot.place == place)

    def env_of(self, rank: int) -> dict[str, str]:
        """Return the variables of a rank: those of all, and its own."""
        return {**self.env, **self.per_rank_env.get(rank, {})}


@dataclass(slots=True)
class RankTrace:
    """The reports of one rank of a run, and how it ended."""

    rank: int
    slot: Slot
    stage: str = "started"
    since: float = 0.0
    times: dict[str, float] = field(default_factory=dict)
    details: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    flight: list[dict[str, Any]] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    error: dict[str, Any] | None = None
    exit_code: int | None = None
    exited_at: float | None = None
    state: str | None = None
    killed: bool = False

    @property
    def done(self) -> bool:
        """Whether the rank ended as it should."""
        return "done" in self.times


@dataclass(slots=True)
class RunResult:
    """The result of a run: how it ended, at which stage, after how long, and the trace of each rank.

    ``ras`` is what NCCL's RAS reported on each host (name -> text) before the ranks were ended.
    """

    run: CollectiveRun
    outcome: RunOutcome
    stage: str
    seconds: float
    ranks: dict[int, RankTrace]
    reason: str = ""
    folder: str | None = None
    cleaned_s: float = 0.0
    symptoms: list[dict[str, Any]] = field(default_factory=list)
    ras: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every rank finished with the right data."""
        return self.outcome == "passed"

    @property
    def median(self) -> float | None:
        """The median seconds of an iteration on the slowest of the ranks that finished; None when none told it."""
        told = [trace.details["done"].get("median") for trace in self.ranks.values() if trace.done]
        return max((value for value in told if value is not None), default=None)


@dataclass(frozen=True, slots=True)
class RunFinding:
    """A finding of a run or of the probe: the cause that it is evidence for, and the ranks and hosts that stand out."""

    cause: str
    kind: str
    says: dict[str, str] = field(compare=False)
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def pair(self) -> tuple[str, ...]:
        """The two hosts between which it happens, or nothing."""
        return self.hosts if len(self.hosts) == 2 else ()
