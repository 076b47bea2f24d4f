"""The documents in which log stores, consoles and people hand a log on."""

from __future__ import annotations

import csv
import html
import io
import json
import random
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from corpus.relations.collectors import clock, iso

Pack = Callable[[list[str], random.Random], bytes]
#: How a log comes -> the name of the file, and what makes it of the lines.
EXPORTS: dict[str, tuple[str, Pack]] = {}


def export(name: str, file: str) -> Callable[[Pack], Pack]:
    """Register a document."""

    def register(pack: Pack) -> Pack:
        EXPORTS[name] = file, pack
        return pack

    return register


def _zip(lines: list[str], folder: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{folder}train.log", "\n".join(lines) + "\n")
    return stream.getvalue()


@export("zip", "train.zip")
def _zipped(lines: list[str], chance: random.Random) -> bytes:
    return _zip(lines, "")


@export("zip of a folder", "artifacts.zip")
def _zipped_folder(lines: list[str], chance: random.Random) -> bytes:
    return _zip(lines, "job/logs/")


def _json(name: str, file: str, document: Callable[[list[tuple[float, str]]], Any], indent: int | None = None) -> None:
    @export(name, file)
    def _pack(lines: list[str], chance: random.Random) -> bytes:
        return json.dumps(document(_received(lines)), indent=indent).encode()


def _received(lines: Sequence[str]) -> list[tuple[float, str]]:
    """Return the lines with the times at which a store received them: no two at once."""
    return [(time + number * 1e-3, line) for number, (time, line) in enumerate(zip(clock(lines), lines, strict=True))]


def _nanoseconds(time: float) -> str:
    return str(int(time * 1e6) * 1000)


def _cloudwatch(rows: Sequence[tuple[float, str]]) -> Any:
    return {"events": [{"timestamp": int(time * 1e3), "message": line, "eventId": str(n)} for n, (time, line) in enumerate(rows)]}  # fmt: skip


def _elastic(rows: Sequence[tuple[float, str]]) -> Any:
    hits = [{"_index": "logs", "_source": {"@timestamp": iso(time), "message": line}} for time, line in rows]
    return {"took": 3, "hits": {"total": {"value": len(rows)}, "hits": hits}}


def _google(rows: Sequence[tuple[float, str]]) -> Any:
    return [
        {"insertId": f"a{n}", "resource": {"type": "k8s_container"}, "severity": "ERROR", "textPayload": f"{line}\n", "timestamp": iso(time)}
        for n, (time, line) in enumerate(rows)
    ]  # fmt: skip


def _loki(rows: Sequence[tuple[float, str]]) -> Any:
    values = [[_nanoseconds(time), line] for time, line in reversed(rows)]
    return {"status": "success", "data": {"resultType": "streams", "result": [{"stream": {"job": "train"}, "values": values}]}}  # fmt: skip


_json("a JSON array of records in one line", "logs.json", lambda rows: [{"timestamp": iso(t), "message": x} for t, x in rows])  # fmt: skip
_json("a JSON array of records, newest first", "logs.json", lambda rows: [{"timestamp": iso(t), "message": x} for t, x in reversed(rows)])  # fmt: skip
_json("a JSON array of records, indented", "logs.json", lambda rows: [{"time": iso(t), "log": x} for t, x in rows], 2)
_json("a JSON array of texts", "logs.json", lambda rows: [line for _, line in rows])
_json("JSON of CloudWatch", "events.json", _cloudwatch)
_json("JSON of Elasticsearch", "response.json", _elastic)
_json("JSON of Google Cloud, newest first", "downloaded-logs.json", lambda rows: _google(list(reversed(rows))))
_json("JSON of Loki, newest first", "query_range.json", _loki)


def _csv(name: str, file: str, row: Callable[[float, str], Mapping[str, str]], *, newest: bool, quoting: int) -> None:
    @export(name, file)
    def _pack(lines: list[str], chance: random.Random) -> bytes:
        rows = [row(time, line) for time, line in _received(lines)]
        stream = io.StringIO()
        writer = csv.DictWriter(stream, list(row(0.0, "")), quoting=quoting)  # type: ignore[arg-type]
        writer.writeheader()
        writer.writerows(reversed(rows) if newest else rows)
        return stream.getvalue().encode("utf-8", "surrogateescape")


_csv("CSV of Loki, newest first", "Explore-logs-data-2025-06-03.csv",
     lambda time, line: {"Time": iso(time, "", " "), "Line": line, "tsNs": _nanoseconds(time), "labels": '{"job":"train"}', "id": "1_a"},
     newest=True, quoting=csv.QUOTE_ALL)  # fmt: skip
_csv("CSV of CloudWatch, newest first", "logs-insights-results.csv",
     lambda time, line: {"@timestamp": iso(time, "", " "), "@message": line}, newest=True, quoting=csv.QUOTE_MINIMAL)  # fmt: skip
_csv("CSV of CloudWatch events", "log-events-viewer-result.csv",
     lambda time, line: {"timestamp": str(int(time * 1e3)), "message": line}, newest=False, quoting=csv.QUOTE_MINIMAL)  # fmt: skip
_csv("CSV of Datadog, newest first", "extract-2025-06-03.csv",
     lambda time, line: {"Date": iso(time), "Host": "node7", "Service": "train", "Message": line}, newest=True, quoting=csv.QUOTE_ALL)  # fmt: skip


def _page(name: str, file: str, page: Callable[[Sequence[str]], str]) -> None:
    @export(name, file)
    def _pack(lines: list[str], chance: random.Random) -> bytes:
        return page([html.escape(line) for line in lines]).encode("utf-8", "surrogateescape")


_HEAD = "<!DOCTYPE html>\n<html><head><title>train #7 Console</title><style>pre { color: red }</style><script>var error = 'x';</script></head><body><h1>Console</h1>"  # fmt: skip
_page("a page with the log in <pre>", "console.html",
      lambda lines: f'{_HEAD}<pre class="console-output">' + "\n".join(lines) + "\n</pre></body></html>\n")  # fmt: skip
_page("a page in one line with <br>", "log.htm",
      lambda lines: "<html><body>" + "<br>".join(line.replace("  ", "&nbsp;&nbsp;") for line in lines) + "</body></html>")  # fmt: skip
_page("a page with a row for each line", "job.html",
      lambda lines: f"{_HEAD}<table>" + "".join(f'<tr><td data-line="{n}"></td><td><span class="ansi31">{line}</span></td></tr>' for n, line in enumerate(lines, 1)) + "</table></body></html>")  # fmt: skip
