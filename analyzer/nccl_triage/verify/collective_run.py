"""A run of collectives in the verifier: its hosts and ranks, its limits, what each rank reported, and what it shows.

Plain data: no torch, no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from nccl_triage.verify.worker.ops import DTYPES, operation

if TYPE_CHECKING:
    from nccl_triage.verify.transport import Transport

RunOutcome = Literal["passed", "wrong-data", "error", "crashed", "hung", "not-run"]


@dataclass(frozen=True, slots=True)
class SlotGpu:
    """The GPU of a rank: ``device`` as its process counts, index as nvidia-smi does, UUID and PCI address (``0000:4f:00``)."""

    device: int
    index: int
    uuid: str = ""
    bus: str | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """One rank of the whole job: its number, the index of its host, and its GPU (None without one)."""

    number: int
    place: int
    gpu: SlotGpu | None = None


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
    device: float = 30.0

    def scaled(self, factor: float) -> Deadlines:
        """Return all limits times a factor, those before the store left alone: importing takes what it takes."""
        limits = ("store", "group", "entered", "first", "timed", "grace")
        return replace(self, **{name: getattr(self, name) * factor for name in limits})

    def waiting(self, timeout: float | None, seconds: float = 0.0) -> Deadlines:
        """Return limits for a collective that may take ``seconds`` for its size, and for the library's own timeout.

        A timeout that is longer than any experiment may take (``LONGEST`` times the limit of the first collective) is
        scaled down to the usual one.
        """
        usual = replace(
            self, entered=self.entered + seconds, first=self.first + 2 * seconds, timed=self.timed + seconds
        )
        if timeout is None or not usual.first / 2 < timeout <= LONGEST * self.first:
            return usual
        return replace(usual, first=timeout + usual.first / 2)

    def library(self, timeout: float | None) -> float:
        """Return the library's own timeout within these limits: half of the parent's unless a shorter one is asked for."""
        return timeout if timeout is not None and timeout < self.first else self.first / 2

    def before(self, stage: str) -> float:
        """Return the limit until the mark ``stage``."""
        limits = {
            "start": self.start,
            "imported": self.start,
            "device": self.device,
            "store": self.store,
            "group": self.group,
            "entered": self.entered,
            "warm": self.first,
            "done": self.timed,
        }
        return limits[stage]

    def longest(self) -> float:
        """Return the most that one run can take."""
        ready = self.start + self.device
        return ready + self.store + self.group + self.entered + self.first + self.timed + self.grace


#: The longest timeout of an experiment, as a multiple of the usual limit of the first collective.
LONGEST = 3.0
#: Several hosts: slower imports, and connections that are tried again for a minute.
SEVERAL_HOSTS = Deadlines(
    start=120.0, store=45.0, group=90.0, entered=30.0, first=90.0, timed=60.0, grace=8.0, device=60.0
)
#: GB/s of bus bandwidth below which nothing is waited for: Gloo adds on the CPU, NCCL on a slow network moves less.
SLOWEST = {"gloo": 0.1, "nccl": 0.5}
#: Seconds that are waited for the size of a collective at most: how much memory there is, only the ranks will know.
MOST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CollectiveMessage:
    """The collective as the log names it, or as it is scaled: elements of one rank's input."""

    op: str = "ALLREDUCE"
    numel: int = 1 << 20
    dtype: str = "float32"
    root: int = 0
    pair: tuple[int, int] = (0, 1)

    def moved(self, world: int) -> float:
        """Return the bytes that go over the bus in a group of ``world`` ranks."""
        row = operation(self.op)
        return row.bytes(self.numel, world, DTYPES[self.dtype]) * row.bus_factor(world)


@dataclass(frozen=True, slots=True)
class CollectiveRun:
    """One run of one collective on some slots with one setting; ``label`` says what it stands for.

    ``more`` are further collectives in the same processes, after the first: setting up is what takes long on GPUs.
    ``joins`` is how far the ranks come together: in the experiments about the store, no group is made. ``sweep`` are
    sizes (bytes, as nccl-tests counts them) at which the collective is timed, too.
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
    joins: Literal["store", "group"] = "group"
    sweep: tuple[int, ...] = ()
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

    @property
    def shares_gpus(self) -> bool:
        """Whether two ranks run on one GPU."""
        used = [(slot.place, slot.gpu) for slot in self.slots if slot.gpu is not None]
        return len(set(used)) < len(used)

    @property
    def size_seconds(self) -> float:
        """Seconds that its largest collective may take for its size alone, on the slowest link that is waited for."""
        messages = (self.message, *self.more)
        return min(MOST_SECONDS, max(message.moved(self.world) for message in messages) / (SLOWEST[self.backend] * 1e9))

    def env_of(self, rank: int) -> dict[str, str]:
        """Return the variables of a rank: those of all, and its own."""
        return {**self.env, **self.per_rank_env.get(rank, {})}


#: Characters of an error in a reason.
_TEXT = 300


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
    sizes: list[dict[str, Any]] = field(default_factory=list)
    error: dict[str, Any] | None = None
    exit_code: int | None = None
    exited_at: float | None = None
    state: str | None = None
    killed: bool = False

    @property
    def done(self) -> bool:
        """Whether the rank ended as it should."""
        return "done" in self.times

    @property
    def own_failure(self) -> dict[str, str] | None:
        """Why this rank never tried anything of the job: no torch, no NCCL, no process, no time to import."""
        number = self.slot.number
        if self.error is not None:
            if not self.error.get("own"):
                return None
            kind, text = str(self.error.get("type", "")), str(self.error.get("text", ""))
            what = (text if kind in ("", "OwnFailureError") else f"{kind}: {text}")[:_TEXT]
            return {"en": f"rank {number} could not run: {what}", "zh": f"rank {number} 无法运行：{what}"}
        if "imported" in self.times:
            return None
        if self.exit_code is not None and not self.killed:
            how = f"exit code {self.exit_code}"
            return {
                "en": f"rank {number} ended while it imported torch ({how})",
                "zh": f"rank {number} 在导入 torch 时结束（{how}）",
            }
        return {
            "en": f"rank {number} had not imported torch when its time was up",
            "zh": f"rank {number} 未能在限时内导入 torch",
        }


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
    transport: Transport | None = None

    @property
    def own_failure(self) -> dict[str, str] | None:
        """Why the run says nothing of hosts or job (in both languages): the verifier's own failure; None if it does.

        One rank that could not start is enough: the others only waited for it.
        """
        failures = (trace.own_failure for _, trace in sorted(self.ranks.items()))
        found = next((failure for failure in failures if failure is not None), None)
        if found is None and self.outcome == "not-run":
            return {"en": self.reason, "zh": self.reason}
        return found

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
