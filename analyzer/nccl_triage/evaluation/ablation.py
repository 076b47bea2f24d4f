"""Does the classifier earn its place? Rules alone, classifier alone and both, by grouped cross-validation.

Every case is judged by a model that saw no case of its group (thread or scenario family). The same is done with the
decisive signatures of the case's cause withheld from the rules: messages that no rule knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nccl_triage.classifier.examples import Example
from nccl_triage.classifier.features import extract
from nccl_triage.classifier.model import Model
from nccl_triage.classifier.train import FOLDS, fit, folds, for_training, temperature
from nccl_triage.classifier.vote import VERDICTS
from nccl_triage.diagnosis.case import Case as DiagnosisCase
from nccl_triage.diagnosis.verdict import told_lines
from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine.match import expand
from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.evaluation.run import outcome_of
from nccl_triage.evaluation.score import CaseOutcome, Scores, measure
from nccl_triage.execution.reading import scan_source
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.ingest.sources import find_sources
from nccl_triage.learned import form as forms
from nccl_triage.observations.store import Observations
from nccl_triage.scan.scanner import Scanner


@dataclass(frozen=True, slots=True)
class ScannedCase:
    """A labelled case with what was observed, under the full rules and under those without decisive signatures."""

    case: LabelledCase
    observations: Observations
    withheld: Observations
    rules: RuleSet
    fewer_rules: RuleSet

    def example(self) -> Example:
        """Return what the classifier learns of it."""
        form = forms.shipped()
        full = _features(DiagnosisCase(self.observations, self.rules, form))
        if self.withheld is self.observations:
            withheld = full
        else:
            withheld = _features(DiagnosisCase(self.withheld, self.fewer_rules, form))
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


def scan_case(case: LabelledCase, scanner: Scanner, names: LayoutReader) -> Observations:
    """Return what one scanner observes in the log of a case."""
    sources, notes = find_sources([str(case.log)], None, names=names)
    found = Observations()
    for source in sources:
        found.absorb(scan_source(source, scanner))
    found.notes.extend(notes)
    return found


def scan(
    cases: Sequence[LabelledCase], rules: RuleSet, progress: Callable[[int], None] | None = None
) -> list[ScannedCase]:
    """Scan every case twice; one scanner for each cause is built once."""
    scanner, names = Scanner(rules), LayoutReader(rules.layouts)
    fewer: dict[str, tuple[RuleSet, Scanner]] = {}
    found = []
    for number, case in enumerate(cases, 1):
        full = scan_case(case, scanner, names)
        if case.cause not in fewer:
            reduced = without_decisive(rules, case.cause)
            fewer[case.cause] = (reduced, scanner if reduced is rules else Scanner(reduced))
        reduced, other = fewer[case.cause]
        withheld = full if other is scanner else scan_case(case, other, names)
        found.append(ScannedCase(case, full, withheld, rules, reduced))
        if progress is not None:
            progress(number)
    return found


def _features(case: DiagnosisCase) -> frozenset[str]:
    return frozenset(extract(told_lines(case)).names)


METHODS = ("rules alone", "classifier alone", "both")
VIEWS = ("all signatures", "decisive withheld")
Table = dict[tuple[str, str, str], Scores]


def _alone(incident: ScannedCase, example: frozenset[str], model: Model) -> CaseOutcome:
    probabilities = model.probabilities(example)
    ranked = sorted(probabilities, key=lambda label: (-probabilities[label], label))
    verdict = ranked[0] if ranked[0] in VERDICTS else "diagnosed"
    causes = [label for label in ranked if label not in VERDICTS][:5]
    return CaseOutcome(
        case=incident.case, verdict=verdict, causes=causes, confidence=probabilities[causes[0]] if causes else 0.0
    )


def _judge(
    incident: ScannedCase, example: Example, model: Model, found: dict[tuple[str, str], list[CaseOutcome]]
) -> None:
    seen = {
        VIEWS[0]: (incident.observations, incident.rules, example.full),
        VIEWS[1]: (incident.withheld, incident.fewer_rules, example.withheld),
    }
    for view, (observations, rules, features) in seen.items():
        for method in METHODS:
            if method == "classifier alone":
                outcome = _alone(incident, features, model)
            else:
                used = model if method == "both" else None
                outcome = outcome_of(incident.case, diagnose_observations(observations, rules, used))
            found.setdefault((view, method), []).append(outcome)


def _calibrated(training: Sequence[Example]) -> Model:
    """Return a model of the training part whose temperature was fitted inside that part."""
    further = [example for example in training if not example.real]
    inner = folds([example for example in training if example.real], 3)
    rest = [example for part in inner[1:] for example in part]
    probe, _ = fit([*rest, *for_training(further, inner[0])])
    model, _ = fit(training)
    warm = temperature([(probe, example) for example in inner[0]])
    return replace(model, temperature=warm, form=forms.shipped())


def outcomes(
    incidents: Sequence[ScannedCase], examples: Sequence[Example], further: Sequence[Example] = ()
) -> dict[tuple[str, str], list[CaseOutcome]]:
    """Return (view, method) -> outcomes; ``further`` examples only train, where no case of their group is judged."""
    by_id = {(e.source, e.id): i for i, e in zip(incidents, examples, strict=True)}
    parts = folds(examples, FOLDS)
    found: dict[tuple[str, str], list[CaseOutcome]] = {}
    for index, part in enumerate(parts):
        groups = {example.group for example in part}
        training = [e for other, members in enumerate(parts) if other != index for e in members]
        training += for_training([e for e in further if e.group not in groups], part)
        model = _calibrated(training)
        for example in part:
            _judge(by_id[(example.source, example.id)], example, model, found)
    return found


def table(found: dict[tuple[str, str], list[CaseOutcome]]) -> Table:
    """Return (cases, view, method) -> scores, for every source of cases and for all together."""
    sources = sorted({outcome.case.source for members in found.values() for outcome in members})
    scores: Table = {}
    for (view, method), members in found.items():
        for source in (*sources, "all"):
            chosen = [o for o in members if source in ("all", o.case.source)]
            scores[(source, view, method)] = measure(chosen)
    return scores


def markdown(scores: Table) -> str:
    """Return the comparison in Markdown."""
    lines = [
        "| cases | n | signatures | method | top-1 | top-3 | macro-F1 | healthy | unknown | calib. error |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]

    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f} %"

    for source in dict.fromkeys(key[0] for key in scores):
        for view in VIEWS:
            for method in METHODS:
                found = scores.get((source, view, method))
                if found is None:
                    continue
                error = "-" if found.calibration_error is None else f"{found.calibration_error:.3f}"
                f1 = "-" if found.macro_f1 is None else f"{found.macro_f1:.2f}"
                lines.append(
                    f"| {source} | {found.cases} | {view} | {method} | {percent(found.top1)} "
                    f"| {percent(found.top3)} | {f1} | {percent(found.healthy)} | {percent(found.unknown)} | {error} |"
                )
    return "\n".join(lines)
