"""The model without scikit-learn says what scikit-learn says, the file is stable, and broken files are refused."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from nccl_triage.classifier import examples as files
from nccl_triage.classifier import model as models
from nccl_triage.classifier import train
from nccl_triage.classifier.examples import Example
from nccl_triage.cli import cli
from nccl_triage.errors import EXIT_USAGE, InputError, UsageError

WORDS = {
    "gpu-out-of-memory": ["memory", "allocate", "cuda", "gib"],
    "port-in-use": ["address", "already", "bind", "port"],
    "unknown": ["timeout", "watchdog", "aborted"],
}


def made(number: int = 60, seed: int = 1, source: str = "written") -> list[Example]:
    chance = random.Random(seed)
    found = []
    for index in range(number):
        label = list(WORDS)[index % len(WORDS)]
        names = {f"w:{word}" for word in chance.sample(WORDS[label], 2)} | {f"w:noise{chance.randrange(9)}", "j:ray"}
        fewer = frozenset(name for name in names if name != f"w:{WORDS[label][0]}")
        found.append(Example(f"c{index}", label, (), f"g{index // 2}", source, frozenset(names), fewer))
    return found


def test_prediction_without_sklearn_agrees_with_sklearn() -> None:
    learnt = made()
    model, learner = train.fit(learnt)
    idf = train.frequencies(learnt)
    rows = train.matrix([example.full for example in learnt], idf)
    theirs = learner.predict_proba(rows)
    for example, row, label in zip(learnt, theirs, learner.predict(rows), strict=True):
        ours = model.probabilities(example.full)
        assert max(ours, key=lambda name: ours[name]) == label
        assert [ours[name] for name in learner.classes_] == pytest.approx(list(row), abs=0.01)


def test_the_same_incidents_make_the_same_bytes() -> None:
    def file(learnt: list[Example]) -> bytes:
        data = files.to_bytes(learnt)
        return models.to_json(train.train(learnt, files.digest(data), train.cross_fitted(learnt)))

    shuffled = made()
    random.Random(5).shuffle(shuffled)
    assert file(made()) == file(shuffled)


def test_a_file_gives_the_model_back() -> None:
    model, _ = train.fit(made())
    again = models.from_json(models.to_json(model), "it")
    names = made()[0].full
    assert again.probabilities(names) == pytest.approx(model.probabilities(names))


def test_a_file_of_the_first_format_is_read() -> None:
    """Its rows are objects, and leave out what is too small to matter."""
    model, _ = train.fit(made())
    raw = orjson.loads(models.to_json(model))
    rows = {name: dict(enumerate(map(float, words.split()))) for name, words in raw["weights"].items()}
    raw["weights"] = {name: {str(i): weight for i, weight in row.items() if weight} for name, row in rows.items()}
    assert models.from_json(orjson.dumps({**raw, "format": 1}), "it") == model


@pytest.mark.parametrize("words", ["0.5", "a b", "inf 0", ""])
def test_a_row_of_weights_that_does_not_fit_is_refused(words: str) -> None:
    model, _ = train.fit(made())
    broken = replace(model, weights={**model.weights, next(iter(model.weights)): words})
    with pytest.raises(InputError):
        models.from_json(models.to_json(broken), "it")


BASE: dict[str, Any] = {
    "format": models.FORMAT,
    "labels": ["gpu-out-of-memory", "unknown", "no-such-cause"],
    "temperature": 1.0,
    "intercepts": [3.0, 0.5, 2.0],
    "training": {"incidents": {"gpu-out-of-memory": 2}},
    "metrics": {},
    "features": {"w:cuda": 1.0, "w:memory": 1.0},
    "weights": {"w:cuda": "3 0 1", "w:memory": "2 0 1"},
}


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value within a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*above, key)
        yield from places(item, (*above, key))


@pytest.mark.parametrize(
    "odd", [0, -1, 1e308, 1e-308, None, "x", "", [], {}, True, [0] * 3, {"gpu-out-of-memory": "x"}], ids=str
)
def test_a_model_of_odd_values_is_refused_or_gives_probabilities(odd: Any) -> None:
    for place in places(BASE):
        changed = copy.deepcopy(BASE)
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = odd
        try:
            model = models.from_json(json.dumps(changed).encode(), "x.json")
        except InputError as error:
            assert error.message == "x.json is not a model" or "model format" in error.message
            continue
        found = model.probabilities(["w:cuda", "w:memory"])
        assert sum(found.values()) == pytest.approx(1.0), place
        assert model.incidents("gpu-out-of-memory") >= 0


@pytest.mark.parametrize(
    "change", [{"temperature": 0}, {"temperature": -2.0}, {"temperature": 1e400}, {"labels": [], "intercepts": [], "features": {}, "weights": {}}]
)  # fmt: skip
def test_a_model_that_nothing_can_be_computed_with_ends_in_a_sentence(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**BASE, **change}).replace("Infinity", "1e400"))
    log = tmp_path / "job.log"
    log.write_text("[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    result = CliRunner().invoke(cli, ["diagnose", str(log), "--model", str(path)], standalone_mode=False)
    assert isinstance(result.exception, InputError)
    assert result.exception.exit_code == EXIT_USAGE


def test_only_a_regular_file_is_read_as_a_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link", "."):
        with pytest.raises(InputError, match="cannot read the model"):
            models.load(tmp_path / name)


def test_examples_survive_their_file() -> None:
    assert files.from_bytes(files.to_bytes(made()), "it") == sorted(made(), key=lambda e: (e.source, e.id))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"format": 99}', b'{"format": 1, "labels": 3}', b"\x80\x04"])
def test_broken_models_are_refused_in_a_sentence(data: bytes) -> None:
    with pytest.raises(InputError):
        models.from_json(data, "model.json")


@pytest.mark.parametrize("data", [b"", b"{}", b"\x1f\x8b", b"\x80\x04N."])
def test_broken_examples_are_refused_in_a_sentence(data: bytes) -> None:
    with pytest.raises(InputError):
        files.from_bytes(data, "examples.json.gz")


def test_groups_are_never_split() -> None:
    parts = train.folds(made(), 4)
    places = {}
    for index, part in enumerate(parts):
        for example in part:
            assert places.setdefault(example.group, index) == index
    assert sum(map(len, parts)) == 60


def test_generated_examples_are_never_judged() -> None:
    both = [*made(), *made(30, 2, "generated")]
    assert {example.source for _, example in train.cross_fitted(both)} == {"written"}


def test_one_cause_alone_cannot_be_learnt() -> None:
    with pytest.raises(UsageError):
        train.fit([example for example in made() if example.label == "unknown"])


def test_reasons_are_the_words_of_the_label() -> None:
    model, _ = train.fit(made())
    reasons = model.reasons({"w:memory", "w:allocate", "w:noise1", "w:never seen"}, "gpu-out-of-memory")
    assert set(reasons[:2]) == {"w:memory", "w:allocate"}
