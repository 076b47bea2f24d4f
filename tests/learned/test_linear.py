"""A linear model as plain data."""

from __future__ import annotations

import math

from nccl_triage.learned.linear import Linear, of_dict

MODEL = Linear(("a", "b"), {"x": [100, -100], "y": [-50, 50]}, [0, 0])


def test_probabilities_are_those_of_the_sums_of_weights() -> None:
    found = MODEL.probabilities(["x", "unheard"])
    assert math.isclose(found["a"], 1 / (1 + math.exp(-2)), rel_tol=1e-9)
    assert math.isclose(sum(found.values()), 1.0)
    assert MODEL.probabilities([]) == {"a": 0.5, "b": 0.5}


def test_reasons_are_the_features_that_speak_for_a_label() -> None:
    assert MODEL.reasons(["x", "y", "unheard"], "a", 5) == ["x"]
    assert MODEL.reasons(["x", "y"], "b", 5) == ["y"]
    assert MODEL.reasons(["x", "y"], "a", 0) == []


def test_plain_values_give_the_same_model() -> None:
    again = of_dict(MODEL.as_dict())
    assert again.probabilities(["x"]) == MODEL.probabilities(["x"])
    assert again.as_dict() == MODEL.as_dict()


def test_large_weights_do_not_overflow() -> None:
    assert Linear(("a", "b"), {"x": [10**6, -(10**6)]}, [0, 0]).probabilities(["x"]) == {"a": 1.0, "b": 0.0}
