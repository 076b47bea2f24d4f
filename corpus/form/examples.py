"""What the models of form and place learn from: whole logs and recordings, alone and with something put around them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from corpus import compositions
from corpus.compositions import ALL_WELL, WELL
from nccl_triage.diagnosis.verdict import case_of
from nccl_triage.engine import load
from nccl_triage.errors import InputError
from nccl_triage.evaluation import cases
from nccl_triage.evaluation.ablation import scan_case
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.learned import ending, telling
from nccl_triage.learned.ending import CUT, FAILED, FINISHED, NONE, RUNNING, STOPPED
from nccl_triage.observations.store import SourceInfo
from nccl_triage.scan.scanner import Scanner
from nccl_triage.story.story import Run

#: Made once, before the processes are forked.
_RULES = load.load()
_SCANNER = Scanner(_RULES)
#: Outcome of a label -> class of the model.
_CLASSES = {
    "finished": FINISHED, "running": RUNNING, "failed": FAILED, "hung": FAILED, "stopped": STOPPED, "cut": CUT,
    "none": NONE,
}  # fmt: skip
#: The class of a case whose label names no outcome; a failure of any other cause failed. Of what nobody can know, the
#: log ends before the job does, or is of none.
_BY_CAUSE = {"healthy": WELL, "job-preempted": STOPPED, "unknown": CUT}
#: Sources whose logs a program made: few ways, many logs.
MADE = ("recorded", "injected")
#: Sources whose groups are repositories: one may have logs in several folders.
PUBLIC = ("wild", "form")
#: Compositions of such a log, and bytes of the largest log that is composed.
_WAYS, _MOST_BYTES = 3, 400_000
#: The name of a log that ends in its setup, and its fewest lines.
SET_UP, _FEWEST = "set-up", 6
#: Texts of this repository that are no logs.
_TEXTS = (
    "*.md",
    "docs/**/*.md",
    "rules/causes/*.yaml",
    "tests/story/*.py",
    "corpus/**/*.py",
    "analyzer/nccl_triage/story/*.py",
)
#: Compositions from which is learnt which lines tell: what is put around may not look like it.
_TELLING = ("time-limit", "lsf-exited", "retried-early", "caught-early", "closing-banner")


@dataclass(frozen=True, slots=True)
class Example:
    """A log, alone or composed: how it ended with its features, and the candidates with whether a reader chose them.

    Examples of one ``group`` (a repository, a family of scenarios) are never split between folds.
    """

    id: str
    group: str
    made: bool
    composition: str | None
    outcome: str
    ending: frozenset[str]
    lines: tuple[tuple[frozenset[str], bool], ...] = ()
    #: Whether it shows how the run ended: a part of a log of unknown cause does not.
    ends: bool = True


@dataclass(frozen=True, slots=True)
class Wanted:
    """A labelled log of a set."""

    case: LabelledCase
    made: bool
    excerpt: bool = False


def wanted(folders: Sequence[Path], excerpts: bool = False) -> list[Wanted]:
    """Return the labelled logs of folders, without those that nobody may have seen; ``excerpts``: they are no whole logs."""
    found = []
    for folder in folders:
        for case in cases.read(folder):
            if not case.blind:
                group = case.group if case.source in PUBLIC else f"{folder.name}/{case.group}"
                made = excerpts or case.source in MADE or folder.name in MADE
                found.append(Wanted(replace(case, id=f"{folder.name}/{case.id}", group=group), made, excerpts))
    return found


def read(logs: Sequence[Wanted], jobs: int) -> list[Example]:
    """Return the examples of labelled logs, in the order of their ids."""
    with get_context("fork").Pool(jobs) as pool:
        found = [example for examples in pool.imap_unordered(_of_log, logs, chunksize=4) for example in examples]
    return sorted(found, key=lambda example: (example.id, example.composition or ""))


def texts() -> list[Wanted]:
    """Return texts of this repository as logs in which there is no job."""
    root = Path(__file__).parents[2]
    paths = sorted({path for pattern in _TEXTS for path in root.glob(pattern)})
    return [
        Wanted(LabelledCase(name, path, "unknown", (), "no", (), (), None, name, "text", outcome="none"), True)
        for path in paths
        for name in [str(path.relative_to(root))]
    ]


def outcome_of(case: LabelledCase) -> str:
    """Return the class of a labelled log."""
    if case.outcome is not None:
        return _CLASSES[case.outcome]
    return _BY_CAUSE.get(case.cause, FAILED)


def _of_log(log: Wanted) -> list[Example]:
    return list(_examples(log))


def _examples(log: Wanted) -> Iterator[Example]:
    case, outcome = log.case, outcome_of(log.case)
    try:
        alone, run = _example(log, case.log, None, outcome, case.evidence_line)
    except InputError:  # a log that cannot be read teaches nothing
        return
    yield alone
    if log.excerpt or outcome == NONE or not case.log.is_file() or case.log.stat().st_size > _MOST_BYTES:
        return
    text = case.log.read_bytes().decode("utf-8", "replace")
    ways = list(compositions.of(text, outcome))
    if log.made:
        ways = random.Random(case.id).sample(ways, min(_WAYS, len(ways)))
    with TemporaryDirectory() as folder:
        path = Path(folder, case.log.name)
        for way, composed, then in ways:
            path.write_text(composed, "utf-8")
            known = way.keeps_cause and way.name in _TELLING and case.evidence_line is not None
            yield _example(log, path, way.name, then, way.line(case.evidence_line or 0) if known else None)[0]
        first = next((e.line for e in run.printed if e.role == "progress" or e.is_failure), 0)
        if first > _FEWEST:
            path.write_text("".join(text.splitlines(keepends=True)[: first - 1]), "utf-8")
            yield _example(log, path, SET_UP, CUT, None)[0]


def _example(log: Wanted, path: Path, composition: str | None, outcome: str, line: int | None) -> tuple[Example, Run]:
    _SCANNER.forget()  # what another log taught must not decide what is read of this one
    case = replace(log.case, log=path, evidence_line=line)
    observations = scan_case(case, _SCANNER, LayoutReader(_RULES.layouts))
    story, sources = case_of(observations, _RULES).story, observations.sources
    run = story.told
    made = Example(
        id=log.case.id,
        group=log.case.group,
        made=log.made,
        composition=composition,
        outcome=outcome,
        ending=frozenset(ending.features(run.printed, sources, run is story.runs[-1])),
        lines=_lines(case, run, sources) if line is not None and outcome not in ALL_WELL else (),
        ends=not (log.excerpt and log.case.cause == "unknown"),
    )
    return made, run


def _lines(case: LabelledCase, run: Run, sources: Mapping[str, SourceInfo]) -> tuple[tuple[frozenset[str], bool], ...]:
    """Return the candidates of a run as features, each with whether it is the labelled line, within one line."""
    found = telling.candidates(run.printed)
    aside = {id(event) for event, _ in run.aside}
    return tuple(
        (frozenset(names), case.points_at(one.event.source, one.event.line))
        for one, names in zip(found, telling.features(found, run.printed, aside, sources), strict=True)
    )
