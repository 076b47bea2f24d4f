"""Scan on this machine: in this process, or one process per file with ``jobs``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, islice

from nccl_triage.engine.schema import RuleSet
from nccl_triage.events import Observations
from nccl_triage.ingest.decode import LineReader
from nccl_triage.ingest.filtered import looks_filtered
from nccl_triage.ingest.sources import Source
from nccl_triage.scan.scanner import Scanner, TextLine

#: Lines by which a source is judged to be the output of grep.
_FILTER_SAMPLE = 400


def scan_source(source: Source, scanner: Scanner) -> Observations:
    """Scan one source; reading problems end up in its ``SourceInfo``."""
    head: list[TextLine] = []
    try:
        with source.open() as stream:
            lines = iter(LineReader(stream, source.info))
            head.extend(islice(lines, _FILTER_SAMPLE))
            found = scanner.scan(chain(head, lines), source.info)
    except OSError as error:
        source.info.problems.append(f"cannot be read: {error.strerror or error}")
        found = Observations()
        found.add_source(source.info)
    # NCCL_DEBUG_FILE holds NCCL lines only, by nature.
    if source.info.layout != "nccl-debug-file" and looks_filtered([line.text for line in head]):
        found.notes.append(f"{source.path} looks filtered by grep")
    return found


def scan_sources(
    sources: Sequence[Source],
    rules: RuleSet,
    *,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Observations:
    """Scan every source and merge; ``progress`` is told the bytes done after each."""
    if jobs > 1 and len(sources) > 1 and all(source.path != "<stdin>" for source in sources):
        return _parallel(sources, rules, jobs, progress)
    scanner = Scanner(rules)
    total, done = Observations(), 0
    for source in sources:
        total.absorb(scan_source(source, scanner))
        done += source.info.bytes
        if progress is not None:
            progress(done)
    return total


_scanner: Scanner | None = None


def _start(rules: RuleSet) -> None:
    global _scanner
    _scanner = Scanner(rules)


def _work(source: Source) -> Observations:
    if _scanner is None:
        raise RuntimeError("the worker was not started")
    return scan_source(source, _scanner)


def _parallel(
    sources: Sequence[Source], rules: RuleSet, jobs: int, progress: Callable[[int], None] | None
) -> Observations:
    from concurrent.futures import ProcessPoolExecutor

    total, done = Observations(), 0
    with ProcessPoolExecutor(max_workers=min(jobs, len(sources)), initializer=_start, initargs=(rules,)) as pool:
        for part in pool.map(_work, sources):
            total.absorb(part)
            done += sum(info.bytes for info in part.sources.values())
            if progress is not None:
                progress(done)
    return total
