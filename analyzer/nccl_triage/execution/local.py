"""Scan on this machine: in this process, or with ``jobs`` in several, each with its files or its part of a long one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nccl_triage import interrupts
from nccl_triage.engine.schema import RuleSet
from nccl_triage.events import Observations
from nccl_triage.execution.parts import Part, cut, worthwhile
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
    return scan_part(Part(source), scanner, watch)


def scan_part(part: Part, scanner: Scanner, watch: Watch | None = None) -> Observations:
    """Scan a part of a source; lines have the numbers that they have in the whole."""
    info = part.source.info
    try:
        with part.open(watch) as stream:
            if not part.start:
                return scanner.scan_blocks(LineReader(stream, info), info)
            reader = LineReader(stream, info, first_line=part.lines_before() + 1)
            return scanner.scan_blocks(reader, info, part.first_lines())
    except OSError as error:
        info.problems.append(f"cannot be read: {error.strerror or error}")
        found = Observations()
        found.add_source(info)
        return found


def scan_sources(
    sources: Sequence[Source], rules: RuleSet, *, jobs: int | None = 1, progress: Progress | None = None
) -> Observations:
    """Scan every source and merge, in as many processes as pay without ``jobs``; ``progress`` is told how far we are."""
    jobs = worthwhile(sources) if jobs is None else jobs
    sizes = [source.size for source in sources]
    everything = None if None in sizes else sum(size or 0 for size in sizes)
    if jobs > 1 and all(source.path != "<stdin>" for source in sources):
        parts = cut(sources, jobs)
        if len(parts) > 1:
            return _parallel(parts, rules, jobs, everything, progress)
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


def _work(part: Part) -> Observations:
    if _scanner is None:
        raise RuntimeError("the worker was not started")
    return scan_part(part, _scanner, _count if _counter is not None else None)


def _parallel(
    parts: Sequence[Part], rules: RuleSet, jobs: int, everything: int | None, progress: Progress | None
) -> Observations:
    """Scan in several processes; what they leave is scanned here: a container may forbid them, or kill one."""
    from concurrent.futures import BrokenExecutor

    found: dict[int, Observations] = {}
    with contextlib.suppress(OSError, ImportError, BrokenExecutor):
        _in_processes(parts, rules, min(jobs, len(parts)), everything, progress, found)
    scanner, total = scanner_for(rules), Observations()
    for number, part in enumerate(parts):  # in order: the result does not depend on who was first
        total.absorb(found[number] if number in found else scan_part(part, scanner))
    return total


def _in_processes(
    parts: Sequence[Part],
    rules: RuleSet,
    workers: int,
    everything: int | None,
    progress: Progress | None,
    found: dict[int, Observations],
) -> None:
    """Put what each part holds into ``found``; raises OSError, ImportError or BrokenExecutor where processes cannot be had."""
    import multiprocessing
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

    counter = multiprocessing.Value("q", 0) if progress is not None else None
    with ProcessPoolExecutor(max_workers=workers, initializer=_start, initargs=(rules, counter)) as pool:
        scans = {pool.submit(_work, part): number for number, part in enumerate(parts)}
        waiting = set(scans)
        try:
            while waiting:
                done, waiting = wait(waiting, None if counter is None else _GLANCE, FIRST_COMPLETED)
                if progress is not None and counter is not None:
                    progress(counter.value, everything)
                for scan in done:
                    found[scans[scan]] = scan.result()
        except BaseException:
            interrupts.stop_workers()  # or leaving the pool would wait for results that nobody wants
            raise
