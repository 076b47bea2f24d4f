"""Count what earned each piece of knowledge: ``python -m corpus.gate.earned [rows|facts|methods|signatures|--write]``.

Every labelled case is diagnosed, and for each row of evidence, fact, culprit method and signature the incidents are
counted in which it held. Cases of one group (recordings of a family, re-enactments of a thread) are one incident.
Without an argument: a table; with a kind: what fewer than two incidents showed. ``--write`` writes ``rules/earned.yaml``,
with the tests below ``build/proofs`` (``corpus.gate.proofs``) for what reads documents other than logs.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from corpus.gate.golden import ROOT, folders
from corpus.gate.proofs import PLACE
from nccl_triage import diagnose
from nccl_triage.checks.earned import ENOUGH, FILE, KINDS, row_id
from nccl_triage.classifier import model as models
from nccl_triage.diagnosis import culprit
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.weigh import Weighed, gather
from nccl_triage.engine import load
from nccl_triage.evaluation import cases
from nccl_triage.evaluation.suite import pieces

#: Kind -> id -> incident -> the first of its cases in which it held.
Shown = dict[str, dict[str, dict[str, str]]]
#: Facts and methods that read documents other than logs; of a row its condition tells.
OF_DOCUMENTS = ("recorder.", "stacks.", "ras.", "hosts.")
#: Rules of what is no line of the job's own log.
PRODUCERS = tuple(f"rules/producers/{name}.yaml" for name in ("baseline", "doctor", "recorder", "stacks", "steps"))
_RULES = load.load()


def known() -> dict[str, list[str]]:
    """Return the ids of everything that can be earned, by kind."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for piece in pieces(_RULES):
        found[piece.kind].append(piece.id)
    return found


def shown(case: Case, candidates: Iterable[Weighed]) -> dict[str, set[str]]:
    """Return what held in a case that was diagnosed."""
    rows = {row_id(weighed.cause.id, item.evidence) for weighed in gather(case) for item in weighed.contributions}
    methods = {name for weighed in candidates if (name := culprit.found_by(case, weighed)[0]) in culprit.METHODS}
    signatures = {event.signature for event in case.events}
    # Rows and methods ask for facts.
    return {"rows": rows, "facts": set(case.holding), "methods": methods, "signatures": signatures}


def _of_case(task: tuple[str, str, str]) -> tuple[str, str, dict[str, set[str]]]:
    incident, name, log = task
    found = diagnose(log, rules=_RULES)
    found.to_dict()  # texts ask for facts, too
    return incident, name, shown(found.case, [candidate.weighed for candidate in found.candidates])


def measure(jobs: int) -> Shown:
    """Return in which incidents everything held."""
    models.shipped()  # read once, before the processes are forked
    tasks = [
        (case.group, f"{folder.name}/{case.id}", str(case.log)) for folder in folders() for case in cases.read(folder)
    ]
    incidents: Shown = {kind: defaultdict(dict) for kind in KINDS}
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for incident, name, found in pool.imap(_of_case, tasks, chunksize=8):
            for kind, ids in found.items():
                for one in ids:
                    incidents[kind][one].setdefault(incident, name)
    return incidents


def tests() -> dict[str, dict[str, str]]:
    """Return kind -> id -> the first test in which it held, of those that ran with ``corpus.gate.proofs``."""
    found: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    lines = {line for path in PLACE.glob("*.txt") for line in path.read_text("utf-8").splitlines()}
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


def ledger(incidents: Shown, proofs: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text of ``rules/earned.yaml``."""
    documents = of_documents()
    lines = ["# What earned each piece of knowledge; written by `make earned WHAT=--write`."]
    for kind, ids in known().items():
        lines.append(f"{kind}:")
        for name in sorted(ids):
            cases_ = list(incidents[kind].get(name, {}).values())[:ENOUGH]
            if len(cases_) == ENOUGH:
                lines.append(f'  {name}: ["{cases_[0]}", "{cases_[1]}"]')
            elif name in documents and name in proofs[kind]:
                lines.append(f'  {name}: ["{proofs[kind][name]}"]')
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the table, or what is not earned of a kind; or write the file."""
    incidents = measure(multiprocessing.cpu_count())
    if "--write" in sys.argv[1:]:
        Path(ROOT / "rules" / FILE).write_text(ledger(incidents, tests()), "utf-8")
        return 0
    for kind, ids in known().items():
        counts = {name: len(incidents[kind].get(name, ())) for name in ids}
        if kind in sys.argv[1:]:
            for name in sorted(ids, key=lambda name: (counts[name], name)):
                if counts[name] < ENOUGH:
                    print(counts[name], name, *incidents[kind].get(name, ()))
        elif not sys.argv[1:]:
            numbers = [list(counts.values()).count(n) for n in range(ENOUGH)]
            print(
                f"{kind}: {len(ids)}; never {numbers[0]}, in one incident {numbers[1]}, in more {len(ids) - sum(numbers)}"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
