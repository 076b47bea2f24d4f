"""Exports of log stores and pages of consoles are read as the lines that they hold, oldest first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nccl_triage import tool_reports
from nccl_triage.observations.event import Context
from nccl_triage.observations.store import SourceInfo
from nccl_triage.parsers.jsonlines import peel_json
from nccl_triage.tool_reports import log_stores

LINES = [
    'step 1, "loss" 2.1',
    "Traceback (most recent call last):",
    '  File "a.py", line 3, in <module>',
    "KeyError: 'x'",
]
STAMPS = [f"2025-06-03T09:00:0{n}.000Z" for n in range(len(LINES))]


def read(name: str, data: bytes, info: SourceInfo | None = None) -> list[str] | None:
    report = tool_reports.recognise(name, data[: tool_reports.SAMPLE])
    made = None if report is None else report.render(data, info or SourceInfo(name))
    return None if made is None else made.decode().splitlines()


def messages(lines: list[str] | None) -> list[str]:
    found = []
    for line in lines or []:
        peeled = peel_json(line, Context())
        assert peeled is not None
        found += peeled
    return found


def _records(newest: bool) -> list[dict[str, Any]]:
    found = [{"timestamp": stamp, "message": line} for stamp, line in zip(STAMPS, LINES, strict=True)]
    return found[::-1] if newest else found


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_of_records_is_read_in_order(newest: bool, indent: int | None) -> None:
    assert messages(read("logs.json", json.dumps(_records(newest), indent=indent).encode())) == LINES


@pytest.mark.parametrize("around", ["events", "hits", "data"])
def test_records_are_found_where_the_store_lists_them(around: str) -> None:
    assert (
        messages(read("x.json", json.dumps({"took": 3, around: {"total": 4, "rows": _records(True)}}).encode()))
        == LINES
    )


def test_streams_of_loki_are_read_by_time() -> None:
    times = [str(1_748_941_200_000_000_000 + n) for n in range(len(LINES))]
    pairs = [list(pair) for pair in zip(times, LINES, strict=True)]
    pairs = [[f"{int(time) * 1}", line] for time, line in pairs]
    streams = [{"stream": {"host": f"node{n}"}, "values": pairs[n::2][::-1]} for n in (0, 1)]
    lines = read("q.json", json.dumps({"status": "success", "data": {"result": streams}}).encode())
    assert sorted(messages(lines)) == sorted(LINES)
    assert lines is not None and "node1" in lines[-1] and "node0" in lines[0]


def test_the_lines_of_a_record_stand_alone_with_all_that_it_says() -> None:
    record = {"time": STAMPS[0], "rank": 3, "msg": "\n".join(LINES), "pod": "p", "exc_info": "ValueError: y"}
    lines = read("x.json", json.dumps([record]).encode())
    assert messages(lines) == [*LINES, "ValueError: y"]
    assert all(json.loads(line)["rank"] == 3 for line in lines or [])


def test_an_export_that_was_cut_off_is_read_as_far_as_it_goes() -> None:
    info = SourceInfo("x")
    assert messages(read("x.json", json.dumps(_records(False)).encode()[:-20], info)) == LINES[:-1]
    assert info.problems == [log_stores.CUT]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("@timestamp,@message", '{0},"{1}"'),
        ("Time,Line,tsNs,labels", '"{0}","{1}","1","{{}}"'),
        ("Date,Host,Service,Message", '"{0}","node7","train","{1}"'),
    ],
)
@pytest.mark.parametrize("newest", [False, True])
def test_rows_of_csv_are_read_in_order(header: str, row: str, newest: bool) -> None:
    rows = [row.format(stamp, line.replace('"', '""')) for stamp, line in zip(STAMPS, LINES, strict=True)]
    text = "\r\n".join([header, *(rows[::-1] if newest else rows)])
    assert messages(read("x.csv", text.encode())) == LINES


@pytest.mark.parametrize(
    "text",
    [
        '{"message": "a", "time": "2025-06-03T09:00:00Z"}\n{"message": "b", "time": "2025-06-03T09:00:01Z"}\n',
        '{"model": "x", "log_history": [{"step": 1, "loss": 2.0}]}',
        "[rank0]: step 1, message, time\n",
        "step,loss\n1,2.0\n",
        '[{"a": 1}]',
    ],
)
def test_what_is_no_export_stays_what_it_is(text: str) -> None:
    assert read("x.log", text.encode()) is None


def test_a_header_with_other_rows_is_no_export() -> None:
    assert read("x.log", b"time,message\nstep 1\nstep 2\n") is None


def test_depth_and_damage_raise_nothing() -> None:
    for data in (b'[{"message": "a", "time": 1},' + b"[" * 100_000, b'[{"message"' * 1000 + b'"time":', b'time,message\n1,"' + b"x" * (2 << 20)):  # fmt: skip
        read("x.json", data)


@pytest.mark.parametrize(
    "page",
    [
        "<!DOCTYPE html><html><head><title>t</title><script>var a = '<b>';</script></head><body><pre>{lines}\n</pre></body></html>",
        "<html><!-- c --><body><div><b>{lines}</b></div></body></html>",
    ],
)
def test_a_page_is_read_as_it_is_shown(page: str) -> None:
    shown = "\n".join(line.replace("<", "&lt;").replace('"', "&quot;") for line in LINES)
    assert read("x.html", page.format(lines=shown).encode()) == LINES
    assert read("x.html", page.format(lines=shown.replace("\n", "<br>")).encode()) == LINES


def test_cells_of_a_row_are_one_line() -> None:
    assert read("x.html", b"<table><tr><td>1</td><td>a <i>b</i></td></tr><tr><td></td><td>c</td></tr></table>") == [
        "1\ta b",
        "c",
    ]
