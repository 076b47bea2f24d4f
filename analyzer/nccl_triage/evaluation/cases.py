"""Read labelled cases: ``cases.jsonl`` and the logs that it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from nccl_triage.errors import InputError
from nccl_triage.evaluation.advice import JudgedAdvice


@dataclass(frozen=True, slots=True)
class LabelledCase:
    """One labelled log.

    Cases of one ``group`` (a family of scenarios, a public thread) resemble each other and never stand on both sides
    of a split; ``source`` is recorded, written, generated or, unsaid, labelled. ``evidence_file`` is the file that
    ``evidence_line`` counts in, where there are several. A ``blind`` case counts in totals only: what was said of it
    alone is never shown.
    """

    id: str
    log: Path
    cause: str
    also: tuple[str, ...]
    determinable: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    evidence_line: int | None
    group: str
    source: str = "labelled"
    evidence_file: str | None = None
    outcome: str | None = None
    blind: bool = False
    #: What would have helped, None where nobody knows.
    advice: JudgedAdvice | None = None

    def points_at(self, file: str, line: int) -> bool:
        """Tell whether a line is the labelled one, within one line; a file that is not known may be any."""
        wanted = self.evidence_line
        return wanted is not None and abs(line - wanted) <= 1 and self._in_labelled_file(file)

    def _in_labelled_file(self, file: str) -> bool:
        wanted = self.evidence_file
        return wanted is None or not file or f"/{file}".endswith(f"/{wanted}")

    @property
    def acceptable(self) -> tuple[str, ...]:
        """Every answer that an expert would accept."""
        return (self.cause, *self.also)


def parse(record: dict[str, Any], folder: Path, advice: JudgedAdvice | None = None) -> LabelledCase:
    """Return the case of one line of ``cases.jsonl`` in a folder."""
    culprit = record.get("culprit") or {}
    ranks = [r for r in [culprit.get("rank"), *(culprit.get("ranks") or [])] if isinstance(r, int)]
    hosts = [h for h in [culprit.get("host"), *(culprit.get("hosts") or [])] if isinstance(h, str)]
    return LabelledCase(
        id=str(record["id"]),
        log=folder / str(record["log"]),
        cause=str(record["cause"]),
        also=tuple(record.get("also_acceptable") or ()),
        determinable=str(record.get("determinable", "yes")),
        ranks=tuple(dict.fromkeys(ranks)),
        hosts=tuple(dict.fromkeys(hosts)),
        evidence_line=record.get("evidence_line"),
        group=str(record.get("family") or record.get("url") or record["id"]),
        source=str(record.get("source") or "labelled"),
        evidence_file=record.get("evidence_file"),
        outcome=record.get("outcome"),
        blind=bool(record.get("blind")),
        advice=advice,
    )


def read(folder: Path, advice: Mapping[str, JudgedAdvice] | None = None) -> list[LabelledCase]:
    """Return the cases of a folder; raises InputError when there are none or the index is damaged.

    ``advice`` has what was judged, by name of the folder and id of the case.
    """
    judged = advice or {}
    index = folder / "cases.jsonl"
    if not index.is_file():
        raise InputError(
            "{folder} holds no labelled cases",
            cause="there is no cases.jsonl in it",
            remedy="corpus/README.md describes the form",
            folder=folder,
        )
    cases: list[LabelledCase] = []
    for number, line in enumerate(index.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = orjson.loads(line)
            cases.append(parse(record, folder, judged.get(f"{folder.resolve().name}/{record['id']}")))
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                "{index}:{number}: not a labelled case: {error}", index=index, number=number, error=error
            ) from None
    return cases
