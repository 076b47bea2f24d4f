"""Make a scanner's input out of plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from corpus.generate.bench import stream
from nccl_triage.document.diagnosis import Diagnosis, diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.producers import produced_signatures
from nccl_triage.scan.scanner import Scanner


@dataclass(slots=True)
class Line:
    """A line as the decoder yields it."""

    number: int
    text: str


def lines(text: str, info: SourceInfo) -> Iterator[Line]:
    for number, line in enumerate(text.splitlines(), 1):
        info.lines = number
        yield Line(number, line)


def scan_text(text: str, rules: RuleSet, path: str = "log", scanner: Scanner | None = None) -> Observations:
    info = SourceInfo(path, bytes=len(text))
    return (scanner or Scanner(rules)).scan(lines(text, info), info)


def diagnose_text(text: str, rules: RuleSet) -> Diagnosis:
    return diagnose_observations(scan_text(text, rules), rules)


def undeclared(events: Iterable[Event]) -> list[str]:
    """Return the events of producers that have other fields than these declare."""
    made = produced_signatures()
    return [
        f"{event.signature}: {sorted(event.fields)}"
        for event in events
        if event.signature in made
        and not set(made[event.signature].fields)
        <= set(event.fields)
        <= {*made[event.signature].fields, *made[event.signature].sometimes}
    ]


def log(profile: str, size: int, seed: int = 0) -> str:
    """Return the beginning of a generated log of a profile, whole lines of it."""
    text = b"".join(stream(profile, size, seed)).decode()
    return text[: text.rindex("\n") + 1]
