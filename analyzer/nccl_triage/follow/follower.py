"""Follows the logs of a running job: reads what is added, finds new logs, and keeps the observations.

A rotated log is read on under its new name until it is quiet. A log that is truncated or replaced by another file
starts again, and its earlier observations are kept. In the end all of it has been read once, as in a scan afterwards.
"""

from __future__ import annotations

import io
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import InputError
from nccl_triage.execution.reading import scan_source
from nccl_triage.follow.followed_log import FollowedArchive, FollowedLog, may_grow, open_tail, same_writer
from nccl_triage.follow.heartbeats import Heartbeats
from nccl_triage.ingest import rotation, sniff, walk
from nccl_triage.ingest.layout_conditions import strip_compression
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.ingest.sources import STDIN_NAMES, Source, check_read, find_sources
from nccl_triage.ingest.tail import FileTail, PipeTail
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.scan.scanner import scanner_for

#: The least seconds between two searches for new files, and their least distance as a multiple of a search's duration.
LOOK, LOOK_SHARE = 3.0, 20.0
#: Seconds without growth after which a rotated log is finished.
RETIRED = 60.0
#: Seconds after which a vanished log is given up: on file servers, files may be invisible for moments.
GONE = 10.0
#: The most rotated files of one name that are kept, and the most that are remembered as read.
MAX_FORMER, MAX_FORGOTTEN = 8, 4096
#: Files by device and inode; several files may have had the same, one after the other.
Files = dict[tuple[int, int], list[FileTail]]


class Follower:
    """The logs that the arguments name, now and later. Raises InputError for arguments that can never be read."""

    def __init__(
        self, arguments: Sequence[str], stdin: BinaryIO | None, rules: RuleSet, *, links: bool = False
    ) -> None:
        self._links = links
        self.heartbeats = Heartbeats()
        #: A counter of everything that may change a diagnosis, and the time of its last change.
        self.version, self.changed = 0, 0.0
        #: The error of a search that found nothing.
        self.missing: InputError | None = None
        self.logs: list[FollowedLog] = []
        self._scanner = scanner_for(rules)
        self._names = LayoutReader(rules.layouts)
        self._archives: dict[str, FollowedArchive] = {}
        self._read: list[Observations] = []
        self._order: dict[str, int] = {}
        self._notes: list[str] = []
        self._remarks: list[str] = []
        self._forgotten: deque[tuple[str, FileTail]] = deque(maxlen=MAX_FORGOTTEN)
        self._parts: Counter[str] = Counter()
        self._arguments = [text for text in arguments if text not in STDIN_NAMES]
        self._searches = True
        self._next_look = 0.0
        if len(self._arguments) < len(arguments) and stdin is not None:
            self._take_stdin(stdin)
        self._search()

    @property
    def over(self) -> bool:
        """Whether nothing can be added any more: all logs were pipes, and they have ended."""
        return not self._arguments and all(log.result is not None for log in self.logs)

    @property
    def starting(self) -> bool:
        """Whether logs that existed at the start are still being read."""
        return any(log.behind and not log.live and log.result is None for log in self.logs)

    @property
    def piped(self) -> bool:
        """Whether a pipe among the logs has not ended."""
        return any(log.file is None and log.result is None for log in self.logs)

    def poll(self) -> int:
        """Read what was added; return the number of bytes."""
        if self._next_look <= time.monotonic():
            self._search()
        return sum([self._step(log) for log in list(self.logs) if log.result is None])

    @property
    def behind(self) -> bool:
        """Whether there is more to read at once."""
        return any(log.behind and log.result is None for log in self.logs)

    def observations(self) -> Observations:
        """Return the observations so far, which are valid until the next ``poll``."""
        total = Observations()
        kept: list[tuple[tuple[int, int], Observations]] = [((-1, 0), found) for found in self._read]
        kept += [((self._place(log.origin), at), log.observations()) for at, log in enumerate(self.logs)]
        read = [archive for archive in self._archives.values() if archive.result is not None]
        kept += [((self._place(archive.origin), 0), archive.result or Observations()) for archive in read]
        for _, found in sorted(kept, key=lambda entry: entry[0]):
            total.absorb(found)
        rotation.link(total.sources.values())
        total.notes.extend(note for note in self.notes if note not in total.notes)
        return total

    @property
    def notes(self) -> list[str]:
        """Notes on the inputs for the reader of a report."""
        return [*self._notes, *self._remarks]

    def sources(self) -> list[Source]:
        """Return the sources that excerpts can be read from."""
        found = [source for log in self.logs if (source := log.source()) is not None]
        return [*found, *(archive.origin for archive in self._archives.values())]

    def finish(self) -> Observations:
        """Read the rest and return the observations. Raises InputError when there was no log, or nothing in the pipes."""
        over = self.over
        self._search(end=True)
        for log in list(self.logs):
            if log.result is None:
                self._step(log)  # it may have been rotated just now
        for log in self.logs:
            log.stop()
        for log in self.logs:
            log.finish()
        if self.missing is not None and not (self.logs or self._archives or self._read):
            raise self.missing
        found = self.observations()
        if over:
            for info in found.sources.values():
                if not (info.bytes or info.problems):
                    info.problems.append(sniff.EMPTY)
            check_read(["-"], found.sources.values())
        return found

    def _step(self, log: FollowedLog) -> int:
        change = log.look()
        if change == "grown":
            return self._advance(log)
        now = time.monotonic()
        log.gone = (log.gone or now) if change == "gone" else None
        if change in ("replaced", "gone") and log.trace():  # it was moved, and may still grow
            for other in self.logs:
                if other.moved and other is not log:
                    other.trace()
            self._again(log)
        elif change in ("replaced", "gone") and log.file is not None and log.file.has_more():
            return self._advance(log)  # it was deleted right after it was written
        elif change in ("replaced", "cut") or (log.gone is not None and now - log.gone > GONE):
            log.leave()
            self._changed()
            self._again(log)
        elif log.moved and now - log.grown > RETIRED:
            log.finish()
        return 0

    def _advance(self, log: FollowedLog) -> int:
        when = log.came
        grown = log.advance()
        self.heartbeats.tick(when, log.live)
        if grown:
            log.grown = time.monotonic()
        if log.caught_up() or (grown and (log.open or (log.behind and log.live))):
            self._changed()
        return grown

    def _heard(self, log: FollowedLog, event: Event) -> None:
        self.heartbeats.note(event, log.came, log.part)
        if event.is_failure:
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self.changed = time.monotonic()

    def _again(self, log: FollowedLog) -> None:
        """Start on the file that has the log's name now, unless it is known under another name."""
        file = log.origin.file
        if file is None or any(other.origin.file == file and not other.moved for other in self.logs):
            return
        try:
            tail = FileTail(file)
        except OSError:
            self._searches, self._next_look = True, 0.0  # it may come back
            return
        if not _is_among(self._files(), tail):
            self._begin(log.origin, tail)
            self._forget(file)

    def _begin(self, source: Source, tail: FileTail | PipeTail) -> None:
        self._parts[str(source.file)] += 1
        self.logs.append(FollowedLog(source, tail, self._scanner, self._heard, self._parts[str(source.file)]))

    def _forget(self, file: Path) -> None:
        former = [log for log in self.logs if log.origin.file == file and log.result is not None]
        for log in former[:-MAX_FORMER]:
            self.logs.remove(log)
            if log.file is not None and log.moved:
                self._forgotten.append((log.name, log.file))
            note = f"only the last {MAX_FORMER} rotated files of {log.origin.path} are part of this diagnosis"
            if note not in self._remarks:
                self._remarks.append(note)

    def _files(self) -> Files:
        """Return the files that were read, by device and inode."""
        found: Files = {}
        for file in (*(file for _, file in self._forgotten), *(log.file for log in self.logs)):
            if file is not None and not file.lost:
                found.setdefault(file.key, []).append(file)
        return found

    def _search(self, end: bool = False) -> None:
        """Search for new files, and for what is now known of those found earlier."""
        if not self._arguments or not (self._searches or end or not self._next_look):
            self._next_look = float("inf")
            return
        started = time.monotonic()
        try:
            sources, self._notes = find_sources(self._arguments, None, links=self._links, names=self._names)
            self.missing = None
        except InputError as error:
            sources, self.missing = [], error
        self._order.update({str(source.file): at for at, source in enumerate(sources)})
        found = {str(source.file) for source in sources}
        self._searches = any(may_grow(text) or str(Path(text)) not in found for text in self._arguments)
        files = self._files()
        known = {str(log.origin.file): log for log in self.logs if not log.moved}
        for source in sources:
            self._meet(source, known.get(str(source.file)), files)
        for archive in self._archives.values():
            if archive.due(end):
                archive.scan(self._scanner)
                self._changed()
        now = time.monotonic()
        waits = self._searches or any(archive.result is None for archive in self._archives.values())
        self._next_look = now + max(LOOK, LOOK_SHARE * (now - started)) if waits else float("inf")

    def _meet(self, source: Source, known: FollowedLog | None, files: Files) -> None:
        file = source.file
        if file is None or str(file) in self._archives:
            return
        if known is not None:
            if same_writer(known.origin.info, source.info):
                return
            self.heartbeats.forget(source.path)
            self.logs.remove(known)  # new files beside it show whose log it is: read it again
            files = self._files()
        try:
            tail = open_tail(source)
        except OSError as error:
            self._notes.append(f"cannot read {source.path}: {walk.reason(error)}")
            return
        if tail is None:
            name = strip_compression(source.path)
            read = {known for known, _ in self._forgotten} | {log.name for log in self.logs if log.moved}
            if name not in read:
                self._archives[str(file)] = FollowedArchive(source)
        elif isinstance(tail, PipeTail) or not _is_among(files, tail):
            self._begin(source, tail)

    def _take_stdin(self, stdin: BinaryIO) -> None:
        source = find_sources(["-"], stdin, names=None)[0][0]
        try:
            descriptor = stdin.fileno()
        except (OSError, io.UnsupportedOperation):  # not a real file: all of it is available
            self._read.append(scan_source(source, self._scanner))
            self._changed()
            return
        self._begin(source, PipeTail(descriptor))

    def _place(self, source: Source) -> int:
        return self._order.get(str(source.file), -1)


def _is_among(files: Files, tail: FileTail) -> bool:
    """Tell whether a file has been read before."""
    return any(file.lies_at(tail.path) for file in files.get(tail.key, ()))
