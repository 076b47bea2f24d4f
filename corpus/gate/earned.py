"""Count the incidents that need each piece of knowledge: ``python -m corpus.gate.earned [KIND ..] [--write]``.

A row of evidence, a fact, a culprit method or a signature is earned if the answers to two independent incidents are
worse without it (``corpus.gate.needs`` says when); cases of one group (recordings of a family, re-enactments of a
thread) are one incident. What counts are logs that no rule was fitted to: whole logs and recordings, and the frozen
third of the re-enacted excerpts. The other excerpts show what may be deleted, and earn nothing.

Without an argument: a table; with kinds: what of them fewer than two incidents need. ``--write`` writes
``rules/earned.yaml``. What reads documents other than logs is proved by tests: those of ``build/proofs``
(``corpus.gate.proofs``), or those that the file names already where none ran.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from corpus.gate import scores
from corpus.gate.golden import ROOT, folders
from corpus.gate.needs import Piece, Pieces, Trial
from corpus.gate.proofs import PLACE
from nccl_triage.checks.earned import ENOUGH, FILE, KINDS, TEST, UNEARNED, claims, older, row_id
from nccl_triage.classifier import model as models
from nccl_triage.engine import load
from nccl_triage.evaluation import cases
from nccl_triage.evaluation.ablation import scan_case
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.evaluation.suite import pieces
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.scan.scanner import Scanner

#: Facts and methods that read documents other than logs; of a row its condition tells.
OF_DOCUMENTS = ("recorder.", "stacks.", "ras.", "hosts.")
#: Rules of what is no line of the job's own log.
PRODUCERS = tuple(f"rules/producers/{name}.yaml" for name in ("baseline", "doctor", "recorder", "stacks", "steps"))
#: Columns of the table.
COLUMNS = ("all", "2 and more", "one", "none", "fitted", "held", "never", "tests")
_RULES = load.load()
_SCANNER = Scanner(_RULES)


@dataclass(frozen=True, slots=True)
class Task:
    """A labelled case by its name ``FOLDER/ID``; ``counts`` tells whether it can earn something."""

    name: str
    case: LabelledCase
    counts: bool


@dataclass(slots=True)
class Needs:
    """Where pieces held, and where they were needed: piece -> incident -> the first of its cases."""

    held: dict[Piece, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    needed: dict[Piece, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    #: Likewise, by excerpts that rules were fitted to.
    fitted: dict[Piece, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))


def known() -> dict[str, list[str]]:
    """Return the ids of everything that can be earned, by kind."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for piece in pieces(_RULES):
        found[piece.kind].append(piece.id)
    return found


def tasks() -> list[Task]:
    """Return every labelled case at hand."""
    frozen = scores.frozen()["written"]
    return [
        Task(f"{folder.name}/{case.id}", case, folder.name != "written" or case.id in frozen)
        for folder in folders()
        for case in cases.read(folder)
    ]


def trial(case: LabelledCase) -> Trial:
    """Return a case as it is judged in full."""
    return Trial(case, scan_case(case, _SCANNER, LayoutReader(_RULES.layouts)), _RULES, models.shipped())


def _of_case(task: Task) -> tuple[Task, Pieces, Pieces]:
    """Return what held in a case, and what its answer needs; excerpts that rules were fitted to need no signatures."""
    found = trial(task.case)
    return task, found.held | found.seen, found.needed() | (found.needed_signatures() if task.counts else frozenset())


def measure(listed: Iterable[Task], jobs: int) -> Needs:
    """Return what holds and what is needed in the cases."""
    models.shipped()  # read once, before the processes are forked
    found = Needs()
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for task, held, needed in pool.imap(_of_case, listed, chunksize=8):
            for piece in held:
                found.held[piece].setdefault(task.case.group, task.name)
            for piece in needed:
                (found.needed if task.counts else found.fitted)[piece].setdefault(task.case.group, task.name)
    return found


def tests() -> dict[str, dict[str, str]]:
    """Return kind -> id -> the first test in which it held, of those that ran with ``corpus.gate.proofs``."""
    found: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    lines = {line for path in PLACE.glob("*.txt") for line in path.read_text("utf-8").splitlines()}
    if not lines:  # they did not run: what they showed before
        for kind, ids in claims().items():
            found[kind] = {name: shown[0] for name, shown in ids.items() if shown[0].startswith(TEST)}
    for line in sorted(lines):
        kind, name, test = line.split(" ", 2)
        found[kind].setdefault(name, test)
    return found


def of_documents() -> set[str]:
    """Return the rows, facts and methods that read documents other than logs."""
    rows = {
        row_id(cause.id, row)
        for cause in _RULES.causes.values()
        for row in (*cause.evidence, *cause.against)
        if row.where_defined.startswith(PRODUCERS)
        or (row.when is not None and any(name.startswith(OF_DOCUMENTS) for name in row.when.literals("fact")))
    }
    return rows | {name for name in known()["facts"] if name.startswith(OF_DOCUMENTS)} | {"stands"}


def ledger(found: Needs, proofs: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text of ``rules/earned.yaml``."""
    documents, left = of_documents(), older()
    lines = ["# Two incidents that need each piece of knowledge, or a test that proves it: `make earned WHAT=--write`."]
    for kind, ids in known().items():
        lines.append(f"{kind}:")
        for name in sorted(ids):
            shown = list(found.needed.get(Piece(kind, name), {}).values())[:ENOUGH]
            if len(shown) < ENOUGH:
                shown = [proofs[kind][name]] if name in documents and name in proofs[kind] else []
            if shown:
                lines.append(f"  {name}: {json.dumps(shown)}")
                left -= {name}
    lines.append("# Older rows that count as they are although nothing has earned them. None may be added.")
    lines.append(f"{UNEARNED}: {json.dumps(sorted(left & {*known()['rows']}), indent=2)}")
    return "\n".join(lines) + "\n"


def table(found: Needs, proofs: Mapping[str, Mapping[str, str]]) -> str:
    """Return how many pieces of each kind how many incidents need, and what is known of those that none needs."""
    documents = of_documents()
    lines = [" " * 12 + "".join(f"{name:>12}" for name in COLUMNS)]
    for kind, ids in known().items():
        counts: Counter[str] = Counter()
        for name in ids:
            counts[_standing(found, Piece(kind, name), name in documents and name in proofs[kind])] += 1
        counts["all"], counts["none"] = len(ids), sum(counts[name] for name in COLUMNS[4:])
        lines.append(f"{kind:<12}" + "".join(f"{counts[name]:>12}" for name in COLUMNS))
    lines += ["", "2 and more, one: so many incidents need it. none: no incident does; of these, the next columns:"]
    lines += [
        "fitted: only excerpts that rules were fitted to need it; held: it held, unneeded; never: it held nowhere;"
    ]
    lines += ["tests: a test proves it on a document that is no log."]
    return "\n".join(lines) + "\n"


def _standing(found: Needs, piece: Piece, proved: bool) -> str:
    """Return the column of the table in which a piece counts."""
    needed = len(found.needed.get(piece, ()))
    if needed:
        return "one" if needed < ENOUGH else "2 and more"
    if proved:
        return "tests"
    if piece in found.fitted:
        return "fitted"
    return "held" if piece in found.held else "never"


def listing(found: Needs, kind: str, proofs: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the pieces of a kind that are not earned: their standing, in how many incidents they held, and where."""
    documents, lines = of_documents(), []
    for name in known()[kind]:
        piece = Piece(kind, name)
        standing = _standing(found, piece, name in documents and name in proofs[kind])
        if standing in COLUMNS[2:-1]:
            where = found.needed.get(piece) or found.fitted.get(piece) or found.held.get(piece) or {}
            shown = " ".join(list(where.values())[:ENOUGH])
            lines.append(f"{standing:<7} {len(found.held.get(piece, ())):>4}  {name}  {shown}".rstrip())
    return sorted(lines, key=lambda line: (COLUMNS[::-1].index(line.split()[0]), line))


def main() -> int:
    """Print the table, or what is not earned of a kind; or write the file."""
    found, proofs = measure(tasks(), multiprocessing.cpu_count()), tests()
    if "--write" in sys.argv[1:]:
        Path(ROOT / "rules" / FILE).write_text(ledger(found, proofs), "utf-8")
    asked = [kind for kind in KINDS if kind in sys.argv[1:]]
    for kind in asked:
        print("\n".join(listing(found, kind, proofs)))
    if not asked:
        print(table(found, proofs), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
