"""Families of logs: those that are of one job by their names, such as the files of ranks, of hosts and of both streams.

The id of a job in a name joins its logs wherever they lie. Otherwise a family lies in one folder, that of the job: folders
of ranks, hosts and attempts are within it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nccl_triage.ingest import pods
from nccl_triage.ingest.layout_conditions import are_ranks, strip_compression, without_endings
from nccl_triage.ingest.sources import Source
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.store import SourceInfo

#: Layouts of what is about hosts or processes, and tells nothing of how a job went.
_REPORTS = frozenset({"host-report", "flight-recorder", "stacks", "nccl-debug-file", "ray-helper", "ray-component"})
#: Layouts whose names hold the id of a job, if any.
_OF_SCHEDULERS = frozenset({None, "slurm", "host-file", "kubernetes"})
_INNER_FOLDER = lazily(r"(?:global[._-]?|local[._-]?)?rank[._-]?\d+|(?:attempt|restart)[._-]?\d+", re.IGNORECASE)
_WRITER = lazily(
    r"(?:(?:global|local|node|group)[._-]?)?rank[._-]?\d+|pid[._-]?\d+|(?:attempt|restart)[._-]?\d+"
    r"|(?<![a-z])(?:stdout|stderr|output|error|out|err)(?![a-z])"
)
_DIGITS = lazily(r"\d+")
_SEAMS = lazily(r"[#._-]*#[#._-]*|[._-]{2,}")


@dataclass(slots=True)
class LogFamily:
    """Logs of one job: where they lie, what their names have in common, and the id of the job if these tell it."""

    folder: str
    stem: str
    job: str | None = None
    sources: list[Source] = field(default_factory=list)
    #: Whether they are reports about hosts or processes.
    reports: bool = False
    #: Whether its folder has a random name, so that those of two hosts differ as those of two jobs do.
    random: bool = False

    @property
    def shape(self) -> str:
        """What the names have in common with those of others that differ in numbers only."""
        return _DIGITS.sub("0", self.stem)

    @property
    def guessed(self) -> bool:
        """Whether the number in each name was taken for a rank because there are others."""
        return len(self.sources) > 1 and all(s.info.guessed and s.info.rank is not None for s in self.sources)

    def each(self) -> list[LogFamily]:
        """Return a family for each log: the number in its name is no rank, but of a job."""
        found = []
        for source in self.sources:
            rank = source.info.rank
            job = None if self.job is None else f"{self.job}_{rank}"
            source.info.rank, source.info.guessed = None, False
            found.append(replace(self, stem=f"{self.stem}{rank}", job=job, sources=[source]))
        return found


def families(sources: Sequence[Source]) -> list[LogFamily]:
    """Return the families of logs, in the order of their first logs."""
    found: dict[tuple[str, ...], LogFamily] = {}
    for source in sources:
        info = source.info
        folder, stem = _folder(info), _stem(info)
        job = info.job if info.layout in _OF_SCHEDULERS and info.pid is None else None
        reports = source.report is not None or info.layout in _REPORTS
        key = ("job", job) if job is not None else (folder, "", "reports") if reports else (folder, stem)
        random = info.layout == "torchrun"
        family = found.setdefault(key, LogFamily(folder, stem, job, reports=reports, random=random))
        family.sources.append(source)
    return list(found.values())


def like_ranks(every: Sequence[LogFamily]) -> set[tuple[str, str]]:
    """Return the folders and shapes of names whose numbers are those that ranks have."""
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for one in every:
        if found := _DIGITS.findall(one.stem):
            numbers[one.folder, one.shape].append(int(found[-1][:18]))
    return {key for key, found in numbers.items() if len(set(found)) == len(found) and are_ranks(set(found))}


def are_siblings(one: LogFamily, two: LogFamily, ranks: Container[tuple[str, str]]) -> bool:
    """Tell whether two names differ as those of two jobs do: by a number that is no rank, or by their folder alone.

    ``ranks`` are the names whose numbers may be ranks (``like_ranks``).
    """
    if one.folder != two.folder:
        return one.stem == two.stem and not (one.random and two.random)
    return one.shape == two.shape and (one.folder, one.shape) not in ranks


def is_near(one: str, two: str) -> bool:
    """Tell whether one folder is the other, or lies in it."""
    return one == two or one.startswith(two.rstrip("/") + "/") or two.startswith(one.rstrip("/") + "/")


def _folder(info: SourceInfo) -> str:
    """Return the folder of the job of a log."""
    parts = Path(info.path).absolute().parent.parts
    if info.layout is not None and info.layout.startswith("ray-") and "logs" in parts:
        parts = parts[: len(parts) - parts[::-1].index("logs")]
    host = (info.host or "").lower()
    while len(parts) > 1:
        name = parts[-1].lower()
        of_pod = info.layout == "kubernetes" and bool(host) and (host in name or host in parts[-2].lower())
        if not (
            _INNER_FOLDER.fullmatch(name) or name == host or of_pod or (info.layout == "torchrun" and name.isdecimal())
        ):
            break
        parts = parts[:-1]
    return str(Path(*parts))


def _stem(info: SourceInfo) -> str:
    """Return the name of a log without what tells its writer; of a pod what tells its job."""
    if info.layout in ("torchrun", "ray-worker", "ray-core-worker", "ray-raylet", "ray-gcs", "ray-driver"):
        return ""
    name = without_endings(strip_compression(Path(info.log or info.path).name.lower()))
    if info.layout == "kubernetes" and info.host is not None:
        return pods.read(info.host).job
    if info.host:
        name = name.replace(info.host.lower(), "#")
    name = _WRITER.sub("#", name)
    numbers = {info.rank, info.local_rank, info.pid} - {None}
    if numbers:
        name = _DIGITS.sub(lambda found: "#" if int(found[0][:18]) in numbers else found[0], name)
    return _SEAMS.sub(lambda found: "#" if "#" in found[0] else "-", name).strip("#-._")
