"""Labelled cases as the classifier sees them: scanned once, with all signatures and with the decisive ones withheld."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nccl_triage.classifier.examples import Example
from nccl_triage.classifier.features import extract
from nccl_triage.diagnosis import software
from nccl_triage.diagnosis.case import Case as DiagnosisCase
from nccl_triage.engine.names import expand
from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation.cases import Case
from nccl_triage.events import Observations
from nccl_triage.execution.reading import scan_source
from nccl_triage.ingest.sources import find_sources
from nccl_triage.scan.scanner import Scanner


@dataclass(frozen=True, slots=True)
class Incident:
    """A labelled case with what was observed, under the full rules and under those without decisive signatures."""

    case: Case
    observations: Observations
    withheld: Observations
    rules: RuleSet
    fewer_rules: RuleSet

    def example(self) -> Example:
        """Return what the classifier learns of it."""
        full = _features(DiagnosisCase(self.observations, self.rules))
        if self.withheld is self.observations:
            withheld = full
        else:
            withheld = _features(DiagnosisCase(self.withheld, self.fewer_rules))
        case = self.case
        return Example(
            id=case.id, label=case.cause, also=case.also, group=case.group, source=case.source, full=full, withheld=withheld
        )  # fmt: skip


def without_decisive(rules: RuleSet, cause: str) -> RuleSet:
    """Return the rules without every signature that a decisive item of a cause names: its messages become unseen."""
    if cause not in rules.causes:
        return rules
    decisive = {
        name
        for item in rules.causes[cause].evidence
        if item.weight == "decisive"
        for pattern in item.signatures
        for name in expand(pattern, rules.kinds)
    }
    if not decisive:
        return rules
    kept = {name: signature for name, signature in rules.signatures.items() if name not in decisive}
    return replace(rules, signatures=kept)


def _scan(case: Case, scanner: Scanner) -> Observations:
    sources, notes = find_sources([str(case.log)], None)
    found = Observations()
    for source in sources:
        found.absorb(scan_source(source, scanner))
    found.notes.extend(notes)
    return found


def scan(cases: Sequence[Case], rules: RuleSet, progress: Callable[[int], None] | None = None) -> list[Incident]:
    """Scan every case twice; one scanner for each cause is built once."""
    scanner = Scanner(rules)
    fewer: dict[str, tuple[RuleSet, Scanner]] = {}
    found = []
    for number, case in enumerate(cases, 1):
        full = _scan(case, scanner)
        if case.cause not in fewer:
            reduced = without_decisive(rules, case.cause)
            fewer[case.cause] = (reduced, scanner if reduced is rules else Scanner(reduced))
        reduced, other = fewer[case.cause]
        withheld = full if other is scanner else _scan(case, other)
        found.append(Incident(case, full, withheld, rules, reduced))
        if progress is not None:
            progress(number)
    return found


def _features(case: DiagnosisCase) -> frozenset[str]:
    return frozenset(extract(case, software.programs(case)).names)
