"""Where logs are found, scanned and read again: on this machine, or on the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import Any, BinaryIO, Protocol

from nccl_triage.engine.schema import RuleSet
from nccl_triage.execution import local
from nccl_triage.execution.reading import Progress
from nccl_triage.ingest import context_lines
from nccl_triage.ingest.sources import Source, check_read, find_sources
from nccl_triage.observations.store import Observations
from nccl_triage.stopping import ReadingStop


class Engine(Protocol):
    """A place where logs are read; what it started ends with the ``with`` block."""

    def __enter__(self) -> Engine:
        """Make ready; raises UsageError when that is not possible."""
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


class Local:
    """This machine, with one process or several. ``stop`` takes the signals while logs are read, and ends that."""

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

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def scan(self, arguments: Sequence[str], rules: RuleSet, progress: Progress | None) -> Observations:
        """See ``Engine``."""
        sources, notes = find_sources(arguments, self._stdin, self._since, links=self._links)
        self._sources = sources
        with self._stop.listening() if self._stop is not None else nullcontext():
            found = local.scan_sources(sources, rules, jobs=self._jobs, progress=progress, stop=self._stop)
        check_read(arguments, found.sources.values())
        found.notes.extend(note for note in notes if note not in found.notes)
        return found

    def excerpts(self, lines: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
        """See ``Engine``."""
        return context_lines.read_all(self._sources, lines)
