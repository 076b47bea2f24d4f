"""Read lines of a source again with the context lines around them, for the excerpts of a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nccl_triage.ingest.decode import LineReader, LogLine
from nccl_triage.ingest.sources import Source
from nccl_triage.observations.store import SourceInfo

#: Lines shown before and after a marked line.
AROUND = 4
#: Characters per line kept.
MAX_CHARACTERS = 600

Window = tuple[int, int, list[int]]


def read_all(sources: Iterable[Source], lines: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    """Return the excerpts around lines of the sources, by their paths."""
    by_path = {source.path: source for source in sources}
    return [found for path, numbers in lines.items() if path in by_path for found in read(by_path[path], numbers)]


def read(source: Source, lines: Sequence[int], around: int = AROUND) -> list[dict[str, Any]]:
    """Return the excerpts around the lines (sorted numbers); none if the source cannot be read again."""
    if not source.rereadable:
        return []
    windows = _windows(lines, around)
    texts: dict[int, list[str]] = defaultdict(list)
    try:
        with source.open() as stream:
            for line in _near(LineReader(stream, SourceInfo(source.path)), windows):
                if any(first <= line.number <= last for first, last, _ in windows):
                    texts[line.number].append(line.text[:MAX_CHARACTERS])
    except OSError:
        return []
    excerpts: list[dict[str, Any]] = []
    for first, last, marks in windows:
        numbers = [number for number in range(first, last + 1) if number in texts]
        if numbers:
            excerpts.append(
                {
                    "path": source.path,
                    "first_line": numbers[0],
                    "lines": [" ".join(texts[number]) for number in numbers],
                    "marks": [mark for mark in marks if mark in texts],
                }
            )
    return excerpts


def texts(source: Source, head: int, line: int) -> dict[int, str]:
    """Return the first lines of a source and one line by their numbers; without the line if there is no such one."""
    wanted: list[Window] = [(1, head, []), (line, line, [])] if line > head else [(1, head, [])]
    found: dict[int, list[str]] = defaultdict(list)
    with source.open() as stream:
        for one in _near(LineReader(stream, SourceInfo(source.path)), wanted):
            if one.number <= head or one.number == line:
                found[one.number].append(one.text)
    return {number: " ".join(pieces) for number, pieces in found.items()}


def _windows(lines: Sequence[int], around: int) -> list[Window]:
    """Return (first, last, marks) of merged windows around marked lines."""
    found: list[Window] = []
    for line in lines:
        first, last = max(1, line - around), line + around
        if found and first <= found[-1][1] + 1:
            before = found.pop()
            found.append((before[0], last, [*before[2], line]))
        else:
            found.append((first, last, [line]))
    return found


def _near(reader: LineReader, windows: Sequence[Window]) -> Iterator[LogLine]:
    """Yield the lines of the blocks that hold parts of windows."""
    for block in reader.iter_blocks():
        if block.first_line > windows[-1][1]:
            break
        end = block.first_line + block.data.count(b"\n")
        if reader.is_plain(block) and not any(first <= end and last >= block.first_line for first, last, _ in windows):
            continue
        yield from reader.lines(block)
    yield from reader.rest()
