"""Score answers: counts for each split and for groups of logs, and the misses of logs that may be shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.wild.answers import NO_ANSWER, Answers
from corpus.wild.manifest import SHOWN, Entry
from nccl_triage.errors import InputError
from nccl_triage.evaluation.score import CaseOutcome, calibration_error, tallies
from nccl_triage.evaluation.tally import Tally

#: Fewest logs of which a score may stand alone: fewer would tell the results of single blind logs, and little else.
LEAST = 8
#: Name of the group that small groups are merged into.
OTHER = "other"


@dataclass(frozen=True, slots=True)
class Measure:
    """One score: its name in ``evaluation.score.tallies``, its title, and what a tool must say to have it."""

    name: str
    title: str
    needs: str


MEASURES = (
    Measure("failures", "first cause of failures right", "verdict"),
    Measure("healthy", "healthy recognised", "verdict"),
    Measure("unknown", "unknown admitted", "verdict"),
    Measure("accused", "healthy accused at 0.5 or more", "verdict"),
    Measure("missed", "failure called healthy", "verdict"),
    Measure("misled", "wrong at 0.8 or more", "confidence"),
    Measure("culprit", "culprit right", "culprit"),
    Measure("line", "evidence line right", "line"),
    Measure("told", "line among evidence or three telling lines", "told"),
    Measure("outcome", "outcome right", "outcome"),
    Measure("helped_first", "first repair is what helped", "repairs"),
    Measure("helped", "a repair to do now is what helped", "repairs"),
    Measure("harmful", "a repair to do now does harm", "repairs"),
    Measure("restart", "restart rightly decided", "repairs"),
)
CALIBRATION = "calibration error"
#: How logs are grouped: name -> groups of a log.
GROUPINGS: dict[str, Callable[[Mapping[str, Any]], Sequence[str]]] = {
    "kind": lambda label: [label["kind"]],
    "hang": lambda label: ["hang" if label["hang"] else "no hang"],
    "scheduler": lambda label: [label["scheduler"]],
    "framework": lambda label: sorted(set(label["frameworks"])) or ["none"],
}


@dataclass(frozen=True, slots=True)
class Scores:
    """The counts of a tool on some logs; a measure is absent where the tool says nothing of its kind."""

    logs: int
    measures: dict[str, Tally]
    calibration_error: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return them as plain values."""
        return {
            "logs": self.logs,
            "measures": {name: tally.as_dict() for name, tally in self.measures.items()},
            "calibration_error": self.calibration_error,
        }


def score(answers: Answers, entries: Sequence[Entry], folder: Path, least: int = 0) -> Scores:
    """Return the scores of a tool on logs that were rebuilt in a folder, without measures of fewer logs than ``least``."""
    outcomes = [answers.of(entry, folder) for entry in entries]
    counted = tallies(outcomes)
    calibrated = calibration_error(outcomes) if "confidence" in answers.says else None
    shown = [one.name for one in MEASURES if one.needs in answers.says and counted[one.name].of >= least]
    return Scores(len(outcomes), {name: counted[name] for name in shown}, calibrated)


def score_group(answers: Answers, entries: Sequence[Entry], folder: Path) -> Scores:
    """Return the scores on a group of logs; of logs that are not shown, no share of a few."""
    return score(answers, entries, folder, 0 if all(entry.split in SHOWN for entry in entries) else LEAST)


def merged(groups: Mapping[str, frozenset[str]], least: int = LEAST) -> dict[str, frozenset[str]]:
    """Return groups of ids in which each has at least ``least``: smaller ones are merged, with the smallest others if need be."""
    kept = {name: ids for name, ids in groups.items() if len(ids) >= least and name != OTHER}
    rest = frozenset[str]().union(*(ids for name, ids in groups.items() if name not in kept))
    names = [OTHER]
    for name in sorted(kept, key=lambda name: (len(kept[name]), name)):
        if not rest or len(rest) >= least:
            break
        rest |= kept.pop(name)
        names.insert(-1, name)
    found = dict(sorted(kept.items(), key=lambda item: (-len(item[1]), item[0])))
    return found | ({", ".join(names): rest} if len(rest) >= least else {})


def groups(entries: Sequence[Entry], grouping: str) -> dict[str, list[Entry]]:
    """Return the logs of each group that is large enough, the largest first; nothing where only one is."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        for name in GROUPINGS[grouping](entry.record):
            found.setdefault(name, set()).add(entry.id)
    by_name = merged({name: frozenset(ids) for name, ids in found.items()})
    if len(by_name) < 2:
        return {}
    return {name: [entry for entry in entries if entry.id in ids] for name, ids in by_name.items()}


def check_enough(entries: Sequence[Entry]) -> None:
    """Raise InputError where scores would tell the results of single logs that are not shown."""
    for split in ("blind", "sealed"):
        number = sum(entry.split == split for entry in entries)
        if 0 < number < LEAST:
            raise InputError(
                "{number} logs of the split {split} are too few to be scored",
                cause="so few totals would tell what was said of a single log",
                remedy="rebuild more of them: at least {least}",
                number=number,
                split=split,
                least=LEAST,
            )


def by_split(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Return the logs of each split, and of both that nobody has seen together."""
    found: dict[str, list[Entry]] = {}
    for split in ("blind", "sealed"):
        found[split] = [entry for entry in entries if entry.split == split]
    both = [entry for entry in entries if entry.split not in SHOWN]
    found["blind and sealed"] = both if found["blind"] and found["sealed"] else []
    for split in SHOWN:
        found[split] = [entry for entry in entries if entry.split == split]
    return {split: members for split, members in found.items() if members}


def misses(answers: Answers, entries: Sequence[Entry], folder: Path) -> list[str]:
    """Return in words what a tool got wrong of the logs that may be shown, and of no other."""
    lines = []
    for entry in entries:
        if entry.split not in SHOWN:
            continue
        outcome = answers.of(entry, folder)
        if wrong := _wrong(outcome, answers.says):
            label = "|".join(outcome.case.acceptable)
            lines.append(f"{entry.id} ({entry.record['kind']}, {entry.repo}) label {label}: {'; '.join(wrong)}")
    return lines


def _wrong(outcome: CaseOutcome, says: set[str]) -> list[str]:
    case, found = outcome.case, []
    if "verdict" in says and not outcome.right():
        sure = f" ({outcome.confidence:.2f})" if "confidence" in says and outcome.verdict != NO_ANSWER else ""
        found.append(f"said {outcome.answer}{sure}")
    if "culprit" in says and outcome.culprit_right() is False:
        said = "nobody" if not outcome.culprits else f"rank {outcome.culprits[0][0]} on {outcome.culprits[0][1]}"
        found.append(f"culprit {said}, wanted {[*case.ranks, *case.hosts]}")
    if "line" in says and outcome.line_right() is False:
        found.append(f"lines {outcome.lines[:3]}, wanted {case.evidence_line}")
    if "outcome" in says and outcome.outcome_right() is False:
        found.append(f"outcome {outcome.outcome}, wanted {case.outcome}")
    if "repairs" in says and (outcome.helped() is False or outcome.harmful()):
        kind = "harmful" if outcome.harmful() else "useless"
        found.append(f"{kind} repairs {', '.join(outcome.repairs) or 'none'}")
    if "repairs" in says and outcome.restart_right() is False:
        found.append(f"restart {outcome.restart}")
    return found
