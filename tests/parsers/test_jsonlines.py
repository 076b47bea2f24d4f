"""The records of log stores are opened wherever they keep the line."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.prefix_reading import peel

LINE = "[rank3]: RuntimeError: it broke"


@pytest.mark.parametrize(
    "record",
    [
        {"log": LINE + "\n", "stream": "stderr", "time": "2026-08-17T10:00:00Z"},
        {"textPayload": LINE, "timestamp": "2026-08-17T10:00:00Z"},
        {"jsonPayload": {"message": LINE}, "timestamp": "2026-08-17T10:00:00Z"},
        {"id": "x", "attributes": {"message": LINE, "timestamp": "2026-08-17T10:00:00Z"}},
        {"_index": "logs", "_source": {"message": LINE, "@timestamp": "2026-08-17T10:00:00Z"}},
        {"preview": False, "result": {"_raw": LINE, "_time": "2026-08-17"}},
        {"timeUnixNano": "1", "body": {"stringValue": LINE}},
    ],
)
def test_the_line_is_found_wherever_the_record_keeps_it(record: dict[str, Any]) -> None:
    peeled = peel(orjson.dumps(record).decode())
    assert (peeled.context.rank, peeled.text) == (3, "RuntimeError: it broke")


def test_colours_inside_a_record_are_taken_away() -> None:
    peeled = peel(orjson.dumps({"log": f"\x1b[36m(Worker pid=41, ip=10.0.0.7)\x1b[0m {LINE}\n"}).decode())
    assert (peeled.context.rank, peeled.context.address, peeled.text) == (3, "10.0.0.7", "RuntimeError: it broke")


@pytest.mark.parametrize(
    ("record", "host"),
    [
        ({"message": LINE, "host": "gpu07"}, "gpu07"),
        ({"message": LINE, "host": {"name": "gpu07"}}, "gpu07"),
        ({"log": LINE, "kubernetes": {"pod_name": "train-worker-3", "host": "ip-10-0-0-7"}}, "train-worker-3"),
        ({"message": LINE, "host": 7}, None),
        ({"message": LINE, "kubernetes": "yes"}, None),
    ],
)
def test_the_place_is_the_pod_or_the_machine(record: dict[str, Any], host: str | None) -> None:
    assert peel(orjson.dumps(record).decode()).context.place == host


@pytest.mark.parametrize(
    "text", ['{"message": 3}', '{"attributes": {"a": 1}}', '{"data": []}', "{}", "[1]", '{"body": {"body": {}}}']
)
def test_other_objects_stay_what_they_are(text: str) -> None:
    assert peel(text).text == text
