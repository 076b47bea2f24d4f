"""Runs that are planned in advance for ranks that somebody else starts: the control and its treatments, twice each.

Nothing is learnt between two runs, so only treatments that need no knowledge of the hosts are possible. A plan is saved
in the folder of its runs and read back from there.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import RuleSet, Text, Treatment
from nccl_triage.errors import UsageError
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.ssh import places_of
from nccl_triage.verify import plan
from nccl_triage.verify import runner as specs
from nccl_triage.verify.api import Settings
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Deadlines, Slot
from nccl_triage.verify.means import Means
from nccl_triage.verify.placement import DEFAULT_WORLD
from nccl_triage.verify.plan import REPEATS, Plan, Planned, PlanOptions
from nccl_triage.verify.question import Question
from nccl_triage.verify.reachability import ReachabilityMatrix
from nccl_triage.verify.treatments import KnownHosts, make, words
from nccl_triage.verify.worker.ops import DTYPES, OPERATIONS
from nccl_triage.verify.worker.progress import STAGES

#: Treatments that can be written down before anything has run.
STATIC = frozenset({"env", "size", "timeout", "placement", "variables", "port"})
#: GPUs of a host, as long as nobody says otherwise.
PER_HOST = 8
#: Ranks that are written down at most, whatever a log says: as many as --world takes.
MOST_WRITTEN = 4096


@dataclass(frozen=True, slots=True)
class Written:
    """One run as it will be started: its label and the deadlines that its ranks keep themselves."""

    label: str
    run: CollectiveRun
    deadlines: Deadlines

    @property
    def per_host(self) -> int:
        """The most ranks on one host."""
        return max(Counter(slot.place for slot in self.run.slots).values())

    @property
    def seconds(self) -> float:
        """The most that its ranks can take: they learn where the store is, and wait for the last one to be ready."""
        return self.deadlines.start + gather_wait(self.deadlines) + self.deadlines.longest()


def gather_wait(limits: Deadlines) -> float:
    """Return the seconds that a rank which is ready waits for the others, which may all start as late as it was early."""
    return limits.start + limits.device


@dataclass(slots=True)
class Design:
    """The experiment of one suspect: labels of its control and of each treatment, and what is left out and why."""

    planned: Planned
    control: list[str] = field(default_factory=list)
    treatments: list[tuple[Treatment, list[str]]] = field(default_factory=list)
    left_out: list[Text] = field(default_factory=list)


@dataclass(slots=True)
class Layout:
    """The written plan: its runs in their order, and the experiments that they belong to."""

    plan: Plan
    runs: list[Written] = field(default_factory=list)
    designs: list[Design] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The most that all runs can take: none is begun when the budget is spent, the last one may still end."""
        each = [written.seconds for written in self.runs]
        return min(sum(each), self.plan.options.budget + max(each, default=0.0))


def shape(question: Question, settings: Settings) -> tuple[int, int | None, int]:
    """Return the hosts, the ranks (None: the plan decides) and the most ranks on one host."""
    each, world = settings.ranks_per_host, settings.options.world
    if world is None and question.world is not None and question.world > MOST_WRITTEN:
        world = MOST_WRITTEN
    ranks = world or question.world or each or 1
    # A log often shows a part of the job: its hosts, and the ranks on each, are at least those that it names.
    usual = each or max([PER_HOST, *(len(found) for found in question.ranks_of.values())])
    hosts = len(settings.hosts) or max(0 if each else len(question.hosts), math.ceil(ranks / usual))
    if world is None and each is not None:
        world = hosts * each
    wanted = world or question.world or max(hosts, DEFAULT_WORLD if hosts == 1 else 1)
    return hosts, world, each or math.ceil(wanted / hosts)


def plan_of(question: Question, rules: RuleSet, settings: Settings) -> Plan:
    """Return the plan for hosts of which only the number is known, a GPU for each rank."""
    hosts, world, each = shape(question, settings)
    named = [place.name for place in places_of(settings.hosts)] if settings.hosts else []
    slots = settings.ranks_per_host
    places = tuple(HostPlace(named[index] if named else f"host {index + 1}", slots=slots) for index in range(hosts))
    options = replace(settings.options, world=world)

    def on(gpus: int) -> Plan:
        means = Means.alike(places, gpus)
        made = plan.build(question, rules.causes, means, options)
        return replace(made, experiments=tuple(plan.compared(entry, question, means, ()) for entry in made.experiments))

    made = on(0 if options.backend == "gloo" else each)
    used = {entry.control.backend for entry in made.experiments if entry.control is not None}
    return made if "nccl" in used or not used else on(0)


def lay_out(made: Plan, faults: dict[str, Any] | None = None) -> Layout:
    """Return the runs of a plan, each once however many suspects share it, those of the first suspect first."""
    layout = Layout(made)
    known: dict[str, list[str]] = {}

    def labels(run: CollectiveRun, planned: Planned) -> list[str]:
        run = _realised(replace(run, faults=faults or {}))
        key = repr(replace(run, changed=""))
        if key not in known:
            known[key] = [f"run-{len(layout.runs) + 1 + index:02d}" for index in range(REPEATS)]
            limits = _patient(planned.limits(run), len(run.places))
            layout.runs += [Written(label, replace(run, label=label), limits) for label in known[key]]
        return known[key]

    for planned in made.experiments:
        design = Design(planned)
        layout.designs.append(design)
        if planned.control is None:
            continue
        design.control = labels(planned.control, planned)
        for treatment in planned.experiment.vary:
            run = _treated(treatment, planned, planned.control, made)
            if run is not None:
                design.treatments.append((treatment, labels(run, planned)))
            elif treatment.variable not in STATIC:
                design.left_out.append(words(treatment))
    return layout


def _treated(treatment: Treatment, planned: Planned, control: CollectiveRun, made: Plan) -> CollectiveRun | None:
    if treatment.variable not in STATIC:
        return None
    known = KnownHosts(
        names=[place.name for place in made.means.places],
        facts=[],
        matrix=ReachabilityMatrix(),
        deadlines=planned.deadlines,
        means=made.means,
        suspect_variables=planned.suspect.variables,
    )
    # Which host is which is not known: inside one host stands for inside any.
    runs = make(treatment, control, known)
    return replace(runs[0], changed=words(treatment)["en"]) if runs else None


def _realised(run: CollectiveRun) -> CollectiveRun:
    """Return a run whose ranks meet without leaving their host when they all run on one."""
    if run.store_address is not None or len(run.places) > 1:
        return run
    return replace(run, store_address="127.0.0.1")


#: Seconds after which a network file system shows a new file on every host at the latest (acdirmax of nfs(5)).
_NOTICED = 60.0


def _patient(limits: Deadlines, places: int) -> Deadlines:
    """Return deadlines for ranks that meet through a folder: on several hosts some see later that all are ready."""
    return limits if places == 1 else replace(limits, store=limits.store + _NOTICED)


def spec_of(written: Written, plan_id: str) -> dict[str, Any]:
    """Return what every rank of a run needs to know, as its file has it."""
    run, limits = written.run, written.deadlines
    return {
        "label": written.label,
        "plan": plan_id,
        "changed": run.changed,
        **specs.spec_of(run, limits, run.port or 0, "auto"),
        "per_rank_env": {str(rank): env for rank, env in run.per_rank_env.items()},
        "places": [slot.place for slot in run.slots],
        "ranks_per_host": written.per_host,
        "store_wait": limits.start,
        "gather_wait": gather_wait(limits),
        "limits": {**{stage: limits.before(stage) for stage in STAGES}, "end": limits.grace},
        "deadline": written.seconds,
    }


def run_of(spec: Mapping[str, Any]) -> CollectiveRun:
    """Return the run that a file describes; raises KeyError, TypeError or ValueError for what is none."""
    slots = tuple(Slot(int(number), int(place)) for number, place in zip(spec["slots"], spec["places"], strict=True))
    if len(slots) != int(spec["world"]):
        raise ValueError("ranks and world differ")
    if any(part["op"] not in OPERATIONS or part["dtype"] not in DTYPES for part in (spec, *spec["more"])):
        raise ValueError("no known collective")
    first, second = spec["pair"]
    return CollectiveRun(
        label=str(spec["label"]),
        slots=slots,
        message=CollectiveMessage(
            str(spec["op"]), int(spec["numel"]), str(spec["dtype"]), int(spec["root"]), (int(first), int(second))
        ),
        backend=str(spec["backend"]),
        device=str(spec["device"]),
        env=dict(spec["env"]),
        per_rank_env={int(rank): dict(env) for rank, env in spec["per_rank_env"].items()},
        iterations=int(spec["iterations"]),
        timeout=float(spec["timeout"]),
        port=int(spec["store"]["port"]) or None,
        store_address=None if spec["store"]["host"] == "auto" else str(spec["store"]["host"]),
        changed=str(spec["changed"]),
        more=tuple(CollectiveMessage(str(part["op"]), int(part["numel"]), str(part["dtype"])) for part in spec["more"]),
        joins="store" if spec["joins"] == "store" else "group",
        sweep=tuple(int(size) for size in spec["sweep"]),
    )


def saved_options(options: PlanOptions) -> dict[str, Any]:
    """Return the options of a plan as plan.json holds them."""
    return {"patience" if name == "timeout_factor" else name: value for name, value in asdict(options).items()}


def options_of(saved: Mapping[str, Any]) -> PlanOptions:
    """Return the options that a saved plan was made with."""
    known = dict(saved)
    return PlanOptions(timeout_factor=known.pop("patience"), **known)


@dataclass(slots=True)
class Saved:
    """plan.json and the runs' files as they were written."""

    plan_id: str
    means: Means
    options: PlanOptions
    runs: dict[str, CollectiveRun]
    designs: dict[str, tuple[list[str], list[tuple[Treatment, list[str]]]]]


def read_saved(folder: Path) -> Saved:
    """Read a folder's plan; raises UsageError when it holds none."""
    try:
        told = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        runs = {
            str(label): run_of(json.loads((folder / f"spec-{label}.json").read_text(encoding="utf-8")))
            for label in told["runs"]
        }
        places = tuple(HostPlace(str(entry["name"]), slots=_count(entry["slots"])) for entry in told["places"])
        if not all(0 <= slot.place < len(places) for run in runs.values() for slot in run.slots):
            raise ValueError("a rank on a host that is not in the plan")
        return Saved(
            plan_id=str(told["plan"]),
            means=Means.alike(places, int(told["gpus"])),
            options=options_of(told["wishes"]),
            runs=runs,
            designs={str(entry["cause"]): _design(entry) for entry in told["experiments"]},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            "{folder} contains no plan of this version",
            cause="{name}: {error}",
            remedy="name the folder that was the --workdir of --launcher slurm or print",
            folder=folder,
            name=type(error).__name__,
            error=error,
        ) from None


def _count(value: object) -> int | None:
    return None if value is None else int(str(value))


def _design(entry: Mapping[str, Any]) -> tuple[list[str], list[tuple[Treatment, list[str]]]]:
    treatments = [
        (
            Treatment(str(item["variable"]), str(item["value"]), dict(item["env"])),
            [str(label) for label in item["runs"]],
        )
        for item in entry["treatments"]
    ]
    return [str(label) for label in entry["control"]], treatments
