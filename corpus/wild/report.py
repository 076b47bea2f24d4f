"""Scores for people and programs: tables of text, and plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpus.wild import scoring
from corpus.wild.answers import Answers
from corpus.wild.manifest import Entry
from corpus.wild.scoring import CALIBRATION, MEASURES, Scores
from nccl_triage.evaluation.tally import Tally

#: Measures in the tables of groups, with short headings.
_SHORT = (
    ("failures", "first cause"), ("healthy", "healthy"), ("accused", "accused"), ("missed", "called healthy"),
    ("misled", "wrong at 0.8"), ("culprit", "culprit"), ("line", "line"), ("outcome", "outcome"),
)  # fmt: skip


def cell(tally: Tally | None) -> str:
    """Return a count, its share and the interval of 95 % in percent."""
    if tally is None or tally.share is None or tally.interval is None:
        return "-"
    low, high = tally.interval
    return f"{tally.right}/{tally.of} {100 * tally.share:.0f} % ({100 * low:.0f}-{100 * high:.0f})"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _totals(scores: Mapping[str, Scores]) -> list[str]:
    rows = [["", *scores]]
    rows += [[one.title, *(cell(found.measures.get(one.name)) for found in scores.values())] for one in MEASURES]
    errors = [found.calibration_error for found in scores.values()]
    rows.append([CALIBRATION, *("-" if error is None else f"{error:.2f}" for error in errors)])
    return _aligned(rows)


def _grouped(answers: Answers, entries: Sequence[Entry], folder: Path, grouping: str) -> list[str]:
    found = scoring.groups(entries, grouping)
    if not found:
        return []
    rows = [[f"by {grouping}", "logs", *(title for _, title in _SHORT)]]
    for name, members in found.items():
        measures = scoring.score_group(answers, members, folder).measures
        rows.append([name, str(len(members)), *(cell(measures.get(measure)) for measure, _ in _SHORT)])
    return ["", *_aligned(rows)]


def text(tools: Sequence[Answers], entries: Sequence[Entry], folder: Path) -> str:
    """Return the tables of tools side by side for each split, and the groups of logs for the first tool."""
    scoring.check_enough(entries)
    lines: list[str] = []
    for split, members in scoring.by_split(entries).items():
        repositories = len({entry.repo for entry in members})
        answered = sum(entry.id in tools[0].outcomes for entry in members)
        lines.append(f"{split}: {len(members)} logs of {repositories} repositories, {answered} answered")
        lines += _totals({answers.tool: scoring.score(answers, members, folder) for answers in tools})
        for grouping in scoring.GROUPINGS:
            lines += _grouped(tools[0], members, folder, grouping)
        lines.append("")
    return "\n".join(lines)


def data(tools: Sequence[Answers], entries: Sequence[Entry], folder: Path) -> dict[str, Any]:
    """Return the scores as plain data: numbers of totals and groups, of no single log."""
    scoring.check_enough(entries)
    splits = {}
    for split, members in scoring.by_split(entries).items():
        splits[split] = {
            "logs": len(members),
            "repositories": len({entry.repo for entry in members}),
            "tools": {
                answers.tool: {
                    **scoring.score(answers, members, folder).as_dict(),
                    "by": {
                        grouping: {
                            name: scoring.score_group(answers, group, folder).as_dict()
                            for name, group in scoring.groups(members, grouping).items()
                        }
                        for grouping in scoring.GROUPINGS
                    },
                }
                for answers in tools
            },
        }
    return {"splits": splits}
