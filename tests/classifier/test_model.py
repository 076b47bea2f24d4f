"""The model without scikit-learn says what scikit-learn says, the file is stable, and broken files are refused."""

from __future__ import annotations

import random
from dataclasses import replace

import orjson
import pytest

from nccl_triage.classifier import examples as files
from nccl_triage.classifier import model as models
from nccl_triage.classifier import train
from nccl_triage.classifier.examples import Example
from nccl_triage.errors import InputError, UsageError

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
