"""Make the index of public threads, and measure what is shown of it: ``python -m corpus.similar [--measure]``.

The index holds the re-enactments of public threads (corpus/written) except healthy ones and those without an address.
A log is judged without its own thread, and by rules alone, since the shipped classifier has seen all of the corpus.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from corpus.gate.golden import ROOT, SHARED
from corpus.gate.scores import SOURCES, frozen
from nccl_triage.diagnosis.findings import Findings
from nccl_triage.diagnosis.verdict import decide
from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation import cases
from nccl_triage.evaluation.ablation import scan_case
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.files import replace
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.scan.scanner import Scanner
from nccl_triage.similar import search, threads
from nccl_triage.similar.search import UNKNOWN
from nccl_triage.similar.threads import PublicThread, ThreadIndex

WRITTEN = ROOT / "corpus" / "written"
INDEX = ROOT / "analyzer" / "nccl_triage" / "similar" / "threads.json.gz"
_HEADER = "| cases | verdict | n | shown | first thread right | of these, with a cause |\n|---|---|---|---|---|---|"


class Judged(NamedTuple):
    """A case with what was shown for it: the causes of the threads, the best first."""

    case: LabelledCase
    verdict: str
    shown: tuple[str, ...]


def labels() -> dict[str, PublicThread]:
    """Return id of a case -> its thread, of every case that belongs into the index."""
    found = {}
    for line in (WRITTEN / "cases.jsonl").read_bytes().splitlines():
        record: dict[str, Any] = orjson.loads(line)
        if record["url"] and record["cause"] != "healthy":
            why = str((record.get("culprit") or {}).get("why") or "")
            helped = str((record.get("helped") or {}).get("what") or "")
            found[record["id"]] = PublicThread(
                record["url"], record["cause"], why, str(record.get("confirmed_by") or ""), helped
            )
    return found


def diagnosed(found: Iterable[LabelledCase], rules: RuleSet) -> Iterator[tuple[LabelledCase, Findings]]:
    """Yield the findings of the rules alone on every case."""
    scanner, names = Scanner(rules), LayoutReader(rules.layouts)
    for case in found:
        yield case, decide(scan_case(case, scanner, names), rules, None)


def build(rules: RuleSet) -> ThreadIndex:
    """Return the index of the written cases."""
    known = labels()
    chosen = sorted((case for case in cases.read(WRITTEN) if case.id in known), key=lambda case: case.id)
    pairs = ((known[case.id], search.features_of(findings.case)) for case, findings in diagnosed(chosen, rules))
    return threads.indexed(pairs)


def judge(found: Iterable[LabelledCase], rules: RuleSet, index: ThreadIndex) -> list[Judged]:
    """Return what is shown for each case that is not healthy, without its own thread."""
    failed = (case for case in found if case.cause != "healthy")
    judged = []
    for case, findings in diagnosed(failed, rules):
        alike = search.find(findings, index, case.group)
        judged.append(Judged(case, findings.verdict, tuple(one.thread.cause for one in alike)))
    return judged


def rows(name: str, judged: Iterable[Judged]) -> list[str]:
    """Return the rows of a table: all cases, those with a named cause, and those without."""
    every, lines = list(judged), []
    for verdict in ("any", "diagnosed", "unknown"):
        chosen = [one for one in every if verdict in ("any", one.verdict)]
        told = [one for one in chosen if one.shown]
        right = [one.shown[0] for one in told if one.shown[0] in one.case.acceptable]
        named = sum(cause != UNKNOWN for cause in right)
        shares = (_percent(len(told), len(chosen)), _percent(len(right), len(told)), _percent(named, len(right)))
        lines.append(f"| {name} | {verdict} | {len(chosen)} | {' | '.join(shares)} |")
    return lines


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def measure(rules: RuleSet, index: ThreadIndex) -> str:
    """Return the table of what is shown, for all cases, the frozen third and whole logs where a checkout has them."""
    lines = [_HEADER]
    for source in SOURCES:
        judged = judge(cases.read(ROOT / "corpus" / source), rules, index)
        kept = frozen()[source]
        lines += rows(source, judged)
        lines += rows(f"{source}, frozen third", [one for one in judged if one.case.id in kept])
    whole: Path = SHARED / "whole"
    if (whole / "cases.jsonl").is_file():
        lines += rows("whole", judge(cases.read(whole), rules, index))
    return "\n".join(lines)


def main() -> int:
    """Write the index; with ``--measure`` print the table of the shipped one instead."""
    rules = load.load()
    if "--measure" in sys.argv[1:]:
        print(measure(rules, threads.shipped()))
        return 0
    data = threads.to_bytes(build(rules))
    replace(INDEX, data)
    print(f"{INDEX.relative_to(ROOT)}: {len(threads.from_bytes(data, INDEX.name).threads)} logs, {len(data)} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
