"""Train the model with scikit-learn: multinomial logistic regression on weighted features, then a temperature.

The only module (with ``evaluation.ablation``, which calls it) that needs scikit-learn. Weights are rounded, so that the
last bits of a linear-algebra library do not reach the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import log
from typing import Any, TypeVar

from nccl_triage.classifier.examples import GENERATED, SAMPLE, WRITTEN, Example
from nccl_triage.classifier.features import NEVER_LEARNT
from nccl_triage.classifier.model import Model, row, vector
from nccl_triage.classifier.vote import VERDICTS
from nccl_triage.errors import UsageError

_Item = TypeVar("_Item")
#: Inverse strength of the L2 penalty, chosen by grouped cross-validation.
STRENGTH = 10.0
#: A feature counts when this many examples have it.
MIN_EXAMPLES = 3
#: Weight of an example by where it comes from; a generated log repeats what its author knew, a sample is one line.
SOURCE_WEIGHT = {GENERATED: 0.15, SAMPLE: 0.5, WRITTEN: 0.5}
#: Weight of an incident that is healthy or unknown, beside those of causes: no sample speaks for these two.
VERDICT_WEIGHT = 2.0
#: Weight of the view with the decisive signatures withheld.
WITHHELD_WEIGHT = 0.5
#: Digits of a frequency and of a weight, and the size below which a weight is left out.
DIGITS, WEIGHT_DIGITS, NEGLIGIBLE = 3, 2, 0.02
FOLDS = 5
_TEMPERATURES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.5)


def _sklearn() -> Any:
    try:
        import sklearn
    except ImportError:
        raise UsageError(
            "training needs scikit-learn, which is not installed", remedy="pip install 'nccl-triage[train]'"
        ) from None
    return sklearn


def frequencies(examples: Sequence[Example]) -> dict[str, float]:
    """Return the inverse document frequency of each feature that enough examples have."""
    counts = Counter(
        name for example in examples for name in example.full | example.withheld if not name.startswith(NEVER_LEARNT)
    )
    total = len(examples)
    return {
        name: round(log((1 + total) / (1 + number)) + 1, DIGITS)
        for name, number in sorted(counts.items())
        if number >= MIN_EXAMPLES
    }


def _rows(examples: Sequence[Example]) -> list[tuple[frozenset[str], str, float]]:
    rows = []
    for example in examples:
        weight = SOURCE_WEIGHT.get(example.source, 1.0)
        if example.label in VERDICTS:
            weight *= VERDICT_WEIGHT
        rows.append((example.full, example.label, weight))
        if example.withheld != example.full:
            rows.append((example.withheld, example.label, weight * WITHHELD_WEIGHT))
    return rows


def matrix(views: Sequence[frozenset[str]], idf: dict[str, float]) -> Any:
    """Return the views as a sparse matrix whose columns are the features in alphabetical order."""
    from scipy.sparse import csr_matrix

    column = {name: number for number, name in enumerate(sorted(idf))}
    data: list[float] = []
    indices: list[int] = []
    starts = [0]
    for view in views:
        for name, value in vector(view, idf).items():
            indices.append(column[name])
            data.append(value)
        starts.append(len(data))
    return csr_matrix((data, indices, starts), shape=(len(views), len(column)))


def fit(examples: Sequence[Example]) -> tuple[Model, Any]:
    """Return a model without calibration, and scikit-learn's own object (tests compare the two)."""
    _sklearn()
    from sklearn.linear_model import LogisticRegression

    # Nobody asks for the cause of a run in which nothing failed.
    ordered = sorted((e for e in examples if e.label != "healthy"), key=lambda e: (e.source, e.id))
    if len({example.label for example in ordered}) < 2:
        raise UsageError("training needs incidents of at least two causes", remedy="add labelled cases")
    idf = frequencies(ordered)
    rows = _rows(ordered)
    learner = LogisticRegression(C=STRENGTH, max_iter=300, tol=1e-4)
    learner.fit(matrix([view for view, _, _ in rows], idf), [label for _, label, _ in rows],
                sample_weight=[weight for _, _, weight in rows])  # fmt: skip
    labels = [str(label) for label in learner.classes_]
    # Two classes give one row of weights, for the second of them.
    weights = learner.coef_ if len(labels) > 2 else [-learner.coef_[0] / 2, learner.coef_[0] / 2]
    intercepts = learner.intercept_ if len(labels) > 2 else [-learner.intercept_[0] / 2, learner.intercept_[0] / 2]
    table: dict[str, str] = {}
    for number, name in enumerate(sorted(idf)):
        rounded = [round(float(weights[i][number]), WEIGHT_DIGITS) for i in range(len(labels))]
        kept = [weight if abs(weight) >= NEGLIGIBLE else 0.0 for weight in rounded]
        if any(kept):
            table[name] = row(kept)
    model = Model(
        labels=tuple(labels),
        idf={name: idf[name] for name in table},
        weights=table,
        intercepts=tuple(round(float(value), DIGITS) for value in intercepts),
        temperature=1.0,
    )
    return model, learner


def folds(examples: Sequence[Example], number: int = FOLDS) -> list[list[Example]]:
    """Return disjoint parts of about one size; a group is never split, and the result depends on the ids alone."""
    return parted(sorted(examples, key=lambda e: (e.source, e.id)), lambda e: e.group, number)


def parted(items: Iterable[_Item], group_of: Callable[[_Item], str], number: int) -> list[list[_Item]]:
    """Return disjoint parts of about one size; a group is never split, and the largest groups are placed first."""
    groups: dict[str, list[_Item]] = {}
    for item in items:
        groups.setdefault(group_of(item), []).append(item)
    parts: list[list[_Item]] = [[] for _ in range(number)]
    for _, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        min(parts, key=len).extend(members)
    return parts


def temperature(held_out: Sequence[tuple[Model, Example]]) -> float:
    """Return the temperature under which held-out examples are most likely: the calibration of the probabilities."""

    def loss(value: float) -> float:
        total = 0.0
        for model, example in held_out:
            cooled = replace(model, temperature=value)
            probabilities = cooled.probabilities(example.full)
            total -= log(max(1e-6, sum(probabilities.get(label, 0.0) for label in example.acceptable)))
        return total

    return min(_TEMPERATURES, key=loss)


def for_training(examples: Sequence[Example], held_out: Sequence[Example]) -> list[Example]:
    """Return the examples for training a model that judges the held-out ones, without samples of signatures seen there.

    Many samples were taken from an incident and would reveal the answer.
    """
    shown = {name for example in held_out for name in example.full | example.withheld if name.startswith(NEVER_LEARNT)}
    return [
        example for example in examples if example.source != SAMPLE or f"{NEVER_LEARNT}{example.group}" not in shown
    ]


def cross_fitted(examples: Sequence[Example]) -> list[tuple[Model, Example]]:
    """Return every real example with a model that never saw its group; the others only ever train."""
    further = [example for example in examples if not example.real]
    parts = folds([example for example in examples if example.real])
    found: list[tuple[Model, Example]] = []
    for index, part in enumerate(parts):
        if not part:
            continue
        rest = [example for other, members in enumerate(parts) if other != index for example in members]
        model, _ = fit([*rest, *for_training(further, part)])
        found += [(model, example) for example in part]
    return found


def train(examples: Sequence[Example], hashed: str, held_out: Sequence[tuple[Model, Example]]) -> Model:
    """Return the calibrated model of all examples; ``hashed`` names them, ``held_out`` calibrates."""
    sklearn = _sklearn()
    import numpy
    import scipy

    model, _ = fit(examples)
    real = [example for example in examples if example.real]
    right = sum(_first(m, e) in e.acceptable for m, e in held_out)
    return replace(
        model,
        temperature=temperature(held_out),
        training={
            "examples": hashed,
            "incidents": dict(sorted(Counter(example.label for example in real).items())),
            "sources": dict(sorted(Counter(example.source for example in examples).items())),
            "libraries": {"scikit-learn": sklearn.__version__, "numpy": numpy.__version__, "scipy": scipy.__version__},
        },
        metrics={"held_out": len(held_out), "held_out_top1": round(right / max(1, len(held_out)), 3)},
    )


def _first(model: Model, example: Example) -> str:
    probabilities = model.probabilities(example.full)
    return max(probabilities, key=lambda label: probabilities[label])
