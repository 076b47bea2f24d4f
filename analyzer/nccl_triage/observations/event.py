"""Event: one thing that was observed, by whom and when.

A log line, a record of a flight recorder, a fact about a host and the outcome of an experiment all become ``Event``
objects; the same rules weigh them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

Role = Literal["root", "cascade", "context", "progress"]

#: Characters kept of a line's text.
MAX_TEXT = 4000


@dataclass(slots=True)
class Context:
    """Who printed a line and when, as far as the line's own prefixes tell.

    ``rank`` is a global rank, ``local_rank`` a rank on its node, ``group_rank`` a rank inside a process group or a
    communicator (equal to the global rank only for the default group). ``time`` is in seconds since the epoch, read as if
    it were UTC; 31536000 * 30 or less means that the line had no year. A line may carry two clocks, that of what collected
    it, in front, and that of the program: ``time`` is the first stamp of a line, as a collector writes one on every
    line, and ``printed`` the program's own where there is another one in front. ``place`` is the pod, container or host
    that a collector found the line at; ``host`` is what a process or its launcher says of itself.
    """

    rank: int | None = None
    local_rank: int | None = None
    group_rank: int | None = None
    world_size: int | None = None
    host: str | None = None
    address: str | None = None
    pid: int | None = None
    tid: int | None = None
    gpu: int | None = None
    time: float | None = None
    printed: float | None = None
    #: The prefix or header that ``time`` comes from.
    clock: str | None = None
    place: str | None = None
    #: The pid by which a collector knows the writer: that of a rank, or of the launcher of all.
    writer: int | None = None
    program: str | None = None
    actor: str | None = None
    level: str | None = None
    stream: str | None = None
    #: The daemon or unit that a syslog names as the writer.
    service: str | None = None
    repeated: int = 0
    #: The id of the job that a record names.
    job: str | None = None
    #: Whether ``group_rank`` is the number of a task that the launcher put before the line.
    labelled: bool = False

    def copy(self) -> Context:
        """Return an independent copy."""
        return replace(self)

    def process_key(self) -> tuple[object, ...]:
        """Return what tells this process from others, as far as known."""
        return (
            self.rank,
            self.local_rank,
            self.group_rank,
            self.host,
            self.address,
            self.pid,
            self.place,
            self.writer,
            self.job,
        )


@dataclass(slots=True)
class Event:
    """One observation: a line (or several) that matched a signature, with its named groups in ``fields``.

    ``kind`` (``kinds``) is that of the signature: what the line says, whichever program printed it.
    """

    signature: str
    source: str
    line: int
    text: str
    context: Context
    role: Role = "context"
    fields: dict[str, str] = field(default_factory=dict)
    end_line: int | None = None
    count: int = 1
    kind: str = ""

    def key(self, keep_by: Iterable[str]) -> tuple[object, ...]:
        """Return what keeps events of one signature apart: source, process and the named fields."""
        return (self.source, *self.context.process_key(), *(self.fields.get(name) for name in keep_by))

    @property
    def is_failure(self) -> bool:
        """Whether the line speaks of a failure, as its cause or as a consequence."""
        return self.role in ("root", "cascade")

    @property
    def is_remembered(self) -> bool:
        """Whether it tells of earlier jobs: then it supports what the logs show, but has no place among their lines."""
        return self.signature.startswith("history.")

    @property
    def last_line(self) -> int:
        """The last line of the event (equal to ``line`` for a single line)."""
        return self.end_line if self.end_line is not None else self.line

    def number(self, name: str) -> float | None:
        """Return a named field as a finite number, or None."""
        value = self.fields.get(name)
        if value is None:
            return None
        try:
            number = float(value)
        except ValueError:
            return None
        return number if math.isfinite(number) else None
