"""Engines that find, scan and reread logs: the local one, in one process or several, and the protocol that others implement."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import Any, BinaryIO, Protocol

from nccl_triage.engine.schema import RuleSet
from nccl_triage.execution.jobs import Grouping, ScannedJobs, scan_jobs
from nccl_triage.execution.reading import Progress, ReadingProgress, SourcePart, cut, grouped, scan_part, worthwhile
from nccl_triage.ingest import context_lines
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.ingest.sources import Source, check_read, find_sources
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
    """Scan every source and merge; without ``jobs`` in as many processes as pay. ``progress`` receives the bytes read.

    Once ``stop`` is asked for, what was read until then is the result.
    """
    jobs = worthwhile(sources) if jobs is None else jobs
    sizes = [source.size for source in sources]
    reading = ReadingProgress(None if None in sizes else sum(size or 0 for size in sizes), progress, stop)
    if jobs > 1 and all(source.path != "<stdin>" for source in sources):
        parts = cut(sources, jobs)
        if len(parts) > 1:
            return reading.result(_parallel(parts, rules, jobs, reading))
    scanner, total, foresight = scanner_for(rules), Observations(), Foresight()
    for source in sources:
        tell = reading.further if reading.watched else None
        total.absorb(scan_part(SourcePart(source), scanner, tell, stop, foresight))
    return reading.result(total)


def _parallel(parts: Sequence[SourcePart], rules: RuleSet, jobs: int, reading: ReadingProgress) -> Observations:
    """Scan in several processes; what they leave is scanned here: a container may forbid them, or kill one."""
    from concurrent.futures import BrokenExecutor

    groups = grouped(parts, jobs)
    merged = _InOrder()
    with contextlib.suppress(OSError, ImportError, BrokenExecutor):
        from nccl_triage.execution import processes

        processes.scan(groups, rules, min(jobs, len(groups)), reading, merged.take)
    scanner = scanner_for(rules)
    for number in range(merged.number, len(groups)):
        found = merged.early.pop(number, None)
        for part in groups[number] if found is None else ():
            merged.total.absorb(scan_part(part, scanner, None, reading.stop))
        if found is not None:
            merged.total.absorb(found)
    return merged.total


class _InOrder:
    """Merges what groups of parts hold, in their order: the result does not depend on who was first."""

    def __init__(self) -> None:
        self.total = Observations()
        #: The group that comes next, and what later ones hold that came before it.
        self.number = 0
        self.early: dict[int, Observations] = {}

    def take(self, number: int, found: Observations) -> None:
        """Take what a group holds."""
        self.early[number] = found
        while self.number in self.early:
            self.total.absorb(self.early.pop(self.number))
            self.number += 1


class Engine(Protocol):
    """An engine that reads logs; everything it started ends with the ``with`` block."""

    def __enter__(self) -> Engine:
        """Prepare the engine; raises UsageError when that is impossible."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything that was started."""
        ...

    def scan(self, arguments: Sequence[str], rules: RuleSet, progress: Progress | None) -> Observations:
        """Return what the logs that the arguments name hold; raises InputError when nothing can be read."""
        ...

    def excerpts(self, lines: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
        """Return windows around lines of the sources that were scanned, in the order given."""
        ...


class _Progress:
    """The progress of a reading in several steps."""

    def __init__(self, sources: Sequence[Source], progress: Progress | None) -> None:
        sizes = [source.size for source in sources]
        self._size = None if None in sizes else sum(size or 0 for size in sizes)
        self._progress, self._before = progress, 0

    def of(self, sources: Sequence[Source]) -> Progress | None:
        """Return what receives the bytes read of the next step."""
        progress, before = self._progress, self._before
        self._before += sum(source.size or 0 for source in sources)
        if progress is None:
            return None
        return lambda done, _: progress(before + done, self._size)


class LocalEngine:
    """The engine of this machine, with one process or several. ``stop`` handles signals while logs are read."""

    def __init__(
        self,
        jobs: int | None = 1,
        stdin: BinaryIO | None = None,
        since: float | None = None,
        stop: ReadingStop | None = None,
        links: bool = False,
    ) -> None:
        """``links`` are followed out of the folders that are read."""
        self._jobs, self._stdin, self._since, self._stop, self._links = jobs, stdin, since, stop, links
        self._sources: list[Source] = []

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def scan(self, arguments: Sequence[str], rules: RuleSet, progress: Progress | None) -> Observations:
        """See ``Engine``."""
        notes = self._find(arguments, rules)
        sources = self._sources
        with self._stop.listening() if self._stop is not None else nullcontext():
            found = scan_sources(sources, rules, jobs=self._jobs, progress=progress, stop=self._stop)
        if self._stop is None or self._stop.asked is None:
            check_read(arguments, found.sources.values(), notes)
        found.notes.extend(note for note in notes if note not in found.notes)
        return found

    def scan_jobs(
        self, arguments: Sequence[str], rules: RuleSet, progress: Progress | None, grouping: Grouping
    ) -> ScannedJobs:
        """Return what the logs hold of each job; raises InputError when nothing can be read."""
        notes = self._find(arguments, rules)
        reading = _Progress(self._sources, progress)
        with self._stop.listening() if self._stop is not None else nullcontext():
            found = scan_jobs(
                self._sources,
                lambda some: scan_sources(some, rules, jobs=self._jobs, progress=reading.of(some), stop=self._stop),
                grouping,
            )
        if self._stop is None or self._stop.asked is None:
            infos = [info for job in found.jobs for info in job.observations.sources.values()]
            check_read(arguments, infos, notes)
        for job in found.jobs[:1] if len(found.jobs) == 1 else ():
            job.observations.notes.extend(note for note in notes if note not in job.observations.notes)
        found.notes = notes
        return found

    def _find(self, arguments: Sequence[str], rules: RuleSet) -> list[str]:
        """Find the sources that the arguments name; return notes on what was left out."""
        names = LayoutReader(rules.layouts)
        self._sources, notes = find_sources(arguments, self._stdin, self._since, links=self._links, names=names)
        return notes

    def excerpts(self, lines: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
        """See ``Engine``."""
        return context_lines.read_all(self._sources, lines)
