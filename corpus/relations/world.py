"""A recorded run as relations see it: its text, the answer, and what is known of its lines."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from corpus.gate.golden import ROOT
from nccl_triage import api
from nccl_triage.classifier import model as models
from nccl_triage.document.diagnosis import Diagnosis, diagnose_observations
from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import InputError
from nccl_triage.evaluation import cases
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.ingest.decode import LineReader
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.scan.scanner import scanner_for
from nccl_triage.story import outcome

RECORDED = ROOT / "corpus" / "recorded"
#: Logs above this many characters are left to the other checks: they would take most of the time.
LONGEST = 300_000
#: Kinds of lines by which trouble begins, besides failures.
TROUBLE = (*outcome.RULES.kinds["waits-last"], "exception.frame")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the tool says: the verdict, the first cause and whom it blames."""

    verdict: str
    cause: str | None
    confidence: float
    culprit: tuple[int | None, str | None] | None

    @classmethod
    def of(cls, found: Diagnosis) -> Answer:
        """Return the answer of a diagnosis; below even odds a cause is only a candidate."""
        who = found.candidates[0].culprits[:1] if found.cause is not None else []
        culprit = (who[0].rank, who[0].host) if who else None
        return cls(found.verdict, found.cause, found.confidence, culprit)

    @property
    def accuses(self) -> bool:
        """Whether somebody who reads it will look for a fault."""
        return self.verdict == "diagnosed" and self.confidence >= 0.5


@dataclass(slots=True)
class Run:
    """One recorded run."""

    case: LabelledCase
    text: str
    answer: Answer
    #: 1-based line of the first sign of trouble, None where there is none.
    first_fault: int | None
    #: 1-based lines that show that it advances.
    steps: tuple[int, ...]
    #: Names of hosts in it.
    hosts: tuple[str, ...]
    #: File name -> text of the files of its processes.
    files: Mapping[str, str]

    @property
    def lines(self) -> list[str]:
        """Its lines without ends."""
        return self.text.splitlines()


@cache
def rules() -> RuleSet:
    """Return the shipped rules."""
    return load.load()


def diagnose(files: Mapping[str, str]) -> Diagnosis:
    """Return the diagnosis of files, by name; several lie in one folder, where their names tell whose they are."""
    if len(files) > 1:
        with TemporaryDirectory() as folder:
            for name, text in files.items():
                Path(folder, name).write_bytes(text.encode("utf-8", "surrogateescape"))
            return api.diagnose(folder, rules=rules())
    found = Observations()
    for name, text in files.items():
        info = SourceInfo(name, bytes=len(text))
        reader = LineReader(io.BytesIO(text.encode("utf-8", "surrogateescape")), info)
        found.absorb(scanner_for(rules()).scan_blocks(reader, info))
    return diagnose_observations(found, rules(), models.shipped())


def ask(text: str) -> Answer:
    """Return the answer on one log."""
    return Answer.of(diagnose({"log": text}))


def ask_of_file(name: str, data: bytes) -> Answer:
    """Return the answer on a file that is opened as a user's is."""
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        try:
            return Answer.of(api.diagnose(path, rules=rules()))
        except InputError:
            return Answer("unread", None, 0.0, None)


def _begins(event: Event) -> int:
    """Return the first line of what an event tells of: a traceback's header stands above its exception."""
    block = event.fields.get("block", "").partition("-")[0]
    return int(block) if block else event.line


def read(wanted: Callable[[LabelledCase], bool] = lambda case: True) -> list[Run]:
    """Return the recorded runs that are wanted, each with the tool's answer on it."""
    found = []
    for case in filter(wanted, cases.read(RECORDED)):
        text = case.log.read_bytes().decode("utf-8", "surrogateescape")
        if len(text) > LONGEST:
            continue
        diagnosis = diagnose({"log": text})
        events = diagnosis.case.events
        folder = RECORDED / "runs" / case.id
        files = {
            path.name: path.read_bytes().decode("utf-8", "surrogateescape")
            for path in (sorted(folder.iterdir()) if folder.is_dir() else ())
            if path.is_file()
        }
        found.append(
            Run(
                case,
                text,
                Answer.of(diagnosis),
                min((_begins(event) for event in events if event.is_failure or event.kind in TROUBLE), default=None),
                tuple(sorted({event.line for event in events if event.kind == "step" and event.role == "progress"})),
                tuple(diagnosis.case.identity.hosts),
                files,
            )
        )
    return found
