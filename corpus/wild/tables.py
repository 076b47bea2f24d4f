"""The tables of docs/accuracy.md and the READMEs, from stored scores: numbers only, no log is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import orjson

from corpus.wild import agreement, report
from corpus.wild.answers import Answers
from corpus.wild.manifest import FOLDER, Entry
from corpus.wild.run import OURS
from corpus.wild.scoring import MEASURES
from nccl_triage.evaluation.tally import Tally

#: Scores of the last run, and a measurement by others on logs that are not in the benchmark.
SCORES, INDEPENDENT = "scores.json", "independent.json"
#: Splits that nobody has seen log by log.
UNSEEN = ("blind", "sealed")
BOTH = "blind and sealed"
#: Columns of the tables: measure, heading.
COLUMNS = (
    ("failures", "first cause right"), ("healthy", "healthy recognised"), ("accused", "healthy accused"),
    ("missed", "failure called healthy"), ("misled", "wrong at 0.8+"), ("culprit", "culprit right"),
    ("line", "evidence line right"), ("told", "or a telling line"), ("outcome", "outcome right"),
    ("helped", "a repair to do now helped"), ("harmful", "a repair does harm"), ("restart", "restart right"),
)  # fmt: skip
#: Of what must not happen one log counts: shown with a decimal.
_RARE = frozenset(("accused", "missed", "misled", "harmful"))


def stored(data: Path = FOLDER) -> dict[str, Any] | None:
    """Return the stored scores, None where there are none yet."""
    path = data / SCORES
    return orjson.loads(path.read_bytes()) if path.is_file() else None


def independent(data: Path = FOLDER) -> dict[str, Any]:
    """Return the independent measurement."""
    found: dict[str, Any] = orjson.loads((data / INDEPENDENT).read_bytes())
    return found


def write_scores(data: Path, tools: Sequence[Answers], entries: Sequence[Entry], folder: Path) -> None:
    """Store the scores of tools; splits that were not scored keep what was stored of them."""
    known = (stored(data) or {"splits": {}})["splits"]
    fresh = report.data(tools, entries, folder)["splits"]
    path = data / SCORES
    draft = path.with_name(f".{SCORES}.part")
    content = {"date": date.today().isoformat(), "splits": {**known, **fresh}}
    draft.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    draft.replace(path)


def percent(measure: str, share: float | None) -> str:
    """Return a share as the tables show it."""
    if share is None:
        return "-"
    return f"{100 * share:.{int(measure in _RARE)}f}".removesuffix(".0") + " %"


def _counted(measure: str, value: Mapping[str, Any] | None) -> str:
    tally = Tally(value["right"], value["of"]) if value else Tally(0, 0)
    if tally.interval is None:
        return "-"
    low, high = tally.interval
    return f"{percent(measure, tally.share)} of {tally.of} ({100 * low:.0f} to {100 * high:.0f})"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _ours(scores: Mapping[str, Any] | None, split: str) -> dict[str, Any] | None:
    """Return the stored scores of nccl-triage on a split."""
    tools: dict[str, dict[str, Any]] = (scores or {"splits": {}})["splits"].get(split, {}).get("tools", {})
    return tools.get(OURS)


def _is_scored(scores: Mapping[str, Any], measure: str) -> bool:
    """Tell whether any tool was scored for a measure on logs that nobody has seen."""
    tools = (found for split in UNSEEN for found in scores["splits"].get(split, {"tools": {}})["tools"].values())
    return any(measure in found["measures"] for found in tools)


def _measured(scores: Mapping[str, Any]) -> str:
    """Return the tables of the stored scores: tools on the logs nobody has seen, and kinds of jobs."""
    columns = [column for column in COLUMNS if _is_scored(scores, column[0])]
    titles = [title for _, title in columns]
    rows = []
    for split in UNSEEN:
        for tool, found in scores["splits"].get(split, {"tools": {}})["tools"].items():
            error = found["calibration_error"]
            cells = [_counted(name, found["measures"].get(name)) for name, _ in columns]
            rows.append([f"{split} third", tool, str(found["logs"]), *cells, "-" if error is None else f"{error:.2f}"])
    text = markdown(["logs", "tool", "n", *titles, "calib. error"], rows)
    both = _ours(scores, BOTH)
    if both is None:
        return text
    kinds = [
        [kind, str(found["logs"]), *(_counted(name, found["measures"].get(name)) for name, _ in columns)]
        for kind, found in both["by"]["kind"].items()
    ]
    return f"{text}\n\nBlind and sealed logs by kind of job:\n\n{markdown(['kind', 'n', *titles], kinds)}"


def _independent(found: Mapping[str, Any]) -> str:
    titles = {one.name: one.title for one in MEASURES}
    rows = []
    for name, value in found["measures"].items():
        of = f" of {value['of']}" if "of" in value else ""
        rows.append([titles[name], f"{percent(name, value['share'])}{of}"])
    rows.append(["calibration error", f"{found['calibration_error']:.2f}"])
    kinds = [[name, f"{right} of {of}"] for name, (right, of) in found["kinds"].items()]
    logs = f"{found['logs']} logs of {found['repositories']} repositories"
    return f"{markdown([logs, found['when']], rows)}\n\n{markdown(['kind of log', 'first cause right'], kinds)}"


def table(data: Path = FOLDER) -> str:
    """Return the generated part of docs/accuracy.md; the benchmark's own tables are in it once scores are stored."""
    scores, other = stored(data), _independent(independent(data))
    if scores is None:
        return other
    intro = f"Measured {scores['date']}. In brackets: Wilson's interval of 95 %."
    agreed = _agreed(data)
    return (
        f"### Blind and sealed logs\n\n{intro}\n\n{_measured(scores)}\n\n{agreed}### Measured independently\n\n{other}"
    )


def _agreed(data: Path) -> str:
    """Return how far two readers agree, "" where no log has a second label."""
    found = agreement.pairs(data) if (data / "second.jsonl").is_file() and (data / "manifest.jsonl").is_file() else []
    if not found:
        return ""
    measured = agreement.measured(found)
    rows = []
    for name, title in agreement.MEASURES:
        counted = measured["agreement"][name]
        rows.append([title, _counted(name, counted)])
    kappa = measured["outcome_kappa"]
    rows.append(["Cohen's kappa of the outcome", "-" if kappa is None else f"{kappa:.2f}"])
    heading = f"{measured['logs']} logs of all thirds, labelled twice"
    return f"### How far two readers agree\n\n{markdown([heading, 'agreement'], rows)}\n\n"


def short(data: Path = FOLDER) -> list[tuple[str, int, list[str]]]:
    """Return the rows of the READMEs' short table: what was measured, on how many logs, and the first seven columns."""
    names = [name for name, _ in COLUMNS[:7]]
    rows = []
    scores = stored(data)
    for split in UNSEEN:
        found = _ours(scores, split)
        if found is not None:
            shares = [(name, found["measures"].get(name, {}).get("share")) for name in names]
            rows.append((split, int(found["logs"]), [percent(name, share) for name, share in shares]))
    other = independent(data)
    cells = [percent(name, other["measures"][name]["share"]) for name in names]
    return [*rows, ("independent", int(other["logs"]), cells)]
