"""Run the tools over rebuilt logs, each log in a process of its own, and write what they say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import orjson

from corpus.wild import nvrx
from corpus.wild.answers import SAYS, Answers, common, read
from corpus.wild.manifest import Entry
from nccl_triage.api import diagnose
from nccl_triage.classifier import model as models
from nccl_triage.classifier.model import Model
from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import UsageError
from nccl_triage.evaluation import run as evaluation

#: The tool that the benchmark was made for, and the others of its table.
OURS, RULES, NVRX = "nccl-triage", "rules alone", "nvrx"
#: Ours without one of the learned parts: what each of them adds and spoils.
WITHOUT: dict[str, Callable[[Model], Model]] = {
    "without endings": lambda model: replace(model, form=replace(model.form, ending=None)),
    "without telling lines": lambda model: replace(model, form=replace(model.form, telling=None)),
    "without the vote": lambda model: replace(model, idf={}, weights={}),
}
TOOLS = (OURS, RULES, *WITHOUT, *evaluation.BASELINES, NVRX)


def answers_of(folder: Path, tool: str) -> Path:
    """Return the folder that holds the answers of a tool."""
    return folder / "answers" / tool.replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Job:
    """One log to be diagnosed."""

    entry: Entry
    folder: Path
    rules: RuleSet
    #: Interpreter that has nvidia-resiliency-ext, None where there is none.
    python: str | None


def _write(folder: Path, tool: str, name: str, document: dict[str, Any]) -> None:
    (answers_of(folder, tool) / f"{name}.json").write_bytes(orjson.dumps(document))


def _ours(job: Job) -> None:
    case = job.entry.case(job.folder)
    diagnosis = diagnose(case.log, rules=job.rules)
    write = partial(_write, job.folder, name=case.id)
    write(OURS, document=diagnosis.to_dict(similar=False))
    alone = diagnose_observations(diagnosis.case.observations, job.rules, None)
    write(RULES, document=common(evaluation.outcome_of(case, alone), SAYS))
    model = models.shipped()
    for tool, reduced in WITHOUT.items():
        less = diagnose_observations(diagnosis.case.observations, job.rules, None if model is None else reduced(model))
        write(tool, document=common(evaluation.outcome_of(case, less), SAYS))
    causes = evaluation.cause_of_signature(job.rules)
    for tool, outcome in evaluation.baselines_of(case, diagnosis, causes).items():
        # A line is all that they name; the cause would be looked up in our own rules.
        write(tool, document=common(outcome, ("line",)))


def _nvrx(job: Job) -> None:
    if job.python is None:
        return
    logs = [job.folder / "logs" / job.entry.id / name for name in job.entry.names]
    response = nvrx.ask(job.python, logs)
    if response is not None:
        _write(job.folder, NVRX, job.entry.id, response)


def one(job: Job) -> str | None:
    """Diagnose a log with every tool; return the id where one of them raised an error."""
    failed = None
    for work in (_ours, _nvrx):
        try:
            work(job)
        except Exception as error:  # a log that a tool cannot read counts against it, and stops no other
            failed = f"{job.entry.id}: {type(error).__name__}"
    return failed


def run(entries: Sequence[Entry], folder: Path, python: str | None, jobs: int) -> list[str]:
    """Let every tool answer on rebuilt logs; return the ids of logs on which one raised an error."""
    for tool in TOOLS:
        if tool == NVRX and python is None:
            continue  # what it said of the same logs before still holds
        place = answers_of(folder, tool)
        place.mkdir(parents=True, exist_ok=True)
        for entry in entries:
            (place / f"{entry.id}.json").unlink(missing_ok=True)
    rules = load.load()
    models.shipped()  # read once, before the processes are forked
    work = [Job(entry, folder, rules, python) for entry in entries]
    with get_context("fork").Pool(jobs, maxtasksperchild=50) as pool:
        return [failed for failed in pool.imap_unordered(one, work) if failed]


def compared(entries: Sequence[Entry], folder: Path) -> list[Answers]:
    """Return the answers that lie in a folder, of each tool that gave any."""
    places = [(tool, answers_of(folder, tool)) for tool in TOOLS]
    return [read(place, tool, entries, folder) for tool, place in places if place.is_dir()]


def interpreter(chosen: str | None) -> str | None:
    """Return the Python that has nvidia-resiliency-ext: the chosen one, or this if it has it, else None."""
    if nvrx.is_installed(chosen or sys.executable):
        return chosen or sys.executable
    if chosen is not None:
        raise UsageError(
            "{python} does not have nvidia-resiliency-ext",
            remedy="name a Python that can import nvidia_resiliency_ext.attribution.restart_agent",
            python=chosen,
        )
    return None
