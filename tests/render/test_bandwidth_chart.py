"""Where the marks of the bandwidth chart go."""

from __future__ import annotations

import pytest

from nccl_triage.render import bandwidth_chart
from nccl_triage.render.shapes import WIDTH

from .verified import measured, run, verification


def test_one_row_a_measurement_with_its_band():
    rows = bandwidth_chart.measurements(verification()["runs"])
    chart = bandwidth_chart.chart(rows)
    assert chart is not None
    assert [bar.value for bar in chart.bars] == ["0.110", "2.40", "0.00004"]
    assert [bar.tone for bar in chart.bars] == ["bad", "good", "quiet"]
    slow, good, tiny = chart.bars
    assert slow.band == good.band
    assert tiny.band is None
    assert slow.band is not None
    left, width = slow.band
    assert slow.x < left < good.x < left + width < WIDTH
    assert slow.y < good.y < tiny.y < chart.height
    assert chart.states == ["in-band", "below", "message-too-small"]
    assert chart.ticks[0][1] == "0"
    assert chart.ticks[-1][0] <= WIDTH
    assert slow.label.en.startswith("run-03: on an interface")
    assert slow.label.zh.startswith("run-03: 改用")


def test_further_collectives_of_a_run_have_rows_of_their_own():
    part = {"op": "BROADCAST", "numel": 7, "dtype": "bfloat16", **measured(3.0, "above", "fast", "快", 1.0, 2.0)}
    rows = bandwidth_chart.measurements([run(1, **measured(1.0, "no-expectation", "", "", None, None), parts=[part])])
    chart = bandwidth_chart.chart(rows)
    assert chart is not None
    assert [bar.label.en for bar in chart.bars] == ["run-01: control", "run-01: BROADCAST 7 x bfloat16"]
    assert [bar.state for bar in chart.bars] == ["no-expectation", "above"]


@pytest.mark.parametrize("most", [0.0, 3e-5, 0.07, 0.99, 1.0, 9.5, 100.0, 482.3, 3600.0])
def test_the_axis_has_round_steps_and_covers_the_largest(most):
    ticks = bandwidth_chart._ticks(most)
    assert ticks[0] == 0
    assert ticks[-1] >= most
    assert ticks[-1] > 0
    assert 2 <= len(ticks) <= 7


def test_nothing_measured_nothing_drawn():
    assert bandwidth_chart.measurements([run(1), {}]) == []
    assert bandwidth_chart.chart([]) is None


def test_states_have_different_shapes():
    assert len({shape for shape, _ in bandwidth_chart.STATES.values()}) == len(bandwidth_chart.STATES)
