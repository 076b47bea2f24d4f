"""How far two readers of a log agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.wild import manifest, schema
from corpus.wild.manifest import SHOWN, Entry, ManifestError
from nccl_triage.evaluation.tally import Tally

Record = dict[str, Any]
#: What is compared, and how it is called.
MEASURES = (
    ("within", "cause within what either accepts"), ("first", "first cause"), ("outcome", "outcome"),
    ("line", "evidence line, where both name one"), ("culprit", "culprit, where either names one"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """The labels of two readers of one log."""

    entry: Entry
    second: Record

    def compared(self) -> dict[str, bool | None]:
        """Return for each measure whether they agree, None where it does not apply."""
        one, two = self.entry.record, self.second
        accepted = [{label["cause"], *(label.get("also_acceptable") or ())} for label in (one, two)]
        return {
            "within": one["cause"] in accepted[1] or two["cause"] in accepted[0],
            "first": one["cause"] == two["cause"],
            "outcome": one["outcome"] == two["outcome"],
            "line": _line(one, two),
            "culprit": _culprit(one.get("culprit"), two.get("culprit")),
        }


def _line(one: Record, two: Record) -> bool | None:
    first, second = one.get("evidence_line"), two.get("evidence_line")
    if first is None or second is None:
        return None
    same_file = (one.get("evidence_file") or 0) == (two.get("evidence_file") or 0)
    return same_file and abs(first - second) <= 1


def _culprit(one: Record | None, two: Record | None) -> bool | None:
    if one is None and two is None:
        return None
    if one is None or two is None:
        return False
    ranks, hosts = ([label.get(key) for label in (one, two)] for key in ("rank", "host"))
    if None not in ranks:
        return bool(ranks[0] == ranks[1])
    return None not in hosts and bool(hosts[0] == hosts[1])


def kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Return Cohen's kappa of two readers' words; None where chance alone gives full agreement, or of nothing."""
    if not pairs:
        return None
    number = len(pairs)
    first, second = Counter(one for one, _ in pairs), Counter(two for _, two in pairs)
    expected = sum(first[word] * second[word] for word in first) / number**2
    observed = sum(one == two for one, two in pairs) / number
    return None if expected == 1 else (observed - expected) / (1 - expected)


def pairs(data: Path) -> list[Pair]:
    """Return the pairs of labels; raises ManifestError for a second label that is wrong."""
    entries = {entry.id: entry for entry in manifest.read(data)}
    causes, path, found = manifest.known_causes(), data / "second.jsonl", []
    for number, record in manifest.objects(path):
        wrong = schema.second_problems(record, causes)
        if not wrong and record["id"] not in entries:
            wrong = [f"{record['id']} is no log of the manifest"]
        if wrong:
            raise ManifestError("{path}:{number}: {wrong}", path=path, number=number, wrong="; ".join(wrong))
        found.append(Pair(entries[record["id"]], record))
    return found


def measured(found: Sequence[Pair]) -> dict[str, Any]:
    """Return the counts of agreement and kappa of the outcome."""
    compared = [pair.compared() for pair in found]
    return {
        "logs": len({pair.entry.id for pair in found}),
        "labels": len(found),
        "agreement": {name: Tally.over(one[name] for one in compared).as_dict() for name, _ in MEASURES},
        "outcome_kappa": kappa([(pair.entry.record["outcome"], pair.second["outcome"]) for pair in found]),
    }


def disagreements(found: Sequence[Pair]) -> list[str]:
    """Return in words where the readers of logs that may be shown disagree."""
    lines = []
    for pair in found:
        differ = [name for name, agrees in pair.compared().items() if agrees is False]
        if differ and pair.entry.split in SHOWN:
            lines.append(f"{pair.entry.id}: {pair.second['reader']} differs in {', '.join(differ)}")
    return lines
