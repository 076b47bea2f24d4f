"""The story as lanes over time."""

from __future__ import annotations

import pytest

from nccl_triage.render import chart_symbols, time_axis

from .documents import diagnosed, healthy, large


def test_the_timeline_marks_the_first_fault_by_time():
    chart = time_axis.timeline(diagnosed())
    assert chart is not None
    assert chart.fault is not None
    assert "torch.oom" in chart.fault.tip
    assert [mark.first for mark in chart.marks if mark.first] == ["first_fault"]
    assert chart.marks[-1].first
    assert len(chart.lanes) == 9
    assert chart.ticks[0][1] == "21:10"
    later = [mark.x for mark in chart.marks if mark.role == "cascade"]
    assert min(later) > chart.fault.x
    assert max(later) < chart_symbols.WIDTH


@pytest.mark.parametrize("times", [None, "no time", "2024-08-23 21:10:26"])
def test_without_moments_apart_nothing_is_drawn(times):
    doc = diagnosed()
    for event in doc["timeline"]:
        event["time"] = times
    assert time_axis.timeline(doc) is None


def test_what_has_no_time_stands_apart():
    timed, apart = time_axis.placed(diagnosed())
    assert [event["signature"] for event in apart] == ["python.traceback"]
    assert len(timed) == len(diagnosed()["timeline"]) - 1


def test_a_time_of_another_age_stands_apart():
    doc = diagnosed()
    doc["timeline"][0]["time"] = "1970-08-23 21:10:26"
    _, apart = time_axis.placed(doc)
    assert doc["timeline"][0] in apart
    chart = time_axis.timeline(doc)
    assert chart is not None and chart.unit == "2024-08-23"


def test_times_without_a_year_are_of_the_year_of_the_others():
    assert time_axis.seconds("08-23 21:10:26", 2024) == time_axis.seconds("2024-08-23 21:10:26")
    doc = diagnosed()
    for event in doc["timeline"]:
        event["time"] = event["time"] and event["time"][5:]
    chart = time_axis.timeline(doc)
    assert chart is not None and chart.unit == "08-23"
    assert [label for _, label in chart.ticks] == [label for _, label in time_axis.timeline(diagnosed()).ticks]


def test_a_fault_without_a_time_stands_where_the_incident_began():
    doc = diagnosed()
    fault = doc["timeline"][2]
    fault["time"] = None
    doc["incident"] = {"first_fault": fault, "about": True, "started": "2024-08-23 21:10:20"}
    chart = time_axis.timeline(doc)
    assert chart is not None and chart.fault is not None
    exact = time_axis.timeline(diagnosed())
    assert exact is not None and exact.fault is not None
    assert 0 <= exact.fault.x - chart.fault.x <= 8


def test_the_end_of_the_incident_is_on_the_axis_although_no_event():
    doc = diagnosed()
    doc["incident"] = {"end": {"path": "other", "line": 7, "time": "2024-08-23 22:30:00", "rank": 2, "role": "context"}}
    chart = time_axis.timeline(doc)
    assert chart is not None
    assert chart.ticks[-1][1] == "22:30"


@pytest.mark.parametrize(
    ("span", "ticks"),
    [
        (3, ["00:00:00", "00:00:00.5", "00:00:01", "00:00:01.5", "00:00:02", "00:00:02.5", "00:00:03"]),
        (4, ["00:00:00", "00:00:01", "00:00:02", "00:00:03", "00:00:04"]),
        (65, ["00:00:00", "00:00:15", "00:00:30", "00:00:45", "00:01:00"]),
        (3600, ["00:00", "00:10", "00:20", "00:30", "00:40", "00:50", "01:00"]),
        (2 * 86400, ["01-01 00:00", "01-01 12:00", "01-02 00:00", "01-02 12:00", "01-03 00:00"]),
    ],
)
def test_ticks_are_round_times(span, ticks):
    assert [label for _, label in time_axis._ticks(0.0, float(span), int)] == ticks


def test_many_ranks_share_lanes_and_the_suspect_keeps_its_own():
    doc = large(512)
    doc["timeline"][2]["rank"] = 170
    chart = time_axis.timeline(doc)
    assert chart is not None
    assert len(chart.lanes) == time_axis.MAX_LANES
    assert any(label.en.startswith("rank 170") for _, label in chart.lanes)
    assert any(mark.count > 1 for mark in chart.marks)


def test_nothing_to_draw():
    assert time_axis.timeline(healthy()) is None


def test_waits_are_bars_from_arrival_to_time_out_and_stretch_the_scale():
    doc = diagnosed()
    doc["waits"] = [
        {"rank": 0, "since": "2024-08-23 21:00:00", "until": "2024-08-23 21:20:31", "path": "a", "line": 1},
        {"rank": 99, "since": "2024-08-23 21:00:00", "until": "2024-08-23 21:20:31", "path": "a", "line": 2},
        {"rank": 1, "since": "damaged", "until": None, "path": "a", "line": 3},
    ]
    chart = time_axis.timeline(doc)
    assert chart is not None and len(chart.waits) == 1
    assert chart.ticks[0][1] == "21:00"
    assert chart.waits[0].width > 100


def test_consequences_hang_on_the_first_fault():
    chart = time_axis.timeline(diagnosed())
    assert chart is not None and chart.fault is not None
    assert len(chart.links) == len({m.y for m in chart.marks if m.role == "cascade"} - {chart.fault.y})
    assert all(link.startswith(f"M{chart.fault.x} {chart.fault.y}C") for link in chart.links)


def test_the_incident_names_the_first_fault():
    doc = diagnosed()
    event = doc["timeline"][3]
    doc["incident"] = {"first_fault": {"path": event["path"], "line": event["line"]}}
    assert time_axis.first_fault(doc) == (event["path"], event["line"])
    doc["incident"] = {"first_fault": {"path": "elsewhere", "line": 1}}
    assert time_axis.first_fault(doc) != ("elsewhere", 1)


def test_a_consequence_that_comes_first_is_drawn_as_one():
    doc = diagnosed()
    event = next(e for e in doc["timeline"] if e["role"] == "cascade")
    doc["incident"] = {"first_fault": {"path": event["path"], "line": event["line"]}}
    chart = time_axis.timeline(doc)
    assert chart is not None and chart.fault is not None
    assert (chart.fault.first, chart.fault.role) == ("first_sign", "cascade")
