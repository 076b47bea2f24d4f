"""The Python interface: ``from nccl_triage import diagnose``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from nccl_triage import lazy_regex
from nccl_triage.classifier import model as models
from nccl_triage.classifier.model import Model
from nccl_triage.document import evidence
from nccl_triage.document.diagnosis import Diagnosis, diagnose_observations
from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import InputError
from nccl_triage.execution import engines
from nccl_triage.execution.jobs import Grouping, ScannedJobs, by_speakers
from nccl_triage.ingest import context_lines
from nccl_triage.ingest.sources import find_sources
from nccl_triage.observations.store import Observations
from nccl_triage.redaction.secrets import mask_secrets

PathLike = str | Path


def diagnose(
    paths: PathLike | Iterable[PathLike],
    *,
    rules: RuleSet | None = None,
    rules_dirs: Sequence[Path] = (),
    jobs: int | None = 1,
    stdin: BinaryIO | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    model: Model | Literal["shipped"] | None = "shipped",
    since: float | None = None,
    engine: engines.Engine | None = None,
    further: Sequence[Callable[[Observations], Observations]] = (),
    baseline: PathLike | Iterable[PathLike] | None = None,
) -> Diagnosis:
    """Diagnose the logs of one job: files, folders, globs or ``-``. Of a stream with the pods of several jobs, one that failed.

    ``jobs`` is the number of processes that scan; None starts as many as pay. ``progress`` is told now and then how many bytes have been read and how many there are, as they lie on the disk;
    None when a pipe is among them; it begins anew with the job's own logs where those of ``baseline`` were read before. ``model`` is the classifier whose vote is weighed beside the rules; None leaves the rules alone. With ``since``
    (seconds of the epoch) folders are searched for what was written from then on. ``engine`` is where the logs are read;
    None is this machine, ``execution.cluster.RayEngine`` the nodes of a Ray cluster, which has its own ``jobs`` and ``since``.
    Each of ``further`` is called with what was scanned; what it returns is weighed beside it. ``baseline`` are the logs
    of a good run of the same job, read on this machine: what differs from it is evidence.

    Raises ``errors.InputError`` when nothing can be read and ``errors.RuleError`` when a user's rule is wrong.
    """
    started = time.monotonic()
    lazy_regex.code.recall()
    ruleset = rules if rules is not None else load.load(tuple(rules_dirs))
    producers = (*further, *_against(baseline, ruleset, jobs, progress))
    with engine or engines.LocalEngine(jobs, stdin, since) as place:
        scanned = place.scan(_listed(paths), ruleset, progress)
        voting = models.shipped() if model == "shipped" else model
        told = [job.observations for job in by_speakers(scanned)] or [scanned]
        for one in told if len(told) > 1 else ():
            one.notes.append(f"the input holds {len(told)} jobs, by the names of their pods; this is about one of them")
        diagnosis = _gravest([_finished(one, ruleset, voting, producers, place) for one in told])
    diagnosis.seconds = round(time.monotonic() - started, 3)
    return diagnosis


class DiagnosedJob(NamedTuple):
    """A job of several, what to call it, and its diagnosis."""

    name: str
    diagnosis: Diagnosis


@dataclass(slots=True)
class Jobs:
    """The jobs of an input, which are diagnosed one by one while one goes through them."""

    scanned: ScannedJobs
    diagnoses: Iterator[DiagnosedJob]

    def __len__(self) -> int:
        return len(self.scanned.jobs)

    def __iter__(self) -> Iterator[DiagnosedJob]:
        return self.diagnoses


def diagnose_jobs(
    paths: PathLike | Iterable[PathLike],
    *,
    rules: RuleSet | None = None,
    rules_dirs: Sequence[Path] = (),
    engine: engines.LocalEngine | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    model: Model | Literal["shipped"] | None = "shipped",
    further: Sequence[Callable[[Observations], Observations]] = (),
    baseline: PathLike | Iterable[PathLike] | None = None,
    grouping: Grouping = Grouping.BY_TRAITS,
) -> Jobs:
    """Find the jobs in the logs of any number of them, and diagnose each; arguments are those of ``diagnose``.

    ``grouping`` says what is done where neither names nor contents show for certain what belongs together.
    """
    started = time.monotonic()
    lazy_regex.code.recall()
    ruleset = rules if rules is not None else load.load(tuple(rules_dirs))
    producers = (*further, *_against(baseline, ruleset, None, progress))
    place = engine or engines.LocalEngine(None)
    scanned = place.scan_jobs(_listed(paths), ruleset, progress, grouping)
    voting = models.shipped() if model == "shipped" else model

    def each() -> Iterator[DiagnosedJob]:
        for job in scanned.jobs:
            diagnosis = _finished(job.observations, ruleset, voting, producers, place)
            diagnosis.seconds = round(time.monotonic() - started, 3)
            yield DiagnosedJob(job.name, diagnosis)

    return Jobs(scanned, each())


def _finished(
    scanned: Observations,
    rules: RuleSet,
    model: Model | None,
    producers: Iterable[Callable[[Observations], Observations]],
    place: engines.Engine,
) -> Diagnosis:
    """Return the diagnosis of a job with what producers know of it, and the lines around the evidence."""
    observations = scanned
    for produce in producers:
        observations = observations.beside(produce(scanned))
    diagnosis = diagnose_observations(observations, rules, model)
    diagnosis.excerpts = place.excerpts(evidence.excerpt_lines(diagnosis))
    return diagnosis


def _gravest(diagnoses: Sequence[Diagnosis]) -> Diagnosis:
    """Return the diagnosis of a job that failed, the surest one; that of any other job if all went well."""
    return max(diagnoses, key=lambda one: (one.verdict != "healthy", one.verdict == "diagnosed", one.confidence or 0.0))


def trace_line(diagnosis: Diagnosis, paths: Sequence[str], path: str, number: int) -> dict[str, Any]:
    """Return the way of a line of the logs that were diagnosed, with every secret masked.

    Raises ``InputError`` where the logs hold no such line, or cannot be read again.
    """
    from nccl_triage.document import line_trace

    sources, _ = find_sources(paths, None, names=None)
    wanted = Path(path).absolute()
    source = next((one for one in sources if one.rereadable and Path(one.path).absolute() == wanted), None)
    if source is None:
        raise InputError("{path} is not among the logs that were read", path=path)
    try:
        texts = context_lines.texts(source, line_trace.HEAD, number) if number else {}
    except OSError as error:
        raise InputError("cannot read {path}", cause="{why}", path=path, why=error.strerror or error) from None
    if number not in texts:
        raise InputError("{path} has no line {number}", path=path, number=number)
    return mask_secrets(line_trace.describe(diagnosis, source.path, number, texts))


def _listed(paths: PathLike | Iterable[PathLike]) -> list[str]:
    return [str(paths)] if isinstance(paths, (str, Path)) else [str(path) for path in paths]


def _against(
    baseline: PathLike | Iterable[PathLike] | None,
    rules: RuleSet,
    jobs: int | None,
    progress: Callable[[int, int | None], None] | None,
) -> Iterator[Callable[[Observations], Observations]]:
    """Yield what compares a run with a good one, where there is one."""
    if baseline is not None and (given := _listed(baseline)):
        from nccl_triage.baseline import run

        yield run.against(engines.LocalEngine(jobs).scan(given, rules, progress), rules)
