"""Charts of ranks."""

from __future__ import annotations

import pytest

from nccl_triage.render import chart_symbols, rank_charts

from .documents import diagnosed, healthy, large, rank_entry


def test_no_ranks_no_grid():
    assert rank_charts.rank_grid(healthy()) is None


def test_few_ranks_are_cells_and_many_are_paths():
    small = rank_charts.rank_grid(diagnosed())
    assert small is not None
    assert [cell["state"] for cell in small.cells].count("root") == 1
    assert [label for _, _, label in small.labels] == ["node-a", "node-b"]
    big = rank_charts.rank_grid(large(512))
    assert big is not None
    assert not big.cells
    paths = dict(big.paths)
    assert paths["entered"].count("z") == 511
    assert set(paths) == {"entered", "missing", "mark"}
    assert ("missing", 1) in [(state, count) for state, _, count, _ in big.legend]


def test_more_ranks_than_fit_leave_out_the_commonest_state():
    grid = rank_charts.rank_grid(large(8192))
    assert grid is not None
    assert grid.not_drawn == 8191
    assert [cell["state"] for cell in grid.cells] == ["missing"]


def test_a_state_of_a_newer_version_counts_as_unknown():
    grid = rank_charts.rank_grid({"job": {"ranks": [rank_entry(0, None, "frozen")]}})
    assert grid is not None
    assert grid.legend[0][0] == "unknown"


def test_the_timeline_marks_the_first_fault_by_time():
    chart = rank_charts.timeline(diagnosed())
    assert chart is not None
    assert chart.by_time
    assert chart.fault is not None
    assert "torch.oom" in chart.fault.tip
    assert [mark.first for mark in chart.marks if mark.first] == ["first_fault"]
    assert chart.marks[-1].first
    assert len(chart.lanes) == 9
    assert chart.ticks[0][1] == "21:05:02"
    later = [mark.x for mark in chart.marks if mark.role == "cascade"]
    assert min(later) > chart.fault.x
    assert max(later) < chart_symbols.WIDTH


@pytest.mark.parametrize("times", [None, "no time", "2024-08-23 21:10:26"])
def test_without_usable_times_the_order_counts(times):
    doc = diagnosed()
    for event in doc["timeline"]:
        event["time"] = times
    chart = rank_charts.timeline(doc)
    assert chart is not None
    assert not chart.by_time


def test_times_without_a_year_beside_full_ones_are_not_a_scale():
    doc = diagnosed()
    doc["timeline"][0]["time"] = "1970-08-23 21:10:26"
    chart = rank_charts.timeline(doc)
    assert chart is not None
    assert not chart.by_time


def test_many_ranks_share_lanes_and_the_suspect_keeps_its_own():
    doc = large(512)
    doc["timeline"][2]["rank"] = 170
    chart = rank_charts.timeline(doc)
    assert chart is not None
    assert len(chart.lanes) == rank_charts.MAX_LANES
    assert any(label.en.startswith("rank 170") for _, label in chart.lanes)
    assert any(mark.count > 1 for mark in chart.marks)


def test_nothing_to_draw():
    assert rank_charts.timeline(healthy()) is None


def test_waits_are_bars_from_arrival_to_time_out_and_stretch_the_scale():
    doc = diagnosed()
    doc["waits"] = [
        {"rank": 0, "since": "2024-08-23 21:00:00", "until": "2024-08-23 21:20:31", "path": "a", "line": 1},
        {"rank": 99, "since": "2024-08-23 21:00:00", "until": "2024-08-23 21:20:31", "path": "a", "line": 2},
        {"rank": 1, "since": "damaged", "until": None, "path": "a", "line": 3},
    ]
    chart = rank_charts.timeline(doc)
    assert chart is not None and len(chart.waits) == 1
    assert chart.ticks[0][1] == "21:00:00"
    assert chart.waits[0].width > 100


def test_consequences_hang_on_the_first_fault():
    chart = rank_charts.timeline(diagnosed())
    assert chart is not None and chart.fault is not None
    assert len(chart.links) == len({m.y for m in chart.marks if m.role == "cascade"} - {chart.fault.y})
    assert all(link.startswith(f"M{chart.fault.x} {chart.fault.y}C") for link in chart.links)


def test_the_incident_names_the_first_fault():
    doc = diagnosed()
    event = doc["timeline"][3]
    doc["incident"] = {"first_fault": {"path": event["path"], "line": event["line"]}}
    assert rank_charts.first_fault(doc) == (event["path"], event["line"])
    doc["incident"] = {"first_fault": {"path": "elsewhere", "line": 1}}
    assert rank_charts.first_fault(doc) != ("elsewhere", 1)


def test_a_consequence_that_comes_first_is_drawn_as_one():
    doc = diagnosed()
    event = next(e for e in doc["timeline"] if e["role"] == "cascade")
    doc["incident"] = {"first_fault": {"path": event["path"], "line": event["line"]}}
    chart = rank_charts.timeline(doc)
    assert chart is not None and chart.fault is not None
    assert (chart.fault.first, chart.fault.role) == ("first_sign", "cascade")
