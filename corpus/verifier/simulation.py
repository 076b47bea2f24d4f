"""``python -m corpus.verifier.simulation``: verify every right diagnosis of labelled logs where every experiment passes.

What failed may have been transient, or repaired, or lie on another machine: experiments that pass contradict nothing that
the log establishes. Each document is verified on its job's own hosts with a GPU for each rank, on a strange host with
eight GPUs, and on a strange host without any; controls, checks and probes find nothing wrong. Counted are the outcomes
for the first cause, the right diagnoses that are contradicted, and those of them that the log establishes. Nothing is
ever confirmed there, and a strange host moves nothing. Returns 1 when one of these three is broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.verifier.healthy_hosts import HealthyLauncher, facts, interface
from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation import cases
from nccl_triage.evaluation.run import outcome_of
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify import api, feedback, plan
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.conduct import carry_out
from nccl_triage.verify.plan import PlanOptions
from nccl_triage.verify.question import Question
from nccl_triage.verify.trials import Session

#: Labelled logs that are verified when no folder is named.
FOLDER = Path(__file__).parents[1] / "recorded"
#: What the user would have chosen.
OPTIONS = PlanOptions(budget=600.0)
#: GPUs of a strange host, and of a job's host whose ranks are not known.
USUAL_GPUS = 8


@dataclass(frozen=True, slots=True)
class Ground:
    """Where documents are verified: on the job's own hosts or on a strange one, with how many GPUs (None: enough)."""

    name: str
    own: bool
    gpus: int | None


GROUNDS = (
    Ground("the job's hosts", own=True, gpus=None),
    Ground("a strange host with 8 GPUs", own=False, gpus=USUAL_GPUS),
    Ground("a strange host without GPUs", own=False, gpus=0),
)


@dataclass(frozen=True, slots=True)
class Judged:
    """The first cause of one document after its verification on one ground."""

    case: str
    ground: str
    cause: str
    status: str
    outcome: str
    decided_by: str
    moved: bool

    @property
    def contradicted(self) -> bool:
        """Whether the experiments refute it."""
        return self.outcome == "refuted"

    @property
    def established(self) -> bool:
        """Whether the log alone establishes it."""
        return self.status == "established"


def _hosts(question: Question, ground: Ground) -> tuple[list[str], int]:
    """Return the hosts' names and the GPUs of each."""
    if not ground.own:
        return ["stranger"], ground.gpus or 0
    names = list(question.hosts) or ["gpu-node-01"]
    each = max([USUAL_GPUS, *(len(ranks) for ranks in question.ranks_of.values())])
    return names, max(each, -(-(question.world or 1) // len(names)))


def _told(question: Question, ground: Ground, name: str, index: int) -> dict[str, Any]:
    """Return the facts of a host; a job's own has the addresses, interfaces and versions that its log names."""
    named = question.addresses.get(name, ()) if ground.own else ()
    network = "10.0" if ground.own else "198.18"  # no job has an address of a network for benchmarks
    address = named[0] if named else f"{network}.{index // 250}.{index % 250 + 1}"
    wanted = question.env.get("NCCL_SOCKET_IFNAME", question.env.get("GLOO_SOCKET_IFNAME", "")) if ground.own else ""
    own = wanted.lstrip("=").split(",")[0] if wanted and not wanted.startswith("^") else ""
    return facts(
        name,
        [interface(own if own and own != "lo" else "eth0", address, default=True)],
        question.versions if ground.own else {},
    )


def verified(document: dict[str, Any], rules: RuleSet, ground: Ground, folder: Path) -> dict[str, Any]:
    """Return the document with the outcomes of experiments that all pass."""
    question = api.question_of(document, OPTIONS)
    names, gpus = _hosts(question, ground)
    told = [_told(question, ground, name, index) for index, name in enumerate(names)]
    settings = api.Settings(options=OPTIONS)
    with Cluster(HealthyLauncher([HostPlace(name) for name in names], told, gpus)) as cluster:
        made = plan.build(question, rules.causes, api.ask_hosts(cluster, settings), settings.options)
        report = carry_out(Session(cluster, made, rules, folder))
    return feedback.apply(document, report)


def judged(case: cases.LabelledCase, document: dict[str, Any], rules: RuleSet, folder: Path) -> Iterator[Judged]:
    """Yield what each ground makes of the first cause of a document."""
    first = document["diagnoses"][0]
    for ground in GROUNDS:
        changed = verified(document, rules, ground, folder)
        entry = next(item for item in changed["diagnoses"] if item["cause"] == first["cause"])
        found = entry["verification"] or {"outcome": "not-run", "decided_by": "-"}
        moved = (entry["status"], entry["confidence"]) != (first["status"], first["confidence"])
        yield Judged(
            case.id, ground.name, first["cause"], first["status"], found["outcome"], found["decided_by"], moved
        )


def simulate(case: cases.LabelledCase) -> list[Judged] | None:
    """Diagnose one log and verify it on every ground; None when the diagnosis is not right."""
    from nccl_triage.api import diagnose

    rules = load.load()
    diagnosis = diagnose(case.log, rules=rules)
    if diagnosis.verdict != "diagnosed" or not outcome_of(case, diagnosis).right():
        return None
    with tempfile.TemporaryDirectory() as folder:
        return list(judged(case, diagnosis.to_dict(), rules, Path(folder)))


def table(found: Sequence[Judged]) -> str:
    """Return the outcomes for each ground and cause as Markdown, and one line with the figures that count."""
    outcomes = sorted({item.outcome for item in found})
    lines = []
    for ground in GROUNDS:
        own = [item for item in found if item.ground == ground.name]
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for item in own:
            counts[item.cause][item.outcome] += 1
        lines += [
            f"### On {ground.name}",
            "",
            f"| cause | {' | '.join(outcomes)} |",
            "|---" * (len(outcomes) + 1) + "|",
        ]
        lines += [
            f"| {cause} | {' | '.join(str(seen[outcome] or '-') for outcome in outcomes)} |"
            for cause, seen in sorted(counts.items())
        ]
        lines += ["", _figures(own), ""]
    return "\n".join(lines)


def _figures(found: Sequence[Judged]) -> str:
    against = [item for item in found if item.contradicted]
    certain = [item for item in against if item.established]
    false = [item for item in found if item.outcome == "confirmed"]
    return (
        f"{len(found)} right diagnoses, {sum(item.established for item in found)} of them established: "
        f"{len(against)} contradicted, {len(certain)} of the established; {len(false)} confirmed; "
        f"{sum(item.moved for item in found)} moved."
    )


def failures(found: Iterable[Judged]) -> list[Judged]:
    """Return what must not be.

    An established cause that is contradicted, one that passing experiments confirm, one that a strange host moves.
    """
    strange = {ground.name for ground in GROUNDS if not ground.own}
    return [
        item
        for item in found
        if (item.contradicted and item.established)
        or item.outcome == "confirmed"
        or (item.ground in strange and (item.moved or item.contradicted))
    ]


def collect(folders: Sequence[Path], step: int, workers: int, say: Callable[[str], None]) -> tuple[list[Judged], int]:
    """Return what became of each ``step``-th case's right diagnosis, and the number of cases without one."""
    chosen = [case for folder in folders for case in cases.read(folder)][::step]
    chosen = [case for case in chosen if case.cause not in ("healthy", "unknown")]
    found: list[Judged] = []
    without = 0
    with ProcessPoolExecutor(workers) as pool:
        for number, result in enumerate(pool.map(simulate, chosen, chunksize=4), 1):
            without += result is None
            found += result or []
            if number % 50 == 0:
                say(f"{number} of {len(chosen)}")
    return found, without


def main() -> int:
    """Print the table; returns 1 when there are failures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[FOLDER], help="folders with a cases.jsonl")
    parser.add_argument("--step", type=int, default=1, help="take each STEP-th case only")
    parser.add_argument("--workers", type=int, default=2, help="processes that diagnose")
    parser.add_argument(
        "--list", action="store_true", help="name each right diagnosis that is contradicted or confirmed"
    )
    given = parser.parse_args()
    found, without = collect(
        given.folders, given.step, given.workers, lambda text: print(text, file=sys.stderr, flush=True)
    )
    print(table(found))
    print(f"{without} cases without a right diagnosis are left out.")
    wrong = failures(found)
    for item in found if given.list else wrong:
        if item in wrong or item.contradicted:
            print(f"{item.case} on {item.ground}: {item.cause} ({item.status}) {item.outcome} ({item.decided_by})")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
