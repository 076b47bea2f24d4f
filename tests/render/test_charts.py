from __future__ import annotations

import re

import pytest

from nccl_triage.render import charts

from .documents import diagnosed, healthy, large, rank_entry


def test_the_timeline_marks_the_first_fault_by_time():
    chart = charts.timeline(diagnosed())
    assert chart is not None
    assert chart.by_time
    assert chart.fault is not None
    assert "torch.oom" in chart.fault.tip
    assert [mark.first for mark in chart.marks].count(True) == 1
    assert chart.marks[-1].first
    assert len(chart.lanes) == 9
    assert chart.ticks[0][1] == "21:05:02"
    later = [mark.x for mark in chart.marks if mark.role == "cascade"]
    assert min(later) > chart.fault.x
    assert max(later) < charts.WIDTH


@pytest.mark.parametrize("times", [None, "no time", "2024-08-23 21:10:26"])
def test_without_usable_times_the_order_counts(times):
    doc = diagnosed()
    for event in doc["timeline"]:
        event["time"] = times
    chart = charts.timeline(doc)
    assert chart is not None
    assert not chart.by_time


def test_times_without_a_year_beside_full_ones_are_not_a_scale():
    doc = diagnosed()
    doc["timeline"][0]["time"] = "1970-08-23 21:10:26"
    chart = charts.timeline(doc)
    assert chart is not None
    assert not chart.by_time


def test_many_ranks_share_lanes_and_the_suspect_keeps_its_own():
    doc = large(512)
    doc["timeline"][2]["rank"] = 170
    chart = charts.timeline(doc)
    assert chart is not None
    assert len(chart.lanes) == charts.MAX_LANES
    assert any(label.en.startswith("rank 170") for _, label in chart.lanes)
    assert any(mark.count > 1 for mark in chart.marks)


def test_nothing_to_draw():
    assert charts.timeline(healthy()) is None
    assert charts.rank_grid(healthy()) is None


def test_few_ranks_are_cells_and_many_are_paths():
    small = charts.rank_grid(diagnosed())
    assert small is not None
    assert [cell["state"] for cell in small.cells].count("root") == 1
    assert [label for _, _, label in small.labels] == ["node-a", "node-b"]
    big = charts.rank_grid(large(512))
    assert big is not None
    assert not big.cells
    paths = dict(big.paths)
    assert paths["entered"].count("z") == 511
    assert set(paths) == {"entered", "missing", "mark"}
    assert ("missing", 1) in [(state, count) for state, _, count, _ in big.legend]


def test_more_ranks_than_fit_leave_out_the_commonest_state():
    grid = charts.rank_grid(large(8192))
    assert grid is not None
    assert grid.not_drawn == 8191
    assert [cell["state"] for cell in grid.cells] == ["missing"]


def test_a_state_of_a_newer_version_counts_as_unknown():
    grid = charts.rank_grid({"job": {"ranks": [rank_entry(0, None, "frozen")]}})
    assert grid is not None
    assert grid.legend[0][0] == "unknown"


@pytest.mark.parametrize("kind", sorted({*charts.SHAPES.values(), *charts.ROLE_SHAPES.values()}))
def test_shapes_differ_and_stay_in_their_box(kind):
    path = charts.shape(kind, 0, 0, 6)
    assert re.fullmatch(r"[MlhvazM\d\s-]+", path)
    others = {charts.shape(other, 0, 0, 6) for other in charts.SHAPES.values() if other != kind}
    assert path not in others
