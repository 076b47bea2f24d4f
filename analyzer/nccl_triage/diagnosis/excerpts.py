"""Windows of the log around the lines that matter, read again from the sources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from nccl_triage.diagnosis import incident
from nccl_triage.diagnosis.facts.progress import failures
from nccl_triage.diagnosis.model import Findings
from nccl_triage.events import Event, SourceInfo
from nccl_triage.ingest.decode import Line, LineReader
from nccl_triage.ingest.sources import Source

#: Lines shown before and after a marked line.
AROUND = 4
#: Windows and characters per line kept.
MAX_WINDOWS = 24
MAX_CHARACTERS = 600


def _telling(diagnosis: Findings) -> Iterator[Event]:
    """Yield the lines that the reader should see: evidence, the first fault, and without a cause the first failures."""
    for candidate in diagnosis.candidates[:2]:
        for item in candidate.weighed.for_items:
            yield from item.events[:4]
    fault = incident.first_fault(diagnosis)
    if fault is not None:
        yield fault
    if diagnosis.verdict == "unknown":
        yield from failures(diagnosis.case)[:4]


def _marks(diagnosis: Findings) -> dict[str, list[int]]:
    marks: dict[str, list[int]] = defaultdict(list)
    count = 0
    for event in _telling(diagnosis):
        if event.line not in marks[event.source] and count < MAX_WINDOWS:
            marks[event.source].append(event.line)
            count += 1
    return {path: sorted(lines) for path, lines in marks.items() if lines}


def _windows(lines: Sequence[int]) -> list[tuple[int, int, list[int]]]:
    """Return (first, last, marks) of merged windows around marked lines."""
    found: list[tuple[int, int, list[int]]] = []
    for line in lines:
        first, last = max(1, line - AROUND), line + AROUND
        if found and first <= found[-1][1] + 1:
            before = found.pop()
            found.append((before[0], last, [*before[2], line]))
        else:
            found.append((first, last, [line]))
    return found


def _near(reader: LineReader, windows: Sequence[tuple[int, int, list[int]]]) -> Iterator[Line]:
    """Yield the lines of the blocks that hold parts of windows."""
    for block in reader.iter_blocks():
        if block.first_line > windows[-1][1]:
            break
        end = block.first_line + block.data.count(b"\n")
        if reader.is_plain(block) and not any(first <= end and last >= block.first_line for first, last, _ in windows):
            continue
        yield from reader.lines(block)
    yield from reader.rest()


def collect(diagnosis: Findings, sources: Sequence[Source]) -> list[dict[str, Any]]:
    """Return the excerpts of a diagnosis; sources that cannot be read twice (pipes) give none."""
    by_path = {source.path: source for source in sources}
    excerpts: list[dict[str, Any]] = []
    for path, lines in _marks(diagnosis).items():
        source = by_path.get(path)
        if source is None or not source.rereadable:
            continue
        windows = _windows(lines)
        texts: dict[int, list[str]] = defaultdict(list)
        try:
            with source.open() as stream:
                for line in _near(LineReader(stream, SourceInfo(path)), windows):
                    if any(first <= line.number <= last for first, last, _ in windows):
                        texts[line.number].append(line.text[:MAX_CHARACTERS])
        except OSError:
            continue
        for first, last, marks in windows:
            numbers = [number for number in range(first, last + 1) if number in texts]
            if numbers:
                excerpts.append(
                    {
                        "path": path,
                        "first_line": numbers[0],
                        "lines": [" ".join(texts[number]) for number in numbers],
                        "marks": [mark for mark in marks if mark in texts],
                    }
                )
    return excerpts
