"""Show scores: a table of sets, a table by cause, and the misses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from nccl_triage.evaluation.score import Outcome, Scores, score

Result = tuple[str, list[Outcome], dict[str, list[Outcome]]]

_COLUMNS = (
    ("top1", "top-1"), ("top3", "top-3"), ("top1_yes", "top-1 (yes)"), ("macro_f1", "macro-F1"), ("healthy", "healthy"),
    ("unknown", "unknown"), ("culprit", "culprit"), ("line", "line"), ("accused", "healthy accused"),
    ("missed", "failure called healthy"), ("misled", "wrong at 0.8"), ("calibration_error", "calib. error"),
)  # fmt: skip


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name in ("calibration_error", "macro_f1"):
        return f"{value:.2f}"
    # Of what must not happen one case counts, whatever it is of thousands.
    return f"{100 * value:.1f} %" if name in ("accused", "missed", "misled") else f"{100 * value:.0f} %"


def _rows(results: Sequence[Result]) -> list[tuple[str, str, Scores]]:
    rows = []
    for name, outcomes, baselines in results:
        rows.append((name, "nccl-triage", score(outcomes)))
        rows += [(name, label, score(found)) for label, found in baselines.items()]
    return rows


def markdown(results: Sequence[Result]) -> str:
    """Return the table of sets in Markdown, as the README shows it."""
    lines = ["| cases | method | n | " + " | ".join(title for _, title in _COLUMNS) + " |"]
    lines.append("|---|---|---|" + "---|" * len(_COLUMNS))
    for name, method, scores in _rows(results):
        cells = [_cell(column, getattr(scores, column)) for column, _ in _COLUMNS]
        if method != "nccl-triage":
            cells[-1] = "-"  # a baseline has no probabilities
        lines.append(f"| {name} | {method} | {scores.cases} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _by_cause(outcomes: Sequence[Outcome]) -> list[str]:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.case.cause].append(outcome)
    lines = [f"  {'cause':36} {'n':>4} {'right':>6} {'top-3':>6} {'culprit':>8}"]
    for cause, members in sorted(groups.items()):
        known = [o.culprit_right() for o in members if o.culprit_right() is not None]
        culprit = f"{sum(bool(k) for k in known)}/{len(known)}" if known else "-"
        right, three = sum(o.right() for o in members), sum(o.right_in_three() for o in members)
        lines.append(f"  {cause:36} {len(members):>4} {right:>6} {three:>6} {culprit:>8}")
    return lines


def _miss(outcome: Outcome) -> str:
    case = outcome.case
    what = [] if outcome.right() else [f"said {outcome.answer} ({outcome.confidence:.2f})"]
    if outcome.culprit_right() is False:
        what.append(f"culprit {outcome.culprits[:1] or 'none'}, wanted {list(case.ranks or case.hosts)}")
    return f"  {case.id} [{case.determinable}] label {'|'.join(case.acceptable)}: {'; '.join(what)}"


def text(results: Sequence[Result], misses: bool = True) -> str:
    """Return everything as plain text."""
    lines = [markdown(results), ""]
    for name, outcomes, _ in results:
        lines += [f"{name} by cause:", *_by_cause(outcomes), ""]
        wrong = [o for o in outcomes if not o.right() or o.culprit_right() is False]
        if misses and wrong:
            lines += [f"{name}, misses ({len(wrong)} of {len(outcomes)}):", *(_miss(o) for o in wrong), ""]
    return "\n".join(lines)


def as_data(results: Sequence[Result]) -> dict[str, Any]:
    """Return everything as plain data."""
    return {
        name: {
            "scores": score(outcomes).as_dict(),
            "baselines": {label: score(found).as_dict() for label, found in baselines.items()},
            "cases": [
                {
                    "id": o.case.id, "label": o.case.cause, "answer": o.answer, "confidence": round(o.confidence, 3),
                    "right": o.right(), "top3": o.causes[:3], "culprit_right": o.culprit_right(), "line_right": o.line_right(),
                }
                for o in outcomes
            ],
        }
        for name, outcomes, baselines in results
    }  # fmt: skip
