"""Plans experiments from a question and the available means: what runs, where, how long at most, with how much memory.

A plan says how an experiment differs from the failure, since a pass refutes only if the experiment is at least as large.
No torch and no I/O: a plan is made before anything is touched, and ``--dry-run`` shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nccl_triage.engine.schema import Cause, Experiment, Text
from nccl_triage.errors import UsageError
from nccl_triage.verify.collective_run import (
    SEVERAL_HOSTS,
    CollectiveMessage,
    CollectiveRun,
    Deadlines,
    HostPlace,
    Slot,
)
from nccl_triage.verify.differences import ExperimentComparison, differences
from nccl_triage.verify.question import Question, SuspectedCause
from nccl_triage.verify.worker.ops import DTYPES, operation

#: Runs of the control and of each treatment that a verdict needs.
REPEATS = 2
#: Elements of a collective whose size the log does not tell.
DEFAULT_NUMEL = 1 << 20
#: Bytes of one rank's input at most: on GPUs further limited by free memory.
CPU_BYTES, GPU_BYTES = 64 << 20, 1 << 30
#: Ranks of a world whose size is free.
DEFAULT_WORLD = 4
#: Ranks that Gloo runs on one host at most.
CPU_WORLD = 8
#: Suspects that are put to the test, best first.
SUSPECTS = 3
#: Seconds that the probe of reachability takes at most.
PROBE_SECONDS = 35.0


@dataclass(frozen=True, slots=True)
class Means:
    """The available means: hosts, GPUs per host with the least free memory of one (bytes), and why there are none.

    ``gpu_faults`` is what the driver itself says is wrong with GPUs of this host; ``devices`` is CUDA_VISIBLE_DEVICES
    of the ranks where some of this host's GPUs must be left alone.
    """

    places: tuple[HostPlace, ...]
    gpus: int = 0
    gpu_free: int = 0
    gpu_name: str | None = None
    no_gpu: Text = field(default_factory=lambda: {"en": "no NVIDIA GPU is visible", "zh": "看不到 NVIDIA GPU"})
    torch: str | None = None
    gpu_faults: tuple[str, ...] = ()
    devices: str | None = None


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of the user; raises UsageError for a time that is not above 0.

    ``trust_env``: the user vouches for the plugins, files and addresses in the log's variables.
    """

    backend: str = "auto"
    world: int | None = None
    timeout_factor: float = 1.0
    budget: float = 300.0
    suspects: int = SUSPECTS
    allow_busy: bool = False
    trust_env: bool = False

    def __post_init__(self) -> None:
        for option, value in (("patience", self.timeout_factor), ("budget", self.budget)):
            if not value > 0:  # a wait of "nan" seconds would never end
                raise UsageError("--{option} {value}: expected a number above 0", option=option, value=value)


@dataclass(frozen=True, slots=True)
class Planned:
    """The experiment for one suspected cause: its control, its treatments, and how it differs from the failure."""

    suspect: SuspectedCause
    experiment: Experiment
    control: CollectiveRun | None
    why_not: Text | None
    differs: tuple[Text, ...] = ()
    complete: bool = False
    deadlines: Deadlines = field(default_factory=Deadlines)

    @property
    def seconds(self) -> float:
        """The most that all runs can take."""
        if self.control is None:
            return 0.0
        return self.deadlines.longest() * REPEATS * (1 + len(self.experiment.vary))

    @property
    def memory(self) -> int:
        """Bytes that one rank holds at most."""
        if self.control is None:
            return 0
        message = self.control.message
        return operation(message.op).memory(message.numel, self.control.world, DTYPES[message.dtype])

    def limits(self, run: CollectiveRun) -> Deadlines:
        """Return the deadlines of a run: those of the experiment, unless the run's own timeout asks for more."""
        if run.timeout is not None and run.timeout > self.deadlines.first / 2:
            return replace(self.deadlines, first=run.timeout + self.deadlines.first / 2)
        return self.deadlines


@dataclass(frozen=True, slots=True)
class Plan:
    """The experiments that will be carried out."""

    question: Question
    means: Means
    options: PlanOptions
    experiments: tuple[Planned, ...]

    @property
    def probes(self) -> bool:
        """Whether the reachability between hosts is measured."""
        return len(self.means.places) > 1 and any(entry.control is not None for entry in self.experiments)

    @property
    def seconds(self) -> float:
        """The most that the plan can take."""
        total = sum(entry.seconds for entry in self.experiments) + (PROBE_SECONDS if self.probes else 0.0)
        return min(self.options.budget, total)


def _text(en: str, zh: str) -> Text:
    return {"en": en, "zh": zh}


def backend_of(experiment: Experiment, means: Means, options: PlanOptions) -> str | None:
    """Return the backend of an experiment, or None when it needs GPUs that are not there."""
    if options.backend != "auto":
        return options.backend if options.backend == "nccl" or experiment.backend == "any" else None
    if means.gpus:
        return "nccl"
    return "gloo" if experiment.backend == "any" else None


def slots_of(
    question: Question, experiment: Experiment, means: Means, options: PlanOptions, backend: str
) -> tuple[Slot, ...]:
    """Return where the ranks of the control run: evenly over the places, numbered host by host."""
    places = range(len(means.places))
    if experiment.scope == "host":
        places = range(1)
    wanted = options.world or question.world or max(DEFAULT_WORLD if len(places) == 1 else 1, len(places))
    if backend == "nccl":
        # One GPU can be shared by two ranks: enough for everything but the paths between GPUs.
        most = max(2, means.gpus)
    else:
        most = CPU_WORLD
    least = 1 if experiment.scope == "rank" else 2
    wanted = max(least, wanted, len(places))
    each = [min(most, max(1, wanted // len(places) + (index < wanted % len(places)))) for index in places]
    each = [min(count, means.places[index].slots or count) for index, count in zip(places, each, strict=True)]
    numbers = iter(range(sum(each)))
    return tuple(Slot(next(numbers), place) for place, count in zip(places, each, strict=True) for _ in range(count))


def message_of(
    question: Question, experiment: Experiment, means: Means, world: int, backend: str
) -> tuple[CollectiveMessage, int]:
    """Return the message that is sent and the elements that the log asked for."""
    if experiment.kind in ("store", "versions"):
        return CollectiveMessage("INIT", 1), 1
    op = question.op or ("BARRIER" if experiment.kind == "single" else "ALLREDUCE")
    dtype = question.dtype if question.dtype in DTYPES else "float32"
    wanted = question.numel or DEFAULT_NUMEL
    row, element = operation(op), DTYPES[dtype]
    limit = CPU_BYTES if backend == "gloo" else min(GPU_BYTES, means.gpu_free // (4 * (1 + world)) or GPU_BYTES)
    numel = min(wanted, max(1, limit // (element * (world if row.size == "all" else 1))))
    return CollectiveMessage(op, numel, dtype), wanted


def _why_not(experiment: Experiment, question: Question, means: Means, backend: str | None) -> Text | None:
    if experiment.kind == "none":
        return experiment.why_not
    if experiment.kind == "memory":
        return _text(
            "A rerun cannot show it: memory depends on the model, so rely on the numbers in the log.",
            "重新运行无法验证：显存占用取决于模型，应以日志中的数字为准。",
        )
    if backend is None:
        reason = means.no_gpu
        return _text(f"it needs GPUs and NCCL: {reason['en']}", f"需要 GPU 和 NCCL：{reason['zh']}")
    if experiment.scope == "hosts" and len(means.places) < 2:
        hosts = ", ".join(question.hosts[:4]) or "the job"
        return _text(
            f"it needs at least two hosts of the job ({hosts}): name them with --host, or use --launcher ray or slurm",
            f"需要作业的至少两台主机（{hosts}）：用 --host 指定，或使用 --launcher ray 或 slurm",
        )
    if means.torch is None and len(means.places) == 1:
        return _text(
            "this Python has no PyTorch: use --python with the job's Python",
            "当前 Python 未安装 PyTorch：请用 --python 指定作业所用的解释器",
        )
    return None


def control_run(
    question: Question,
    suspect: SuspectedCause,
    experiment: Experiment,
    means: Means,
    options: PlanOptions,
    backend: str,
) -> tuple[CollectiveRun, int]:
    """Return the control of an experiment and the elements that the log asked for."""
    slots = slots_of(question, experiment, means, options, backend)
    message, wanted = message_of(question, experiment, means, len(slots), backend)
    limit = question.timeout if any(item.variable == "timeout" for item in experiment.vary) else None
    store, cuda = experiment.kind == "store", backend == "nccl"
    # The watchdog's line does not tell the dtype: half precision, in which models train, goes the same way.
    both = question.dtype is None and message.op not in ("INIT", "BARRIER")
    shared = cuda and 0 < means.gpus < max(Counter(slot.place for slot in slots).values())
    per_rank = {rank: {"NCCL_HOSTID": f"rank{rank}"} for rank in range(len(slots))} if shared else {}
    run = CollectiveRun(
        label="control",
        slots=slots,
        message=message,
        backend=backend,
        device="cuda" if cuda else "cpu",
        env={**question.env, **({"CUDA_VISIBLE_DEVICES": means.devices} if cuda and means.devices else {})},
        per_rank_env=per_rank,
        iterations=experiment.iterations,
        timeout=limit,
        port=question.port if store else None,
        store_address=question.master if store and len(means.places) > 1 else None,
        more=(replace(message, dtype="bfloat16"),) if both else (),
    )
    return run, wanted


def plan_one(question: Question, suspect: SuspectedCause, cause: Cause, means: Means, options: PlanOptions) -> Planned:
    """Plan the experiment of one suspect."""
    experiment = cause.experiment
    backend = backend_of(experiment, means, options)
    why_not = _why_not(experiment, question, means, backend)
    deadlines = (SEVERAL_HOSTS if len(means.places) > 1 else Deadlines()).scaled(options.timeout_factor)
    if why_not is not None or backend is None:
        return Planned(suspect, experiment, None, why_not, deadlines=deadlines)
    run, wanted = control_run(question, suspect, experiment, means, options, backend)
    names = tuple(means.places[place].name for place in run.places)
    differs, complete = differences(ExperimentComparison(question, experiment, run, wanted, means.gpus, names))
    return Planned(suspect, experiment, run, None, differs, complete, deadlines)


def build(question: Question, causes: Mapping[str, Cause], means: Means, options: PlanOptions) -> Plan:
    """Return the plan for the first suspects of a question."""
    chosen: Sequence[SuspectedCause] = [entry for entry in question.suspects if entry.cause in causes][
        : options.suspects
    ]
    planned = tuple(plan_one(question, suspect, causes[suspect.cause], means, options) for suspect in chosen)
    return Plan(question, means, options, planned)
