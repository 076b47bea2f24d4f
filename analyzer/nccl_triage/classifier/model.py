"""The linear model as plain data, applied without scikit-learn or numpy.

``model.json``: ``labels``, ``features`` (name -> inverse document frequency), ``weights`` (name -> a row: one number for
each label, in words, since a log needs few of the many and the others need not become numbers), ``intercepts``,
``temperature``, and how it came about: ``training`` (versions, number of incidents of each label, hash of the examples)
and ``metrics``. Files of format 1, whose rows are objects (label index -> weight), are read as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import exp, isfinite, sqrt
from pathlib import Path
from typing import Any

import orjson

from nccl_triage import files, resources
from nccl_triage.errors import InputError
from nccl_triage.learned import form as forms
from nccl_triage.learned.form import Form

FORMAT = 2
#: Bytes of a model's file at most.
MAX_BYTES = 64 << 20
#: Weights, frequencies and the like beyond this are no result of training, nor are temperatures below that.
_LARGEST, _COLDEST = 1e9, 1e-3
#: Kinds of features that are words; they and the others are brought to length one apart from each other.
WORD_KINDS = ("w:", "p:")


@dataclass(frozen=True, slots=True)
class Model:
    """What was learnt: the probability of each label given the features of a log."""

    labels: tuple[str, ...]
    idf: Mapping[str, float]
    weights: Mapping[str, str]
    intercepts: tuple[float, ...]
    temperature: float
    training: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    #: The file of a model that is not shipped.
    origin: str = ""
    #: The models of form and place that are asked beside it: those that are shipped.
    form: Form = field(default_factory=Form)

    def probabilities(self, names: Iterable[str]) -> dict[str, float]:
        """Return label -> calibrated probability."""
        scores = list(self.intercepts)
        for name, value in vector(names, self.idf).items():
            for index, weight in enumerate(self._row(name)):
                scores[index] += value * weight
        return dict(zip(self.labels, softmax(scores, self.temperature), strict=True))

    def reasons(self, names: Iterable[str], label: str, limit: int = 6) -> list[str]:
        """Return the features that speak most for a label against the average label, the strongest first."""
        index = self.labels.index(label)
        found = []
        for name, value in vector(names, self.idf).items():
            weights = self._row(name)
            excess = value * (weights[index] - sum(weights) / len(self.labels))
            if excess > 0.05:
                found.append((-excess, name))
        return [name for _, name in sorted(found)[:limit]]

    def _row(self, name: str) -> list[float]:
        return [float(word) for word in self.weights[name].split()]

    def incidents(self, label: str) -> int:
        """Return how many incidents of a label the model learnt from."""
        return int(self.training.get("incidents", {}).get(label, 0))


def vector(names: Iterable[str], idf: Mapping[str, float]) -> dict[str, float]:
    """Return the features that have a frequency, words and others each scaled to length one."""
    known = {name: idf[name] for name in sorted(names) if name in idf}
    lengths = [0.0, 0.0]
    for name, value in known.items():
        lengths[name.startswith(WORD_KINDS)] += value * value
    scales = [1 / sqrt(length) if length else 0.0 for length in lengths]
    return {name: value * scales[name.startswith(WORD_KINDS)] for name, value in known.items()}


def row(weights: Iterable[float]) -> str:
    """Return the weights of a feature as a model keeps them."""
    return " ".join(f"{weight:g}" for weight in weights)


def softmax(scores: list[float], temperature: float) -> list[float]:
    """Return probabilities that add up to one."""
    top = max(scores)
    powers = [exp((score - top) / temperature) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]


def from_json(data: bytes, name: str, *, trusted: bool = False) -> Model:
    """Return the model of a file's content; raises InputError when it is none or of a format not known here.

    ``trusted`` leaves out the check of every single weight, which takes longer than the rest.
    """
    remedy = "make it again with: nccl-triage model train"
    try:
        raw = orjson.loads(data)
        if raw["format"] not in (1, FORMAT):
            raise InputError(
                "{name} has model format {found}; this version reads {format}",
                remedy=remedy,
                name=name,
                found=raw["format"],
                format=FORMAT,
            )
        labels = tuple(map(str, raw["labels"]))
        weights, idf = dict(raw["weights"]), dict(raw["features"])
        if raw["format"] == 1:
            weights = {
                name: row([found.get(str(i), 0.0) for i in range(len(labels))]) for name, found in weights.items()
            }
        if len(raw["intercepts"]) != len(labels):
            raise ValueError("labels and weights do not fit each other")
        if not trusted:
            _check(weights, idf, len(labels))
            _check_rest(raw, labels)
        return Model(
            labels=labels,
            idf=idf,
            weights=weights,
            intercepts=tuple(map(float, raw["intercepts"])),
            temperature=float(raw["temperature"]),
            training=dict(raw.get("training", {})),
            metrics=dict(raw.get("metrics", {})),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError("{name} is not a model", cause="{why}", remedy=remedy, name=name, why=error) from None


def _check(weights: dict[str, Any], idf: dict[str, Any], labels: int) -> None:
    """Raise ValueError or TypeError unless all weights and frequencies are numbers of known labels."""
    for words in weights.values():
        numbers = [float(word) for word in words.split()]
        if len(numbers) != labels or not all(map(_is_sound, numbers)):
            raise ValueError("a weight of no label, or no number that a model has")
    if not all(map(_is_sound, idf.values())):
        raise ValueError("a frequency is no number that a model has")
    if not idf.keys() <= weights.keys():
        raise ValueError("a feature without weights")


def _check_rest(raw: Mapping[str, Any], labels: tuple[str, ...]) -> None:
    """Raise ValueError unless labels, intercepts, temperature and numbers of incidents can be computed with."""
    if not labels or len(set(labels)) != len(labels):
        raise ValueError("it has no labels, or one twice")
    if not all(map(_is_sound, raw["intercepts"])):
        raise ValueError("an intercept is no number that a model has")
    temperature = raw["temperature"]
    if not _is_sound(temperature) or temperature < _COLDEST:
        raise ValueError("the temperature is no number above zero")
    incidents = raw.get("training", {}).get("incidents", {})
    if not all(isinstance(number, int) and 0 <= number <= _LARGEST for number in incidents.values()):
        raise ValueError("a number of incidents is none")


def _is_sound(value: object) -> bool:
    """Tell whether a value is a number with which sums and powers stay finite."""
    return isinstance(value, (int, float)) and isfinite(value) and abs(value) <= _LARGEST


def to_json(model: Model) -> bytes:
    """Return the content of a model file, byte for byte the same for the same model."""
    raw = {
        "format": FORMAT,
        "labels": list(model.labels),
        "temperature": model.temperature,
        "intercepts": list(model.intercepts),
        "training": dict(model.training),
        "metrics": dict(model.metrics),
        "features": dict(sorted(model.idf.items())),
        "weights": dict(sorted(model.weights.items())),
    }
    return orjson.dumps(raw) + b"\n"


def load(path: Path) -> Model:
    """Return the model of a user's file; raises InputError when it cannot be read."""
    try:
        data = files.read_regular(path, MAX_BYTES)
    except OSError as error:
        raise InputError(
            "cannot read the model {path}", cause="{why}", path=path, why=error.strerror or error
        ) from None
    return replace(from_json(data, str(path)), origin=str(path), form=forms.shipped())


@cache
def shipped() -> Model | None:
    """Return the model that is part of the distribution, or None in a checkout where it was not made yet."""
    path = resources.model_file()
    if not path.is_file():
        return None
    return replace(from_json(path.read_bytes(), "the shipped model", trusted=True), form=forms.shipped())
