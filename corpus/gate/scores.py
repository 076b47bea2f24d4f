"""Score the cases that no rule may be fitted to: ``python -m corpus.gate.scores``.

A third of the groups of the corpus (scenario families, public threads) was drawn by hash and is frozen in frozen.txt;
whole public logs beside the corpus count as well where a checkout has them.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

from corpus.gate.golden import ROOT, SHARED
from nccl_triage.classifier import model as models
from nccl_triage.engine import load
from nccl_triage.evaluation import cases, run, score
from nccl_triage.evaluation.cases import LabelledCase

FROZEN = Path(__file__).with_name("frozen.txt")
SOURCES = ("recorded", "written")
#: One group of so many is frozen.
SHARE = 3


def is_drawn(group: str) -> bool:
    """Tell whether a group of cases belongs to the third that was drawn."""
    return zlib.crc32(group.encode()) % SHARE == 0


def drawn(found: Iterable[LabelledCase]) -> list[str]:
    """Return the ids of the cases whose groups are drawn, in order."""
    return [case.id for case in found if is_drawn(case.group)]


def frozen() -> dict[str, set[str]]:
    """Return folder of the corpus -> ids of its frozen cases."""
    listed: dict[str, set[str]] = {source: set() for source in SOURCES}
    for line in FROZEN.read_text(encoding="utf-8").splitlines():
        source, _, case = line.partition("/")
        listed[source].add(case)
    return listed


def main() -> int:
    """Print the table of scores; ``--freeze`` draws the list anew, which throws away what it is good for."""
    folders = {source: cases.read(ROOT / "corpus" / source) for source in SOURCES}
    if "--freeze" in sys.argv[1:]:
        lines = [f"{source}/{case}\n" for source, found in folders.items() for case in drawn(found)]
        FROZEN.write_text("".join(lines), encoding="utf-8")
        return 0
    rules, model = load.load(), models.shipped()
    chosen = [(f"{source} (frozen)", [c for c in folders[source] if c.id in ids]) for source, ids in frozen().items()]
    if (SHARED / "whole" / "cases.jsonl").is_file():
        chosen.append(("whole", cases.read(SHARED / "whole")))
    print(score.text([(name, *run.run(found, rules, model)) for name, found in chosen], "--misses" in sys.argv[1:]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
