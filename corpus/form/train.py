"""Fit the models with scikit-learn; weights are rounded, so that the last bits of a library do not reach the file."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import log
from typing import Any

import numpy
import sklearn
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from corpus.compositions import ALL_WELL, WELL
from corpus.form.examples import SET_UP, Example
from nccl_triage.classifier.train import FOLDS, parted
from nccl_triage.learned import ending
from nccl_triage.learned.ending import FINISHED, LABELS, RUNNING
from nccl_triage.learned.form import Form
from nccl_triage.learned.linear import UNIT, Linear
from nccl_triage.learned.telling import OTHER, TELLING

#: Inverse strength of the L2 penalty of each model, chosen by cross-validation over groups.
ENDING_STRENGTH, TELLING_STRENGTH = 0.3, 0.5
#: A feature counts when examples of so many groups have it: words of a single log teach nothing.
LEAST_GROUPS = 8
#: Weight of a log that a program made, beside one of a real job; weight of a composition's lines.
MADE_WEIGHT, COMPOSED_WEIGHT = 0.3, 0.4
#: Weight of a log that was cut in its set-up: there are many, and the whole log of an unknown program looks like one.
SET_UP_WEIGHT = 0.1
#: Weight of a run that goes on: readers who take logs as they come meet two for three that finished, this corpus has one
#: for four. Share of the runs that finished where a label says only that it was well.
RUNNING_WEIGHT, FINISHED_SHARE = 2.0, 0.6
#: How often in one another telling line counts what one that no reader chose counts: there are about three for each.
OTHER_WEIGHT = 1 / 3
#: Weights below this, in hundredths, are left out.
_NEGLIGIBLE = 2

Row = tuple[frozenset[str], str, float]


def fit(rows: Sequence[Row], groups: Sequence[str], labels: Sequence[str], strength: float) -> Linear:
    """Return the model of rows (features, label, weight)."""
    seen: dict[str, set[str]] = defaultdict(set)
    for (names, _, _), group in zip(rows, groups, strict=True):
        for name in names:
            seen[name].add(group)
    known = sorted(name for name, having in seen.items() if len(having) >= LEAST_GROUPS)
    column = {name: number for number, name in enumerate(known)}
    chosen = [sorted(column[name] for name in names if name in column) for names, _, _ in rows]
    starts = [0, *accumulate(map(len, chosen))]
    flat = [number for numbers in chosen for number in numbers]
    matrix = csr_matrix((numpy.ones(len(flat)), flat, starts), shape=(len(rows), len(known)))
    learner = LogisticRegression(C=strength, max_iter=1000, tol=1e-5)
    learner.fit(matrix, [label for _, label, _ in rows], sample_weight=[weight for _, _, weight in rows])
    present = [str(label) for label in learner.classes_]
    # Two classes give one row of weights, for the second of them.
    coefficients = learner.coef_ if len(present) > 2 else numpy.vstack([-learner.coef_[0] / 2, learner.coef_[0] / 2])
    intercepts = learner.intercept_ if len(present) > 2 else [-learner.intercept_[0] / 2, learner.intercept_[0] / 2]
    order = [present.index(label) for label in labels if label in present]
    weights = {}
    for number, name in enumerate(known):
        row = [round(float(coefficients[index][number]) * UNIT) for index in order]
        if max(map(abs, row)) >= _NEGLIGIBLE:
            weights[name] = row
    return Linear(
        tuple(present[index] for index in order), weights, [round(float(intercepts[index]) * UNIT) for index in order]
    )


_SHARES = {
    RUNNING: {RUNNING: RUNNING_WEIGHT},
    WELL: {FINISHED: FINISHED_SHARE, RUNNING: 1 - FINISHED_SHARE},
}


def ending_rows(examples: Sequence[Example]) -> tuple[list[Row], list[str]]:
    """Return how each log ended; a log and its compositions share its weight.

    A run that was well, and no label says whether it finished, counts as both.
    """
    ended = [example for example in examples if example.ends]
    number = Counter(example.id for example in ended)
    rows: list[Row] = []
    groups: list[str] = []
    for one in ended:
        weight = _weight(one) / number[one.id] ** 0.5
        shares = _SHARES.get(one.outcome, {one.outcome: 1.0})
        rows += [(one.ending, label, weight * share) for label, share in shares.items()]
        groups += [one.group] * len(shares)
    return rows, groups


def telling_rows(examples: Sequence[Example]) -> tuple[list[Row], list[str]]:
    """Return the candidates of each log that has the labelled line among them; those that are it share its weight."""
    rows: list[Row] = []
    groups: list[str] = []
    for example in examples:
        right = sum(chosen for _, chosen in example.lines)
        if not right:
            continue
        weight = _weight(example) * (COMPOSED_WEIGHT if example.composition else 1.0)
        for names, chosen in example.lines:
            rows.append((names, TELLING if chosen else OTHER, weight / right if chosen else weight * OTHER_WEIGHT))
            groups.append(example.group)
    return rows, groups


def _weight(example: Example) -> float:
    return (MADE_WEIGHT if example.made else 1.0) * (SET_UP_WEIGHT if example.composition == SET_UP else 1.0)


def ending_of(examples: Sequence[Example]) -> Linear:
    """Return the model of how runs end."""
    return fit(*ending_rows(examples), LABELS, ENDING_STRENGTH)


def telling_of(examples: Sequence[Example]) -> Linear:
    """Return the model of telling lines."""
    return fit(*telling_rows(examples), (OTHER, TELLING), TELLING_STRENGTH)


def folds(examples: Sequence[Example]) -> list[set[str]]:
    """Return disjoint parts of the groups, of about one number of examples each; they depend on the names alone."""
    parts = parted(examples, lambda example: example.group, FOLDS)
    return [{example.group for example in part} for part in parts]


def cross_fitted(
    examples: Sequence[Example], learn: Callable[[Sequence[Example]], Linear]
) -> list[tuple[Linear, Example]]:
    """Return every example with a model that saw no log of its group."""
    found = []
    for part in folds(examples):
        model = learn([example for example in examples if example.group not in part])
        found += [(model, example) for example in examples if example.group in part]
    return found


def measure_ending(fitted: Iterable[tuple[Linear, Example]]) -> dict[str, float]:
    """Return how well held-out logs of real jobs are told apart, alone and composed: well or not, and every way."""
    right: dict[str, list[bool]] = defaultdict(list)
    exact: dict[str, list[bool]] = defaultdict(list)
    loss: dict[str, list[float]] = defaultdict(list)
    for model, example in fitted:
        if example.made:
            continue
        name = "composed" if example.composition else "alone"
        found = ending.judge(model, set(example.ending))
        well, truth = found.well, example.outcome in ALL_WELL
        right[name].append((well > 0.5) == truth)
        loss[name].append(-log(max(1e-6, well if truth else 1 - well)))
        if example.outcome != WELL:
            exact[name].append(found.likeliest == example.outcome)
    shares = {f"{name}_right": _mean(values) for name, values in right.items()}
    shares |= {f"{name}_exactly_right": _mean(values) for name, values in exact.items()}
    return shares | {f"{name}_log_loss": _mean(values) for name, values in loss.items()}


def measure_telling(found: Iterable[tuple[Linear, Example]]) -> dict[str, float]:
    """Return in which share of held-out logs of real jobs the labelled line is among the first one, three and five."""
    hits: dict[int, list[bool]] = defaultdict(list)
    for model, example in found:
        if example.made or example.composition or not example.lines:
            continue
        ranked = sorted(example.lines, key=lambda line: -model.probabilities(line[0])[TELLING])
        for number in (1, 3, 5):
            hits[number].append(any(chosen for _, chosen in ranked[:number]))
    return {f"first_{number}": _mean(values) for number, values in hits.items()}


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / max(1, len(values)), 4)


def train(examples: Sequence[Example]) -> Form:
    """Return both models, trained on all examples, with what they do on groups that they did not see."""
    real = {example.id for example in examples if not example.made}
    training: dict[str, Any] = {
        "logs": {"real": len(real), "made": len({example.id for example in examples}) - len(real)},
        "examples": len(examples),
        "outcomes": dict(sorted(Counter(e.outcome for e in examples if e.ends and not e.composition).items())),
        "labelled_lines": sum(any(chosen for _, chosen in e.lines) for e in examples if not e.composition),
        "libraries": {"scikit-learn": sklearn.__version__, "numpy": numpy.__version__},
        "held_out": {
            "ending": measure_ending(cross_fitted(examples, ending_of)),
            "telling": measure_telling(cross_fitted(examples, telling_of)),
        },
    }
    return Form(ending_of(examples), telling_of(examples), training)
