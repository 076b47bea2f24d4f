from __future__ import annotations

import re
from typing import Any

import pytest

from nccl_triage.render import curves
from nccl_triage.render.chart_symbols import WIDTH

from .documents import full, healthy


def series(points: list[Any], **more: Any) -> dict[str, Any]:
    return {
        "metric": "loss", "unit": None, "title": "Loss", "title_zh": "损失", "rank": 0, "source": "a.log", "x": "step",
        "points": points, "not_finite": [], "count": len(points), "min": 1.0, "max": 2.0, "last": 1.0, "lines": [1, 9],
        "marks": [{"kind": "spike", "x": 0}],
        **more,
    }  # fmt: skip


def pixels(path: str) -> list[tuple[int, int]]:
    return [(int(x), int(y)) for x, y in re.findall(r"(-?\d+) (-?\d+)", path)]


def test_no_series_or_single_points_draw_nothing() -> None:
    assert curves.draw(healthy()) is None
    assert curves.draw({"series": [series([[1, 2.0]])]}) is None


@pytest.mark.parametrize("more", [{"marks": []}, {"marks": [{"kind": "last_good", "x": 1}]}, {"x": "line"}])
def test_a_curve_that_shows_nothing_or_has_no_axis_is_not_drawn(more: dict[str, Any]) -> None:
    assert curves.draw({"series": [series([[0, 1.0], [1, 2.0]], **more)]}) is None


def test_the_axis_tells_steps_or_times_of_the_day() -> None:
    steps = curves.draw({"series": [series([[0, 1.0], [90, 2.0]])]})
    times = curves.draw({"series": [series([[0, 1.0], [90, 2.0]], x="time", x_start="2024-08-23 21:00:00")]})
    assert steps is not None and times is not None
    assert [text for *_, text, _ in steps.panels[0].axis[2:]] == ["0", "90"]
    assert [text for *_, text, _ in times.panels[0].axis[2:]] == ["21:00:00", "21:01:30"]
    assert steps.panels[0].width == WIDTH


def test_larger_values_stand_higher_and_later_steps_to_the_right() -> None:
    drawn = curves.draw({"series": [series([[0, 1.0], [5, 2.0], [10, 1.5]])]})
    assert drawn is not None
    (first, middle, last) = pixels(drawn.panels[0].lines[0][0])
    assert first[0] < middle[0] < last[0] <= WIDTH
    assert middle[1] < last[1] < first[1]


def test_a_wide_range_is_drawn_by_its_logarithm() -> None:
    drawn = curves.draw({"series": [series([[0, 1.0], [1, 100.0], [2, 10000.0]])]})
    assert drawn is not None
    ys = [y for _, y in pixels(drawn.panels[0].lines[0][0])]
    assert abs((ys[0] - ys[1]) - (ys[1] - ys[2])) <= 1


@pytest.mark.parametrize(
    "points", [[[0, 1.0], [1, 1.0]], [[5, 3.0], [5, 4.0]], [[0, None], [1, 2.0], [2, 3.0]], [[0, 0.0], [1, -1e300]]]
)
def test_flat_repeated_missing_and_extreme_values(points: list[Any]) -> None:
    drawn = curves.draw({"series": [series(points)]})
    assert drawn is not None
    for x, y in pixels(drawn.panels[0].lines[0][0]):
        assert 0 <= x <= WIDTH and 0 <= y <= drawn.height


def test_ranks_share_a_panel_and_metrics_have_their_own() -> None:
    drawn = curves.draw(full())
    assert drawn is not None
    assert [(panel.title.en, len(panel.lines)) for panel in drawn.panels] == [("Loss", 2), ("GPU memory", 1)]
    assert drawn.panels[0].bad[0][1] == "30: nan"
    assert [row["rank"] for row in drawn.rows] == [0, 1, 0]


def test_too_many_metrics_are_counted_and_still_in_the_table() -> None:
    many = [series([[0, 1.0], [1, 2.0]], metric=f"m{i}") for i in range(12)]
    drawn = curves.draw({"series": many})
    assert drawn is not None
    assert (len(drawn.panels), drawn.left_out, len(drawn.rows)) == (curves.MAX_PANELS, 12 - curves.MAX_PANELS, 12)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(3, "3"), (2.5, "2.5"), (123456.0, "123456"), (1e-7, "1e-07"), (None, ""), (12345678.9, "1.235e+07")],
)
def test_numbers(value: Any, shown: str) -> None:
    assert curves.number(value) == shown
