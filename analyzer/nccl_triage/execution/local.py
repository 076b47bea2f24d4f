"""Scan on this machine: in this process, or with ``jobs`` in several, each with its files or its part of a long one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from nccl_triage.engine.schema import RuleSet
from nccl_triage.execution.parts import Part, cut, worthwhile
from nccl_triage.execution.reading import Progress, Reading, scan_part
from nccl_triage.ingest.sources import Source
from nccl_triage.observations.store import Foresight, Observations
from nccl_triage.scan.scanner import scanner_for
from nccl_triage.stopping import ReadingStop


def scan_sources(
    sources: Sequence[Source],
    rules: RuleSet,
    *,
    jobs: int | None = 1,
    progress: Progress | None = None,
    stop: ReadingStop | None = None,
) -> Observations:
    """Scan every source and merge, in as many processes as pay without ``jobs``; ``progress`` is told how far we are.

    Once ``stop`` is asked for, what was read until then is the result.
    """
    jobs = worthwhile(sources) if jobs is None else jobs
    sizes = [source.size for source in sources]
    reading = Reading(None if None in sizes else sum(size or 0 for size in sizes), progress, stop)
    if jobs > 1 and all(source.path != "<stdin>" for source in sources):
        parts = cut(sources, jobs)
        if len(parts) > 1:
            return reading.result(_parallel(parts, rules, jobs, reading))
    scanner, total, foresight = scanner_for(rules), Observations(), Foresight()
    scanner.forget()
    for source in sources:
        tell = reading.further if reading.watched else None
        total.absorb(scan_part(Part(source), scanner, tell, stop, foresight))
    return reading.result(total)


def _parallel(parts: Sequence[Part], rules: RuleSet, jobs: int, reading: Reading) -> Observations:
    """Scan in several processes; what they leave is scanned here: a container may forbid them, or kill one."""
    from concurrent.futures import BrokenExecutor

    found: dict[int, Observations] = {}
    with contextlib.suppress(OSError, ImportError, BrokenExecutor):
        from nccl_triage.execution import processes

        processes.scan(parts, rules, min(jobs, len(parts)), reading, found)
    scanner, total = scanner_for(rules), Observations()
    for number, part in enumerate(parts):  # in order: the result does not depend on who was first
        total.absorb(found[number] if number in found else scan_part(part, scanner, None, reading.stop))
    return total
