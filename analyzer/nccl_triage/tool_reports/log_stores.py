"""Logs that a log store or its console exported as one document: JSON and CSV.

Each line of a record becomes a line of JSON, as collectors write them, with what the record says besides. Stores list the
newest record first, or each stream by itself; the lines are in the order of time.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.store import SourceInfo
from nccl_triage.parsers.jsonlines import MESSAGES, TIMES, joined, split, time_of
from nccl_triage.tool_reports import ToolReport

#: Consoles export some ten thousand records.
MAX_SIZE = 64 << 20
#: Levels at which the records may lie in a document.
_MAX_DEPTH = 8
#: The problem of an export that was cut off.
CUT = "the export is cut off or damaged; the rest was not read"

Record = dict[str, Any]

_ARRAY = lazily(rb"\s*\[\s*\{")
_TEXTS = lazily(rb'\s*\[\s*"')
_OBJECT = lazily(rb"\s*\{")
#: Names that records have, one of each; and the pairs of time and line that Loki lists.
_MESSAGE = lazily(rb'"(?:' + "|".join(MESSAGES).encode() + rb')"\s*:')
_TIME = lazily(rb'"(?:' + "|".join(TIMES).encode() + rb'|\w{0,20}[tT]ime\w{0,20})"\s*:')
_PAIRS = lazily(rb'"values"\s*:\s*\[\s*\[\s*"\d{10,19}"\s*,')


def _holds_records(sample: bytes) -> bool:
    return bool(_PAIRS.search(sample) or (_MESSAGE.search(sample) and _TIME.search(sample)))


def _is_json(name: str, sample: bytes) -> bool:
    if _ARRAY.match(sample) is None and (_OBJECT.match(sample) is None or _is_object(sample.split(b"\n", 1))):
        return False
    return _holds_records(sample)


def _is_object(lines: list[bytes]) -> bool:
    """Tell whether a first line is whole and others follow: each is a record."""
    return len(lines) == 2 and bool(lines[1].strip()) and lines[0].rstrip().endswith(b"}")


def _render_json(data: bytes, info: SourceInfo) -> bytes | None:
    text = data.decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except RecursionError:
        return None
    except ValueError:
        document = _whole_records(text)
        info.problems.append(CUT)
    lists = list(_lists(document, {}, 0))
    records = [record for found in lists for record in _oldest_first(found)]
    if len(lists) > 1:
        records = _by_time(records)
    if not records:
        info.problems[:] = [problem for problem in info.problems if problem != CUT]
        return None
    return _lines(records)


def _whole_records(text: str) -> list[Any]:
    """Return the records of an array up to where it is cut off or damaged."""
    decoder, found, at = json.JSONDecoder(), [], text.find("{")
    while at >= 0:
        try:
            record, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        found.append(record)
        behind = text[at : at + 80].lstrip()
        at = text.find("{", at) if behind.startswith(",") else -1
    return found


def _lists(value: object, around: Mapping[str, Any], depth: int) -> Iterator[list[Record]]:
    """Yield the lists of records of a document; ``around`` are the labels of the stream that they lie in."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        labels = value.get("stream")
        for part in value.values():
            yield from _lists(part, labels if isinstance(labels, dict) else around, depth + 1)
    elif isinstance(value, list):
        records = [found for item in value if (found := _record(item, around)) is not None]
        if records:
            yield records
        else:
            for part in value:
                yield from _lists(part, around, depth + 1)


def _record(item: object, around: Mapping[str, Any]) -> Record | None:
    if isinstance(item, list) and len(item) >= 2 and isinstance(item[0], str) and isinstance(item[1], str):
        return {**around, "time": item[0], "line": item[1]}
    found = joined(item)
    return None if found is None else {**around, **found[0], MESSAGES[0]: found[1]}


def _oldest_first(records: list[Record]) -> list[Record]:
    times = [time for record in records if (time := time_of(record)) is not None]
    falls = sum(one > next_one for one, next_one in pairwise(times))
    rises = sum(one < next_one for one, next_one in pairwise(times))
    return records[::-1] if falls > rises else records


def _by_time(records: list[Record]) -> list[Record]:
    """Return the records of several streams in order; one without a time stays with the one before it."""
    now, known = 0.0, []
    for record in records:
        now = now if (time := time_of(record)) is None else time
        known.append(now)
    return [records[number] for number in sorted(range(len(records)), key=known.__getitem__)]


def _lines(records: Iterable[Record]) -> bytes:
    found = (part for record in records if (one := joined(record)) is not None for part in split(*one))
    return b"".join(json.dumps(part, ensure_ascii=False).encode("utf-8", "replace") + b"\n" for part in found)


_JSON = ToolReport("exported-json", MAX_SIZE, _is_json, _render_json, general=True)


def _is_texts(name: str, sample: bytes) -> bool:
    return _TEXTS.match(sample) is not None


def _render_texts(data: bytes, info: SourceInfo) -> bytes | None:
    try:
        document = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, list) or not all(isinstance(item, str) for item in document):
        return None
    return "".join(f"{item.rstrip()}\n" for item in document).encode("utf-8", "replace")


_JSON_TEXTS = ToolReport("exported-texts", MAX_SIZE, _is_texts, _render_texts, only_named=True, general=True)

#: Cells of a row at most, and the share of rows that have as many as the header.
_MAX_CELLS, _SHARE = 64, 0.9
#: Names of columns that a console writes in its own case, without what marks a field of the store itself.
_COLUMNS = {name.lower().lstrip("@_"): name for name in (*TIMES, *MESSAGES)}
#: Characters of a cell at most.
_MAX_CELL = 1 << 20


def _header(line: str) -> list[str]:
    """Return the columns by the names that records have; none where the line is no header of an export."""
    cells = next(csv.reader([line]), []) if line.isprintable() else []
    names = [_COLUMNS.get(cell.strip().lower().lstrip("@_"), cell.strip().lower()) for cell in cells[:_MAX_CELLS]]
    told = set(names)
    return names if len(told) == len(cells) and told & set(MESSAGES) and told & set(TIMES) else []


def _first_line(data: bytes) -> str:
    return data.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace").rstrip("\r")


def _is_csv(name: str, sample: bytes) -> bool:
    return bool(_header(_first_line(sample)))


def _render_csv(data: bytes, info: SourceInfo) -> bytes | None:
    names = _header(_first_line(data))
    rows = csv.reader(io.StringIO(data.decode("utf-8", "replace"), newline=""))
    next(rows, None)
    records, other = [], 0
    limit = csv.field_size_limit(_MAX_CELL)
    try:
        for row in rows:
            if len(row) == len(names):
                records.append(dict(zip(names, row, strict=True)))
            else:
                other += bool(row)
    except csv.Error:
        info.problems.append(CUT)
    finally:
        csv.field_size_limit(limit)
    return _lines(_oldest_first(records)) if records and other <= (1 - _SHARE) * len(records) else None


_CSV = ToolReport("exported-csv", MAX_SIZE, _is_csv, _render_csv, general=True)

REPORTS = (_CSV, _JSON, _JSON_TEXTS)
