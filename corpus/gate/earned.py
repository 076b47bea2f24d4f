"""Count what earned each piece of knowledge: ``python -m corpus.gate.earned [rows|facts|methods|signatures]``.

Every labelled case is diagnosed, and for each row of evidence, fact, culprit method and signature the incidents are
counted in which it held. Cases of one group (recordings of a family, re-enactments of a thread) are one incident.
Without an argument: a table; with one: what fewer than two incidents showed, to be merged, proved by a document of
another kind in a test, or removed.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections import defaultdict
from collections.abc import Iterable

from corpus.gate.golden import folders
from nccl_triage import diagnose
from nccl_triage.classifier import model as models
from nccl_triage.diagnosis import culprit
from nccl_triage.diagnosis.case import Case, fact_names
from nccl_triage.diagnosis.weigh import Weighed, gather
from nccl_triage.engine import load
from nccl_triage.engine.schema import Evidence, RuleSet
from nccl_triage.evaluation import cases

#: Incidents that make a piece of knowledge more than a memory of one case.
ENOUGH = 2
#: What is counted: kind -> the ids of all there are.
Known = dict[str, list[str]]
_RULES = load.load()


def known(rules: RuleSet) -> Known:
    """Return the ids of everything that can be earned."""
    rows = [
        _row(cause.id, item) for cause in rules.causes.values() for item in (*cause.evidence, *cause.against)
    ]  # an id stands once in a cause, on whichever side
    return {
        "rows": rows,
        "facts": list(fact_names()),
        "methods": list(culprit.METHODS),
        "signatures": list(rules.signatures),
    }


def shown(case: Case, candidates: Iterable[Weighed]) -> dict[str, set[str]]:
    """Return what held in a case that was diagnosed."""
    rows = {_row(weighed.cause.id, item.evidence) for weighed in gather(case) for item in weighed.contributions}
    methods = {name for weighed in candidates if (name := culprit.found_by(case, weighed)[0]) is not None}
    signatures = {event.signature for event in case.events}
    # Rows and methods ask for facts.
    return {"rows": rows, "facts": set(case.holding), "methods": methods, "signatures": signatures}


def _row(cause: str, item: Evidence) -> str:
    return f"{cause}/{item.id}"


def _of_case(task: tuple[str, str]) -> tuple[str, dict[str, set[str]]]:
    incident, log = task
    found = diagnose(log, rules=_RULES)
    found.to_dict()  # texts ask for facts, too
    return incident, shown(found.case, [candidate.weighed for candidate in found.candidates])


def measure(jobs: int) -> dict[str, dict[str, set[str]]]:
    """Return kind -> id -> the incidents in which it held."""
    models.shipped()  # read once, before the processes are forked
    tasks = [(case.group, str(case.log)) for folder in folders() for case in cases.read(folder)]
    incidents: dict[str, dict[str, set[str]]] = {kind: defaultdict(set) for kind in known(_RULES)}
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for incident, found in pool.imap_unordered(_of_case, tasks, chunksize=8):
            for kind, ids in found.items():
                for name in ids:
                    incidents[kind][name].add(incident)
    return incidents


def main() -> int:
    """Print the table, or what is not earned of a kind."""
    incidents = measure(multiprocessing.cpu_count())
    for kind, ids in known(_RULES).items():
        counts = {name: len(incidents[kind][name]) for name in ids}
        if kind in sys.argv[1:]:
            for name in sorted(ids, key=lambda name: (counts[name], name)):
                if counts[name] < ENOUGH:
                    print(counts[name], name, *incidents[kind][name])
        elif not sys.argv[1:]:
            numbers = [list(counts.values()).count(n) for n in range(ENOUGH)]
            print(
                f"{kind}: {len(ids)}; never {numbers[0]}, in one incident {numbers[1]}, in more {len(ids) - sum(numbers)}"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
