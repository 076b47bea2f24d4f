"""Reads the logs of several jobs: what its names show to be of one job is read together, and put together by what it says."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from nccl_triage.ingest import pods
from nccl_triage.ingest.families import LogFamily, are_siblings, families, is_near, like_ranks
from nccl_triage.ingest.sources import Source
from nccl_triage.observations.event import Event
from nccl_triage.observations.part import part
from nccl_triage.observations.store import Observations
from nccl_triage.story import jobs
from nccl_triage.story.jobs import Likeness, Traits, traits_of

#: Scans some sources together.
Scan = Callable[[Sequence[Source]], Observations]
#: Logs whose numbers may be ranks that are looked at to tell.
_PROBED = 4
#: Groups that a log is compared with: those before it in the order of names, of which the nearest count.
_COMPARED = 256


class Grouping(Enum):
    """What is done where neither names nor contents of logs tell for certain whether they are of one job."""

    BY_TRAITS = "likely"
    ONE = "one"
    EACH = "each"


class ScannedJob(NamedTuple):
    """What was observed of one job, and what to call it."""

    name: str
    observations: Observations


@dataclass(slots=True)
class ScannedJobs:
    """The jobs of an input, and in how many doubtful cases logs were parted or joined."""

    jobs: list[ScannedJob] = field(default_factory=list)
    #: What was left out of the input, and why.
    notes: list[str] = field(default_factory=list)
    parted: int = 0
    joined: int = 0


@dataclass(slots=True)
class _Share:
    """A family with what was observed in it."""

    family: LogFamily
    observations: Observations
    traits: Traits


@dataclass(slots=True)
class _JobGroup:
    """Shares of one job."""

    shares: list[_Share]
    traits: Traits

    @property
    def folders(self) -> list[str]:
        return [share.family.folder for share in self.shares]


def scan_jobs(sources: Sequence[Source], scan: Scan, grouping: Grouping = Grouping.BY_TRAITS) -> ScannedJobs:
    """Scan sources and return the jobs that they hold, in the order of their first logs."""
    known = [one for family in families(sources) for one in _parted_ranks(family, scan, grouping)]
    found = ScannedJobs()
    if grouping is Grouping.ONE or len(known) == 1:
        groups = [_group([_share(LogFamily("", "", sources=list(sources)), scan)])]
    else:
        groups = _grouped([_share(family, scan) for family in known], grouping, found)
    for name, group in zip(_names(groups), groups, strict=True):
        observations = _merged(group, sources)
        parts = {} if grouping is Grouping.ONE else _of_speakers(observations, grouping, found)
        for label, mine in parts.items():
            found.jobs.append(ScannedJob(label if len(groups) == 1 else f"{name}:{label}", mine))
        if not parts:
            found.jobs.append(ScannedJob(name, observations))
    return found


def by_speakers(observations: Observations) -> list[ScannedJob]:
    """Return the jobs whose pods speak in an input; none if it is one job."""
    found = _of_speakers(observations, Grouping.BY_TRAITS, ScannedJobs())
    return [ScannedJob(name, mine) for name, mine in found.items()]


def _share(family: LogFamily, scan: Scan) -> _Share:
    observations = scan(family.sources)
    return _Share(family, observations, traits_of(observations.kept(), [family.job]))


def _group(shares: Sequence[_Share]) -> _JobGroup:
    group = _JobGroup([], Traits())
    for share in shares:
        _join(group, share)
    return group


def _join(group: _JobGroup, share: _Share) -> None:
    group.shares.append(share)
    group.traits.add(share.traits)


def _merged(group: _JobGroup, sources: Sequence[Source]) -> Observations:
    if len(group.shares) == 1:
        return group.shares[0].observations
    found = Observations()
    for share in group.shares:
        found.absorb(share.observations)
    order = [source.info.path for source in sources]
    found.sources = {path: found.sources[path] for path in order if path in found.sources}
    return found


def _parted_ranks(family: LogFamily, scan: Scan, grouping: Grouping) -> list[LogFamily]:
    """Return a family, or one for each of its logs if the numbers in their names are no ranks."""
    if grouping is Grouping.ONE or not family.guessed:
        return [family]
    every = family.sources
    step = max(1, (len(every) - 1) // (_PROBED - 1))
    files = {}
    for source in every[::step][:_PROBED]:
        info = replace(source.info.unread(), rank=None, job=None)
        files[source.info.rank or 0] = traits_of(scan([replace(source, info=info)]).kept())
    return [family] if jobs.are_jobs(files) is None else family.each()


def _grouped(shares: Sequence[_Share], grouping: Grouping, found: ScannedJobs) -> list[_JobGroup]:
    """Return the groups of shares that are of one job."""
    main = [share for share in shares if not share.family.reports]
    ranks = like_ranks([share.family for share in main])
    alone = sum(share.family.job is None and share.traits.is_main for share in main)
    groups: list[_JobGroup] = []
    for share in main:
        likeness, group = Likeness.OTHER, None
        for other in groups[-_COMPARED:]:
            like = _likeness(share, other, ranks, alone)
            if like is Likeness.RATHER_OTHER:
                found.parted += 1
            if like > likeness:
                likeness, group = like, other
        if likeness is Likeness.RATHER_SAME:
            found.joined += 1
        least = Likeness.SAME if grouping is Grouping.EACH else Likeness.RATHER_SAME
        if group is not None and likeness >= least:
            _join(group, share)
        else:
            groups.append(_group([share]))
    return _with_reports(groups, [share for share in shares if share.family.reports])


def _likeness(share: _Share, group: _JobGroup, ranks: Container[tuple[str, str]], alone: int) -> Likeness:
    found = jobs.compare(share.traits, group.traits)
    if found is not None:
        return found
    if any(are_siblings(share.family, other.family, ranks) for other in group.shares):
        return Likeness.RATHER_OTHER
    if not jobs.overlap(share.traits, group.traits) and alone >= jobs.MANY:
        return Likeness.RATHER_OTHER
    return Likeness.RATHER_SAME


def _with_reports(groups: list[_JobGroup], reports: Sequence[_Share]) -> list[_JobGroup]:
    """Add reports about hosts and processes to the jobs of their folder; where none lies near, to all."""
    if not groups:
        return [_group(reports)]
    for share in reports:
        same = [group for group in groups if jobs.compare(share.traits, group.traits) is Likeness.SAME]
        near = [group for group in groups if any(is_near(share.family.folder, folder) for folder in group.folders)]
        for group in same or near or groups:
            group.shares.append(share)
    return groups


def _of_speakers(observations: Observations, grouping: Grouping, found: ScannedJobs) -> dict[str, Observations]:
    """Return what the pods of each job said; nothing if they are of one job."""
    sets: list[tuple[list[str], Traits]] = []
    for name, traits in jobs.speakers(observations).items():
        like = [(jobs.compare_speakers(traits, other), number) for number, (_, other) in enumerate(sets)]
        likeness, number = max(like, default=(Likeness.OTHER, 0))
        found.parted += likeness is Likeness.RATHER_OTHER
        if likeness is Likeness.SAME or (likeness is Likeness.RATHER_SAME and grouping is not Grouping.EACH):
            sets[number][0].append(name)
            sets[number][1].add(traits)
        else:
            sets.append(([name], traits))
    if len(sets) < 2:
        return {}
    every = {name for names, _ in sets for name in names}
    return {names[0]: _part_of(observations, frozenset(names), frozenset(every)) for names, _ in sets}


def _part_of(observations: Observations, mine: frozenset[str], every: frozenset[str]) -> Observations:
    """Return what is of some names, and what is of none of those that jobs have."""

    def wanted(event: Event) -> bool:
        name = jobs.label(event)
        return name in mine or name not in every

    def is_mine(place: str) -> bool:
        name = pods.read(place).job
        return name in mine or name not in every

    return part(observations, wanted, lambda process: is_mine(process.place))


def _names(groups: Sequence[_JobGroup]) -> list[str]:
    """Return what to call each job: the id in its logs' names, the only log, the folder, or the common beginning."""
    if len(groups) == 1:
        return [_name(groups[0], "", set())]
    folders = [folder for group in groups for folder in set(group.folders)]
    root = os.path.commonpath(folders) if folders else ""
    shared = {folder for folder in folders if folders.count(folder) > 1}
    names: list[str] = []
    for group in groups:
        name = _name(group, root, shared)
        same = sum(known == name or known.startswith(f"{name} (") for known in names)
        names.append(f"{name} ({same + 1})" if same else name)
    return names


def _name(group: _JobGroup, root: str, shared: set[str]) -> str:
    families = [share.family for share in group.shares if not share.family.reports] or [group.shares[0].family]
    first = families[0]
    paths = [source.path for family in families for source in family.sources]
    if len(paths) == 1:
        path = paths[0]
        return os.path.relpath(Path(path).absolute(), root) if root and not path.startswith("<") else path
    if first.job is not None:
        return first.job
    if not first.folder:
        return Path(os.path.commonpath([str(Path(path).absolute().parent) for path in paths])).name
    folder = os.path.relpath(first.folder, root) if root and first.folder != root else Path(first.folder).name
    if first.folder not in shared:
        return folder
    return first.stem if first.folder == root else f"{folder}/{first.stem}"
