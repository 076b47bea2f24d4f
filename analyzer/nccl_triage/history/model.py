"""An incident as the history keeps it: no line of a log, no value of the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: A diagnosis that is merely possible blames nobody.
_SURE = ("established", "supported")


@dataclass(frozen=True, slots=True)
class Suspect:
    """Whom a diagnosis names: what is known of the process, the host and the GPU."""

    host: str | None = None
    rank: int | None = None
    gpu: int | None = None
    address: str | None = None
    pid: int | None = None
    pci: str | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """One log: where it lay, its size, and the ``marks`` by which its content is known again."""

    path: str
    bytes: int = 0
    lines: int = 0
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Incident:
    """One diagnosis. Times are seconds of the epoch; ``dated``: the log says when it was, else it is when it was read."""

    verdict: str
    happened: float
    recorded: float
    dated: bool = False
    cause: str | None = None
    family: str | None = None
    status: str | None = None
    confidence: float | None = None
    headline: str = ""
    headline_zh: str = ""
    world_size: int | None = None
    launcher: str | None = None
    hosts: tuple[str, ...] = ()
    host_count: int = 0
    software: Mapping[str, str] = field(default_factory=dict)
    tool: str = ""
    bytes: int = 0
    lines: int = 0
    culprits: tuple[Suspect, ...] = ()
    inputs: tuple[Input, ...] = ()
    id: int = 0

    @property
    def blames(self) -> bool:
        """Whether it names a cause surely enough to count against somebody."""
        return self.verdict == "diagnosed" and self.status in _SURE
