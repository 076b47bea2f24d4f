"""Scan on this machine: in this process, or one process per file with ``jobs``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nccl_triage import interrupts
from nccl_triage.engine.schema import RuleSet
from nccl_triage.events import Observations
from nccl_triage.ingest.decode import LineReader
from nccl_triage.ingest.sources import Source
from nccl_triage.ingest.watched import Watch
from nccl_triage.scan.scanner import Scanner, scanner_for

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

#: Is told the bytes that have been read and those that there are, None when that is not known.
Progress = Callable[[int, int | None], None]
#: Seconds between two looks at how far the processes are.
_GLANCE = 0.2


def scan_source(source: Source, scanner: Scanner, watch: Watch | None = None) -> Observations:
    """Scan one source; reading problems end up in its ``SourceInfo``."""
    try:
        with source.open(watch) as stream:
            found = scanner.scan_blocks(LineReader(stream, source.info), source.info)
    except OSError as error:
        source.info.problems.append(f"cannot be read: {error.strerror or error}")
        found = Observations()
        found.add_source(source.info)
    return found


def scan_sources(
    sources: Sequence[Source], rules: RuleSet, *, jobs: int = 1, progress: Progress | None = None
) -> Observations:
    """Scan every source and merge; ``progress`` is told how far the reading is."""
    sizes = [source.size for source in sources]
    everything = None if None in sizes else sum(size or 0 for size in sizes)
    if jobs > 1 and len(sources) > 1 and all(source.path != "<stdin>" for source in sources):
        return _parallel(sources, rules, jobs, everything, progress)
    scanner = scanner_for(rules)
    total, done = Observations(), 0

    def read(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, everything)

    for source in sources:
        total.absorb(scan_source(source, scanner, read if progress is not None else None))
    return total


_scanner: Scanner | None = None
#: Bytes that all processes have read.
_counter: Synchronized[int] | None = None


def _start(rules: RuleSet, counter: Any) -> None:
    global _scanner, _counter
    interrupts.in_worker()
    _scanner, _counter = scanner_for(rules), counter


def _count(size: int) -> None:
    if _counter is not None:
        with _counter.get_lock():
            _counter.value += size


def _work(source: Source) -> Observations:
    if _scanner is None:
        raise RuntimeError("the worker was not started")
    return scan_source(source, _scanner, _count if _counter is not None else None)


def _parallel(
    sources: Sequence[Source], rules: RuleSet, jobs: int, everything: int | None, progress: Progress | None
) -> Observations:
    import multiprocessing
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

    total = Observations()
    counter = multiprocessing.Value("q", 0) if progress is not None else None
    workers = min(jobs, len(sources))
    with ProcessPoolExecutor(max_workers=workers, initializer=_start, initargs=(rules, counter)) as pool:
        parts = [pool.submit(_work, source) for source in sources]
        waiting = set(parts)
        try:
            while waiting:
                waiting = wait(waiting, None if counter is None else _GLANCE, FIRST_COMPLETED).not_done
                if progress is not None and counter is not None:
                    progress(counter.value, everything)
        except BaseException:
            interrupts.stop_workers()  # or leaving the pool would wait for results that nobody wants
            raise
        for part in parts:  # in the order of the sources: the result does not depend on who was first
            total.absorb(part.result())
    return total
