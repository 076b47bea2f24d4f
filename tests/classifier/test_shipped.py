"""The shipped model is what its examples make, is sound, and does not slow a verdict down."""

from __future__ import annotations

import pytest

from nccl_triage import resources
from nccl_triage.classifier import examples as files
from nccl_triage.classifier import model as models
from nccl_triage.classifier import train
from nccl_triage.engine.schema import RuleSet


@pytest.fixture(scope="module")
def shipped() -> models.Model:
    found = models.shipped()
    assert found is not None
    return found


def test_labels_are_causes_or_verdicts(shipped: models.Model, rules: RuleSet) -> None:
    assert set(shipped.labels) <= {*rules.causes, "unknown"}
    assert len(shipped.labels) == 41
    assert shipped.training["incidents"].keys() <= {*shipped.labels, "healthy"}


def test_every_weight_is_sound() -> None:
    assert models.from_json(resources.model_file().read_bytes(), "the shipped model")


def test_the_examples_are_those_that_the_model_names(shipped: models.Model) -> None:
    assert files.digest(resources.examples_file().read_bytes()) == shipped.training["examples"]


def test_only_words_are_learnt(shipped: models.Model) -> None:
    assert {name[:2] for name in shipped.idf} == {"w:", "p:"}


def test_training_again_gives_the_same_weights(shipped: models.Model) -> None:
    import numpy
    import scipy
    import sklearn

    model, _ = train.fit(files.shipped())
    here = {"scikit-learn": sklearn.__version__, "numpy": numpy.__version__, "scipy": scipy.__version__}
    if here == shipped.training["libraries"]:
        assert (model.labels, model.idf, model.weights, model.intercepts) == (
            shipped.labels, shipped.idf, shipped.weights, shipped.intercepts,
        )  # fmt: skip
        return
    # Other versions of the libraries: the same model up to rounding.
    assert model.labels == shipped.labels
    for example in files.shipped()[::40]:
        ours, theirs = model.probabilities(example.full), shipped.probabilities(example.full)
        assert max(ours, key=lambda k: ours[k]) == max(theirs, key=lambda k: theirs[k]) or max(ours.values()) < 0.6
