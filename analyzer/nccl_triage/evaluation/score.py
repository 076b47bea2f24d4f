"""The scores of corpus/README.md, and how they are shown: shares right, calibration, and the errors that do most harm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.evaluation.tally import Tally

#: Confidence from which on a cause is an accusation, and from which on a reader takes it for certain.
ACCUSES, SURE = 0.5, 0.8


@dataclass(slots=True)
class CaseOutcome:
    """What was said about one case."""

    case: LabelledCase
    verdict: str
    causes: list[str]
    confidence: float
    culprits: list[tuple[int | None, str | None]] = field(default_factory=list)
    #: Lines of evidence, the most telling first, and the file of each where it is known.
    lines: list[int] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    #: File and line of the lines that tell most, known to a rule or not.
    told: list[tuple[str, int]] = field(default_factory=list)
    #: State in which the job is said to have ended, None where nothing is said of it.
    outcome: str | None = None
    #: Ids of the fixes that stand under *do now*, in order, and whether the job may be started again, where judged.
    repairs: list[str] = field(default_factory=list)
    restart: str | None = None
    seconds: float = 0.0

    @property
    def answer(self) -> str:
        """The first cause, or the verdict when there is none."""
        return self.causes[0] if self.verdict == "diagnosed" and self.causes else self.verdict

    @property
    def admits(self) -> bool:
        """Whether the diagnosis admits that it does not know."""
        return self.verdict == "unknown" or (self.verdict == "diagnosed" and self.confidence < ACCUSES)

    @property
    def accuses_healthy(self) -> bool:
        """Whether a healthy run is accused; a tool without an answer accuses nobody."""
        return self.case.cause == "healthy" and self.verdict == "diagnosed" and not self.right() and not self.admits

    @property
    def misses_failure(self) -> bool:
        """Whether a failure is called healthy."""
        return self.verdict == "healthy" and "healthy" not in self.case.acceptable

    @property
    def misleads(self) -> bool:
        """Whether a wrong cause is given for certain."""
        return self.verdict == "diagnosed" and self.confidence >= SURE and not self.right()

    def right(self) -> bool:
        """Whether the first answer is acceptable."""
        accepted = self.case.acceptable
        return self.answer in accepted or ("unknown" in accepted and self.admits)

    def right_in_three(self) -> bool:
        """Whether one of the first three causes is acceptable."""
        return self.right() or any(cause in self.case.acceptable for cause in self.causes[:3])

    def culprit_right(self) -> bool | None:
        """Whether the first culprit is a labelled rank (or, naming none, a labelled host); None without a label."""
        case = self.case
        if not case.ranks and not case.hosts:
            return None
        if not self.culprits:
            return False
        rank, host = self.culprits[0]
        if rank is not None and case.ranks:
            return rank in case.ranks
        return host in case.hosts

    def line_right(self) -> bool | None:
        """Whether the first evidence lines contain the labelled one (within one line); None without a label."""
        if self.case.evidence_line is None:
            return None
        places = zip(self.lines[:3], self.files or repeat(""), strict=False)
        return any(self.case.points_at(file, line) for line, file in places)

    def told_right(self) -> bool | None:
        """Whether the first evidence lines or the three that tell most contain the labelled one; None without a label."""
        found = self.line_right()
        return found or any(self.case.points_at(*place) for place in self.told[:3]) if found is not None else None

    def outcome_right(self) -> bool | None:
        """Whether the job is said to have ended as it did; None without a label."""
        return None if self.case.outcome is None else self.outcome == self.case.outcome

    def helped_first(self) -> bool | None:
        """Whether the first repair is what helped; None where that is not known."""
        judged = self.case.advice
        return None if judged is None else any(map(judged.helpful, self.repairs[:1]))

    def helped(self) -> bool | None:
        """Whether a repair under *do now* is what helped; None where that is not known."""
        judged = self.case.advice
        return None if judged is None else any(map(judged.helpful, self.repairs))

    def harmful(self) -> bool | None:
        """Whether a repair under *do now* does harm; None where nothing was judged."""
        judged = self.case.advice
        return None if judged is None else any(map(judged.harmful, self.repairs))

    def restart_right(self) -> bool | None:
        """Whether the job is rightly said to be started again or not; None where that was not judged."""
        judged = self.case.advice
        return None if judged is None or not judged.restart else self.restart in judged.restart


@dataclass(slots=True)
class Scores:
    """The table of one set of outcomes; shares between 0 and 1, None where nothing was to be scored."""

    cases: int
    top1: float | None
    top3: float | None
    top1_yes: float | None
    macro_f1: float | None
    healthy: float | None
    unknown: float | None
    culprit: float | None
    line: float | None
    calibration_error: float | None
    accused: float | None
    missed: float | None
    misled: float | None
    told: float | None = None
    outcome: float | None = None
    helped_first: float | None = None
    helped: float | None = None
    harmful: float | None = None
    restart: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the scores as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


def _macro_f1(outcomes: Sequence[CaseOutcome]) -> float | None:
    hits: dict[str, int] = defaultdict(int)
    labelled: dict[str, int] = defaultdict(int)
    said: dict[str, int] = defaultdict(int)
    for outcome in outcomes:
        truth = outcome.case.cause
        # An acceptable alternative counts as the label itself: experts would not call it an error.
        answer = truth if outcome.right() else outcome.answer
        labelled[truth] += 1
        said[answer] += 1
        hits[truth] += answer == truth
    if not labelled:
        return None
    f1 = [2 * hits[cause] / (labelled[cause] + said[cause]) if hits[cause] else 0.0 for cause in labelled]
    return sum(f1) / len(f1)


def calibration_error(outcomes: Sequence[CaseOutcome], bins: int = 10) -> float | None:
    """Return the mean gap between confidence and share right over ten bins, weighted by their size."""
    diagnosed = [o for o in outcomes if o.verdict == "diagnosed"]
    if not diagnosed:
        return None
    error = 0.0
    for index in range(bins):
        inside = [o for o in diagnosed if min(int(o.confidence * bins), bins - 1) == index]
        if inside:
            mean = sum(o.confidence for o in inside) / len(inside)
            right = sum(o.causes[0] in o.case.acceptable for o in inside) / len(inside)
            error += abs(mean - right) * len(inside)
    return error / len(diagnosed)


def tallies(outcomes: Sequence[CaseOutcome]) -> dict[str, Tally]:
    """Return the counts behind the scores; cases that the log alone cannot show count in few of them.

    ``failures`` is ``top1`` over the cases whose label is a cause.
    """
    shown = [o for o in outcomes if o.case.determinable in ("yes", "partly")]
    return {
        "top1": Tally.over(o.right() for o in shown),
        "top3": Tally.over(o.right_in_three() for o in shown),
        "top1_yes": Tally.over(o.right() for o in outcomes if o.case.determinable == "yes"),
        "failures": Tally.over(o.right() for o in shown if o.case.cause not in ("healthy", "unknown")),
        "healthy": Tally.over(o.right() for o in outcomes if o.case.cause == "healthy"),
        "unknown": Tally.over(o.right() for o in outcomes if o.case.cause == "unknown"),
        "culprit": Tally.over(o.culprit_right() for o in shown),
        "line": Tally.over(o.line_right() for o in shown),
        "told": Tally.over(o.told_right() for o in shown),
        "accused": Tally.over(o.accuses_healthy for o in outcomes if o.case.cause == "healthy"),
        "missed": Tally.over(o.misses_failure for o in outcomes if "healthy" not in o.case.acceptable),
        "misled": Tally.over(o.misleads for o in outcomes),
        "outcome": Tally.over(o.outcome_right() for o in outcomes),
        "helped_first": Tally.over(o.helped_first() for o in outcomes),
        "helped": Tally.over(o.helped() for o in outcomes),
        "harmful": Tally.over(o.harmful() for o in outcomes),
        "restart": Tally.over(o.restart_right() for o in outcomes),
    }


def measure(outcomes: Sequence[CaseOutcome]) -> Scores:
    """Return the scores; top-1 and top-3 leave out cases that the log alone cannot show."""
    counted = tallies(outcomes)
    shares = {name: tally.share for name, tally in counted.items() if name != "failures"}
    return Scores(
        cases=len(outcomes),
        macro_f1=_macro_f1([o for o in outcomes if o.case.determinable in ("yes", "partly")]),
        calibration_error=calibration_error(outcomes),
        **shares,
    )


Result = tuple[str, list[CaseOutcome], dict[str, list[CaseOutcome]]]

_COLUMNS = (
    ("top1", "top-1"), ("top3", "top-3"), ("top1_yes", "top-1 (yes)"), ("macro_f1", "macro-F1"), ("healthy", "healthy"),
    ("unknown", "unknown"), ("culprit", "culprit"), ("line", "line"), ("accused", "healthy accused"),
    ("missed", "failure called healthy"), ("misled", "wrong at 0.8"), ("calibration_error", "calib. error"),
)  # fmt: skip
#: Shown where a set has labels for it.
_WHERE_LABELLED = (
    ("outcome", "outcome"), ("helped_first", "first repair helped"), ("helped", "a repair helped"),
    ("harmful", "a repair does harm"), ("restart", "restart"),
)  # fmt: skip


#: Of what must not happen one case counts, whatever it is of thousands.
_MUST_NOT = frozenset(("accused", "missed", "misled", "harmful"))


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name in ("calibration_error", "macro_f1"):
        return f"{value:.2f}"
    return f"{100 * value:.1f} %" if name in _MUST_NOT else f"{100 * value:.0f} %"


def _rows(results: Sequence[Result]) -> list[tuple[str, str, Scores]]:
    rows = []
    for name, outcomes, baselines in results:
        rows.append((name, "nccl-triage", measure(outcomes)))
        rows += [(name, label, measure(found)) for label, found in baselines.items()]
    return rows


def markdown(results: Sequence[Result]) -> str:
    """Return the table of sets in Markdown, as the README shows it."""
    rows = _rows(results)
    labelled = (one for one in _WHERE_LABELLED if any(getattr(scores, one[0]) is not None for _, _, scores in rows))
    columns = (*_COLUMNS, *labelled)
    lines = ["| cases | method | n | " + " | ".join(title for _, title in columns) + " |"]
    lines.append("|---|---|---|" + "---|" * len(columns))
    for name, method, scores in rows:
        # A baseline has no probabilities, and says nothing of the end or of what to do.
        silent = () if method == "nccl-triage" else ("calibration_error", *(name for name, _ in _WHERE_LABELLED))
        cells = [_cell(column, None if column in silent else getattr(scores, column)) for column, _ in columns]
        lines.append(f"| {name} | {method} | {scores.cases} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _by_cause(outcomes: Sequence[CaseOutcome]) -> list[str]:
    groups: dict[str, list[CaseOutcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.case.cause].append(outcome)
    lines = [f"  {'cause':36} {'n':>4} {'right':>6} {'top-3':>6} {'culprit':>8}"]
    for cause, members in sorted(groups.items()):
        known = [o.culprit_right() for o in members if o.culprit_right() is not None]
        culprit = f"{sum(bool(k) for k in known)}/{len(known)}" if known else "-"
        right, three = sum(o.right() for o in members), sum(o.right_in_three() for o in members)
        lines.append(f"  {cause:36} {len(members):>4} {right:>6} {three:>6} {culprit:>8}")
    return lines


def _missed(outcome: CaseOutcome) -> bool:
    said = (outcome.culprit_right(), outcome.helped(), outcome.restart_right())
    return not outcome.right() or False in said or bool(outcome.harmful())


def _miss(outcome: CaseOutcome) -> str:
    case = outcome.case
    what = [] if outcome.right() else [f"said {outcome.answer} ({outcome.confidence:.2f})"]
    if outcome.culprit_right() is False:
        what.append(f"culprit {outcome.culprits[:1] or 'none'}, wanted {list(case.ranks or case.hosts)}")
    if outcome.helped() is False or outcome.harmful():
        what.append(f"{'harmful' if outcome.harmful() else 'useless'} repairs {', '.join(outcome.repairs) or 'none'}")
    if outcome.restart_right() is False:
        what.append(f"restart {outcome.restart}")
    return f"  {case.id} [{case.determinable}] label {'|'.join(case.acceptable)}: {'; '.join(what)}"


def text(results: Sequence[Result], misses: bool = True) -> str:
    """Return everything as plain text."""
    lines = [markdown(results), ""]
    for name, everything, _ in results:
        outcomes = [o for o in everything if not o.case.blind]
        if hidden := len(everything) - len(outcomes):
            lines += [f"{name}: {hidden} blind count in the table only", ""]
        lines += [f"{name} by cause:", *_by_cause(outcomes), ""]
        wrong = [o for o in outcomes if _missed(o)]
        if misses and wrong:
            lines += [f"{name}, misses ({len(wrong)} of {len(outcomes)}):", *(_miss(o) for o in wrong), ""]
    return "\n".join(lines)


def as_data(results: Sequence[Result]) -> dict[str, Any]:
    """Return everything as plain data."""
    return {
        name: {
            "scores": measure(outcomes).as_dict(),
            "counts": {name: tally.as_dict() for name, tally in tallies(outcomes).items()},
            "baselines": {label: measure(found).as_dict() for label, found in baselines.items()},
            "cases": [
                {
                    "id": o.case.id, "label": o.case.cause, "answer": o.answer, "confidence": round(o.confidence, 3),
                    "right": o.right(), "top3": o.causes[:3], "culprit_right": o.culprit_right(), "line_right": o.line_right(),
                }
                for o in outcomes
                if not o.case.blind
            ],
        }
        for name, outcomes, baselines in results
    }  # fmt: skip
