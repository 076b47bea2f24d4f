"""Whatever there is much of in an input, time grows as the input does; ``make hostile`` takes larger sizes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nccl_triage import diagnose
from nccl_triage.render import render
from tests.hostile.growth import MOST, exponent, measure
from tests.hostile.shapes import SHAPES, Shape


@pytest.mark.parametrize("name", SHAPES)
def test_time_grows_as_the_input(name: str) -> None:
    shape = SHAPES[name]
    times = measure(shape, shape.size)
    assert exponent(times) <= MOST, [round(took, 2) for took in times]


@pytest.mark.parametrize("word", ["x", "a1_b ", "错", "Ab1.", "NCCL WARN "])
@pytest.mark.parametrize("form", ["text", "junit", "markdown", "html"])
def test_a_report_is_rendered_however_long_its_headline_is(tmp_path: Path, form: str, word: str) -> None:
    SHAPES["exceptions"].make(tmp_path, 20)
    document = diagnose(tmp_path).to_dict()

    def seconds(shape: Shape, size: int) -> float:
        started = time.process_time()
        text = (word * size)[:size]
        render({**document, "headline": text, "headline_zh": text}, form)
        return time.process_time() - started

    times = measure(Shape("headline", lambda folder, size: None, 0, 0), 25_000, seconds)
    assert exponent(times) <= MOST or times[-1] < 1, times


def test_what_grows_faster_is_found() -> None:
    shape = Shape("any", lambda folder, size: None, 100, 100)

    def constant_and(power: float) -> list[float]:
        return measure(shape, 100, lambda shape, size: 0.05 + (size / 1000) ** power)

    assert exponent(constant_and(1.0)) <= MOST
    assert exponent(constant_and(1.6)) > MOST
    assert exponent(constant_and(2.0)) > MOST


def test_shapes_are_what_they_say(tmp_path: Path) -> None:
    """A diagnosis sees them: else nothing that costs time would be tried."""
    for name, cause in (
        ("exceptions", "application-exception"), ("addresses", "network-firewall-port"), ("kernel", "gpu-hardware-fault"),
        ("recorder-entries", "collective-mismatch"), ("timeouts", "rank-divergence"),
    ):  # fmt: skip
        (tmp_path / name).mkdir()
        SHAPES[name].make(tmp_path / name, 60)
        assert diagnose(tmp_path / name).to_dict()["diagnoses"][0]["cause"] == cause, name
