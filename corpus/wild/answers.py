"""Read what a tool said of the logs: its own reports, or answers in a small common form.

The common form is an object with ``id`` and any of ``verdict`` (diagnosed, unknown, healthy), ``cause`` (an id of
``nccl-triage rules list --kind causes``), ``confidence`` (0 to 1), ``culprit`` ({rank, host}), ``lines`` (numbers, or
{file, line} where a log has several files; the most telling first) and ``outcome``. What is left out, or null, is not
said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from corpus.wild import manifest, nvrx, schema
from corpus.wild.blobs import lines_of
from corpus.wild.manifest import Entry
from nccl_triage.errors import InputError
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.evaluation.score import CaseOutcome
from nccl_triage.render import to_do

#: Verdict of a tool that says nothing: right nowhere, and no accusation.
NO_ANSWER = "no answer"
#: What a tool may say of a log.
SAYS = ("verdict", "confidence", "culprit", "line", "told", "outcome", "repairs")
_KEYS = frozenset(("id", "verdict", "cause", "confidence", "culprit", "lines", "outcome"))
_MOST_LINE = 10**9


class AnswerError(InputError):
    """An answer is not in any known form."""


@dataclass(slots=True)
class Answers:
    """The outcomes of a tool by id of the log, and which things it says at all."""

    tool: str
    outcomes: dict[str, CaseOutcome] = field(default_factory=dict)
    says: set[str] = field(default_factory=set)

    def of(self, entry: Entry, folder: Path) -> CaseOutcome:
        """Return what was said of a log; a log without an answer counts as not recognised."""
        found = self.outcomes.get(entry.id)
        return found if found is not None else CaseOutcome(entry.case(folder), NO_ANSWER, [], 0.0)


def from_report(document: Mapping[str, Any], case: LabelledCase) -> CaseOutcome:
    """Return what a report document of nccl-triage says, as ``evaluation.run.outcome_of`` does of a diagnosis."""
    found = document["diagnoses"]
    judged = case.advice is not None
    first: Mapping[str, Any] = found[0] if found else {"confidence": 0.0, "culprits": [], "evidence": []}
    return CaseOutcome(
        case=case,
        verdict=str(document["verdict"]),
        causes=[str(item["cause"]) for item in found],
        confidence=float(first["confidence"]),
        culprits=[(item["rank"], item["host"]) for item in first["culprits"]],
        lines=[int(item["line"]) for item in first["evidence"]],
        files=[str(item["path"]) for item in first["evidence"]],
        told=[(str(item["path"]), int(item["line"])) for item in document.get("telling_lines") or ()],
        outcome=(document.get("outcome") or {}).get("state"),
        repairs=to_do.repairs(str(document["verdict"]), first) if found and judged else [],
        restart=(document.get("restart") or {}).get("decision") if judged else None,
    )


def from_common(record: Mapping[str, Any], case: LabelledCase, causes: frozenset[str]) -> CaseOutcome:
    """Return what an answer in the common form says; raises ValueError for what is not in it."""
    if unknown := record.keys() - _KEYS:
        raise ValueError(f"unknown field {sorted(unknown)[0][:40]!r}")
    verdict, cause, confidence = record.get("verdict"), record.get("cause"), record.get("confidence")
    if verdict not in ("diagnosed", "unknown", "healthy", None):
        raise ValueError("verdict is none of diagnosed, unknown, healthy")
    if cause is not None and cause not in causes:
        raise ValueError("cause is no known cause")
    if (verdict == "diagnosed") != (cause is not None) and not (verdict == "unknown" and cause is not None):
        raise ValueError("a verdict diagnosed goes with a cause, and a cause with it or with unknown")
    if confidence is not None and (
        not isinstance(confidence, (int, float)) or isinstance(confidence, bool) or not 0 <= confidence <= 1
    ):
        raise ValueError("confidence is not between 0 and 1")
    if (outcome := record.get("outcome")) not in (*schema.OUTCOMES, None):
        raise ValueError(f"outcome is none of {', '.join(schema.OUTCOMES)}")
    places = list(_places(record.get("lines") or ()))
    culprit = record.get("culprit")
    return CaseOutcome(
        case=case,
        verdict=verdict or NO_ANSWER,
        causes=[cause] if cause else [],
        confidence=float(confidence) if confidence is not None else (1.0 if verdict == "diagnosed" else 0.0),
        culprits=[] if culprit is None else [_culprit(culprit)],
        lines=[line for _, line in places],
        files=[file for file, _ in places],
        outcome=outcome,
    )


def _culprit(value: Any) -> tuple[int | None, str | None]:
    if not isinstance(value, dict) or not value.keys() <= {"rank", "host"}:
        raise ValueError("culprit has other keys than rank and host")
    rank, host = value.get("rank"), value.get("host")
    if rank is not None and (not isinstance(rank, int) or isinstance(rank, bool)):
        raise ValueError("rank is no whole number")
    if host is not None and not isinstance(host, str):
        raise ValueError("host is no text")
    return rank, host


def _places(lines: Any) -> Iterator[tuple[str, int]]:
    if not isinstance(lines, (list, tuple)):
        raise ValueError("lines is no list")
    for item in lines:
        file, line = (item.get("file"), item.get("line")) if isinstance(item, dict) else ("", item)
        if not isinstance(line, int) or isinstance(line, bool) or not 0 < line < _MOST_LINE:
            raise ValueError("a line is no number of a line")
        if not isinstance(file, str):
            raise ValueError("a file is no text")
        yield file, line


def common(outcome: CaseOutcome, says: Sequence[str] = SAYS) -> dict[str, Any]:
    """Return what was said of a case in the common form, only the things of ``says``."""
    named = outcome.verdict == "diagnosed"
    whole: dict[str, dict[str, Any]] = {
        "verdict": {"verdict": outcome.verdict, "cause": outcome.causes[0] if named else None},
        "confidence": {"confidence": outcome.confidence if named else None},
        "culprit": {"culprit": dict(zip(("rank", "host"), outcome.culprits[0], strict=True)) if outcome.culprits else None},
        "line": {
            "lines": [{"file": f, "line": n} for n, f in zip(outcome.lines, outcome.files, strict=True)],
        },
        "told": {},  # no part of the common form, as repairs
        "repairs": {},
        "outcome": {"outcome": outcome.outcome},
    }  # fmt: skip
    found = {"id": outcome.case.id}
    for name in says:
        found |= whole[name]
    return found


def _raw(path: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield (where, id, object) of a folder of one file for each log, or of a file of lines."""
    if path.is_dir():
        for file in sorted(path.glob("*.json")):
            try:
                yield str(file), file.stem, orjson.loads(file.read_bytes())
            except orjson.JSONDecodeError as error:
                raise AnswerError("{file}: {error}", file=file, error=error) from None
        return
    if not path.is_file():
        raise AnswerError("{path} does not exist", path=path, remedy="name a folder of JSON reports or a JSONL file")
    for number, record in manifest.objects(path):
        name = record.get("id") if isinstance(record, dict) else None
        if not isinstance(name, str):
            raise AnswerError("{path}:{number}: has no id", path=path, number=number)
        yield f"{path}:{number}", name, record


def _files_of(entry: Entry, folder: Path) -> list[tuple[str, int]]:
    return [(name, lines_of((folder / "logs" / entry.id / name).read_bytes())) for name in entry.names]


def read(path: Path, tool: str, entries: Sequence[Entry], folder: Path) -> Answers:
    """Return the answers of a tool on logs that were rebuilt in a folder; answers on other logs are passed over."""
    wanted, causes = {entry.id: entry for entry in entries}, manifest.known_causes()
    answers = Answers(tool)
    for where, name, record in _raw(path):
        entry = wanted.get(name)
        if entry is None:
            continue
        case = entry.case(folder)
        try:
            if not isinstance(record, dict):
                raise ValueError("is no object")
            if "diagnoses" in record:
                answers.outcomes[name] = from_report(record, case)
                answers.says.update(SAYS)
                continue
            if record.get("schema_version") == nvrx.SCHEMA:
                record = nvrx.answer(record, case.acceptable, _files_of(entry, folder))
                answers.says.update(("verdict", "culprit", "line"))
            answers.outcomes[name] = from_common(record, case, causes)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise AnswerError("{where}: no answer: {error}", where=where, error=error) from None
        answers.says.update(_said(record))
    return answers


def _said(record: Mapping[str, Any]) -> Iterator[str]:
    for key, name in (
        ("verdict", "verdict"),
        ("confidence", "confidence"),
        ("culprit", "culprit"),
        ("outcome", "outcome"),
    ):
        if record.get(key) is not None:
            yield name
    if record.get("lines"):
        yield "line"
