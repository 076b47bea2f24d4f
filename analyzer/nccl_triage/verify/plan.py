"""Plans experiments from a question and the available means: what runs, where, how long at most, with how much memory.

A plan says how an experiment differs from the failure, since a pass refutes only if the experiment is at least as large.
No torch and no I/O: a plan is made before anything is touched, and ``--dry-run`` shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nccl_triage.engine.schema import Cause, Experiment, Text
from nccl_triage.errors import UsageError
from nccl_triage.verify.collective_run import (
    SEVERAL_HOSTS,
    CollectiveMessage,
    CollectiveRun,
    Deadlines,
    Slot,
)
from nccl_triage.verify.differences import ExperimentComparison, differences
from nccl_triage.verify.means import Means
from nccl_triage.verify.placement import Request, gpu_env, places_for, slots_of, untested
from nccl_triage.verify.question import Question, SuspectedCause
from nccl_triage.verify.worker.memory import GPU_SHARE
from nccl_triage.verify.worker.ops import DTYPES, Operation, operation
from nccl_triage.verify.worker.payload import BITS

#: Runs of the control and of each treatment that a verdict needs.
REPEATS = 2
#: Elements of a collective whose size the log does not tell.
DEFAULT_NUMEL = 1 << 20
#: Suspects that are put to the test, best first.
SUSPECTS = 3
#: Seconds that the probe of reachability takes at most.
PROBE_SECONDS = 50.0


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of the user; raises UsageError for a time that is not above 0.

    ``job_hosts``: the hosts are those of the job, even if the log does not say so.
    ``trust_env``: the user vouches for the plugins, files and addresses in the log's variables.
    """

    backend: str = "auto"
    world: int | None = None
    timeout_factor: float = 1.0
    budget: float = 300.0
    suspects: int = SUSPECTS
    allow_busy: bool = False
    job_hosts: bool = False
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
        return self.limits(self.control).longest() * REPEATS * (1 + len(self.experiment.vary))

    @property
    def memory(self) -> int:
        """Bytes that one rank holds at most."""
        if self.control is None:
            return 0
        message = self.control.message
        return operation(message.op).memory(message.numel, self.control.world, DTYPES[message.dtype])

    def limits(self, run: CollectiveRun) -> Deadlines:
        """Return the deadlines of a run: those of the experiment, unless its size or its own timeout asks for more."""
        return self.deadlines.waiting(run.timeout, run.size_seconds)


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


def backend_of(request: Request, means: Means, options: PlanOptions) -> str | None:
    """Return the backend of an experiment, or None when it needs GPUs and NCCL that are not there.

    A job of Gloo is repeated with Gloo, wherever it is tested, unless a cause needs NCCL or the user asks for it.
    """
    gloo = "gloo" if request.experiment.backend == "any" else None
    of_gloo = options.backend == "auto" and request.question.backend == "gloo" and gloo is not None
    if options.backend == "gloo" or of_gloo:
        return gloo
    if means.why_no_nccl(places_for(request, means)) is None:
        return "nccl"
    return gloo if options.backend == "auto" else None


def message_of(
    question: Question, experiment: Experiment, means: Means, world: int, backend: str
) -> tuple[CollectiveMessage, int]:
    """Return the message that is sent and the elements that the log asked for, if need be of another type.

    The size is bounded by the free memory alone, of which ranks know more than the planner: they may scale it down.
    """
    if experiment.kind in ("store", "versions"):
        return CollectiveMessage("INIT", 1), 1
    op = question.op or "ALLREDUCE"
    if experiment.kind == "single" and (not operation(op).symmetric or operation(op).size == "none"):
        op = "ALLREDUCE"  # every GPU must have data to check
    row = operation(op)
    dtype, wanted = _typed(question, row, backend)
    if experiment.kind == "single":
        wanted = max(wanted, DEFAULT_NUMEL)
    numel = wanted
    if backend == "nccl" and means.gpu_free:
        sharing = -(-world // max(1, len(means.places) * means.gpus))
        numel = row.fitting(wanted, world, DTYPES[dtype], int(means.gpu_free * GPU_SHARE) // sharing)
    return CollectiveMessage(op, numel, dtype, root=question.root if question.root < world else 0), wanted


#: Types that no backend reduces, or that the verifier does not know, and one with elements as large.
_LIKE = {"int16": "bfloat16", "uint16": "bfloat16", "complex64": "float64", "complex32": "float32", "uint64": "int64"}


def _typed(question: Question, row: Operation, backend: str) -> tuple[str, int]:
    """Return the type that an experiment uses for the log's, and how many of its elements are as many bytes.

    NCCL moves 8-bit floats, but reduces them only from 2.24 on and on Hopper GPUs or newer; Gloo knows none.
    """
    named, numel = (question.dtype or "float32").lower(), question.numel or DEFAULT_NUMEL
    if named in BITS:
        if row.reduces:
            return "bfloat16", max(1, numel // 2)
        return ("uint8" if backend == "gloo" else named), numel
    return (named if named in DTYPES else _LIKE.get(named, "float32")), numel


def _why_not(request: Request, means: Means, options: PlanOptions, backend: str | None) -> Text | None:
    experiment, places = request.experiment, places_for(request, means)
    if experiment.kind == "none":
        return experiment.why_not
    if experiment.kind == "memory":
        return _text(
            "A rerun cannot show it: memory depends on the model, so rely on the numbers in the log.",
            "重新运行无法验证：显存占用取决于模型，应以日志中的数字为准。",
        )
    if experiment.scope == "hosts" and len(means.places) < 2:
        hosts = ", ".join(request.question.hosts[:4]) or "the job"
        return _text(
            f"it needs at least two hosts of the job ({hosts}): name them with --host, or use --launcher ray or slurm",
            f"需要作业的至少两台主机（{hosts}）：用 --host 指定，或使用 --launcher ray 或 slurm",
        )
    if backend is None:
        reason = means.why_no_nccl(places) if options.backend != "gloo" else None
        reason = reason or _text("--backend gloo was asked for", "指定了 --backend gloo")
        return _text(f"it needs GPUs and NCCL: {reason['en']}", f"需要 GPU 和 NCCL：{reason['zh']}")
    return means.why_no_torch(places)


def _why_not_accused(request: Request, means: Means) -> Text | None:
    """Return why a fault of certain GPUs cannot be tested: none of them can be used."""
    missing = list(untested(request, means, slots_of(request, means, "nccl")))
    if request.experiment.kind != "single" or not missing or len(missing) < len(request.suspect.gpus):
        return None
    return {lang: "; ".join(reason[lang] for reason in missing) for lang in ("en", "zh")}


def control_run(request: Request, means: Means, slots: tuple[Slot, ...], backend: str) -> CollectiveRun:
    """Return the control of an experiment on some slots."""
    question, experiment = request.question, request.experiment
    message, _ = message_of(question, experiment, means, len(slots), backend)
    limit = question.timeout if any(item.variable == "timeout" for item in experiment.vary) else None
    store = experiment.kind == "store"
    # The watchdog's line does not tell the dtype: half precision, in which models train, goes the same way.
    both = question.dtype is None and message.op not in ("INIT", "BARRIER")
    return CollectiveRun(
        label="control",
        slots=slots,
        message=message,
        backend=backend,
        device="cuda" if backend == "nccl" else "cpu",
        env=dict(question.env),
        per_rank_env=gpu_env(slots, means),
        iterations=experiment.iterations,
        timeout=limit,
        port=question.port if store else None,
        store_address=question.master if store and len(means.places) > 1 else None,
        more=(replace(message, dtype="bfloat16"),) if both else (),
        joins="store" if store else "group",
    )


def plan_one(question: Question, suspect: SuspectedCause, cause: Cause, means: Means, options: PlanOptions) -> Planned:
    """Plan the experiment of one suspect."""
    experiment = cause.experiment
    request = Request(question, suspect, experiment, options.world)
    backend = backend_of(request, means, options)
    why_not = _why_not(request, means, options, backend)
    deadlines = (SEVERAL_HOSTS if len(means.places) > 1 else Deadlines()).scaled(options.timeout_factor)
    slots: tuple[Slot, ...] = ()
    if why_not is None and backend is not None:
        slots = slots_of(request, means, backend)
        why_not = _CROWDED if not slots else _why_not_accused(request, means) if backend == "nccl" else None
    if why_not is not None or backend is None:
        return Planned(suspect, experiment, None, why_not, deadlines=deadlines)
    run = control_run(request, means, slots, backend)
    planned = Planned(suspect, experiment, run, None, deadlines=deadlines)
    return compared(planned, question, means, means.names_in_log(run.places, question))


#: Ranks outnumber GPUs that take one process each.
_CROWDED: Text = {
    "en": "more ranks are needed than there are GPUs, and these take one process each (exclusive-process mode, or a MIG "
    "instance, of which NCCL before 2.30.7 takes one per GPU)",
    "zh": "所需 rank 多于 GPU，而这些 GPU 只允许一个进程（exclusive-process 模式或 MIG 实例；NCCL 2.30.7 之前每块 GPU 只能用一个实例）",
}


def compared(planned: Planned, question: Question, means: Means, names: tuple[str, ...]) -> Planned:
    """Return an experiment with what tells its control from the failure, on the hosts of these names if any are known."""
    run = planned.control
    if run is None:
        return planned
    _, wanted = message_of(question, planned.experiment, means, run.world, run.backend)
    comparison = ExperimentComparison(question, planned.suspect, planned.experiment, run, wanted, names)
    found, complete = differences(comparison)
    request = Request(question, planned.suspect, planned.experiment)
    left_out = tuple(untested(request, means, run.slots)) if run.backend == "nccl" else ()
    return replace(planned, differs=(*found, *left_out), complete=complete and not left_out)


def build(question: Question, causes: Mapping[str, Cause], means: Means, options: PlanOptions) -> Plan:
    """Return the plan for the first suspects of a question."""
    chosen: Sequence[SuspectedCause] = [entry for entry in question.suspects if entry.cause in causes][
        : options.suspects
    ]
    planned = tuple(plan_one(question, suspect, causes[suspect.cause], means, options) for suspect in chosen)
    return Plan(question, means, options, planned)
