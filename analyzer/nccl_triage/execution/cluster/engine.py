"""The engine for logs on a Ray cluster: join, scan, read excerpts, leave; nothing that was started stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from nccl_triage import interrupts
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import InputError, UsageError
from nccl_triage.events import Observations
from nccl_triage.execution.cluster import parcel, targets
from nccl_triage.execution.cluster.bulletin import Bulletin
from nccl_triage.execution.cluster.campaign import Campaign
from nccl_triage.execution.cluster.crew import Crew, Member
from nccl_triage.execution.reading import Progress
from nccl_triage.ingest.sources import STDIN_NAMES, Source, find_sources
from nccl_triage.messages import translated_text
from nccl_triage.ray_access import Access
from nccl_triage.stopping import ReadingStop

#: Seconds without any progress after which a node counts as hung.
PATIENCE = 120.0
#: Seconds for reading the lines around the evidence again.
_EXCERPTS = 30.0


class RayEngine:
    """The nodes of a running Ray cluster.

    ``address`` is the cluster's, as ``ray.init`` takes it (None: RAY_ADDRESS, or the cluster that runs here); ``jobs``
    is the number of processes on each node, ``patience`` the seconds without progress after which one is given up.
    Arguments ``node:NAME/path`` are read on the nodes of that name, others, which all nodes must see, by any node.
    ``stop`` takes the signals while logs are read, and ends that.
    """

    def __init__(
        self,
        address: str | None = None,
        jobs: int = 1,
        patience: float = PATIENCE,
        since: float | None = None,
        stop: ReadingStop | None = None,
        links: bool = False,
    ) -> None:
        self._links = links
        self._address, self._jobs, self._patience, self._since, self._stop = address, jobs, patience, since, stop
        self._access: Access | None = None
        self._crew: Crew | None = None
        self._readers: dict[str, tuple[Source, list[Member]]] = {}

    def __enter__(self) -> RayEngine:
        self._access = Access(self._address, "nccl-triage")
        return self

    def __exit__(self, *_: object) -> None:
        access, crew = self._access, self._crew
        self._access = self._crew = None
        try:
            if crew is not None:
                crew.close()
        finally:
            if access is not None:
                access.leave()

    def scan(self, arguments: Sequence[str], rules: RuleSet, progress: Progress | None) -> Observations:
        """See ``Engine``."""
        if self._access is None:
            raise RuntimeError("the engine is used outside of its with block")
        ray, bulletin = self._access.ray, Bulletin()
        anywhere = [argument for argument in arguments if not targets.is_on_nodes(argument)]
        sources, notes = _shared(anywhere, self._since, self._links)
        nodes = targets.nodes_of(ray.nodes())
        living = [node for node in nodes if node.alive]
        asked = targets.by_node([argument for argument in arguments if targets.is_on_nodes(argument)], nodes)
        bulletin.dead(targets.departed(list(asked), nodes))
        self._crew = Crew(ray, parcel.program(), parcel.pack_rules(rules))
        campaign = Campaign(ray, self._crew, bulletin, self._patience, self._jobs, self._stop)
        with self._stop.listening() if self._stop is not None else nullcontext():
            campaign.search({node: paths for node, paths in asked.items() if node.alive}, self._since, self._links)
            if sources:
                campaign.share(sources, living)
            found = campaign.run(progress)
        notes += bulletin.texts()
        if not found.sources and self._stop is not None and self._stop.asked is not None:
            raise interrupts.Ended(self._stop.asked)
        if not found.sources:
            raise InputError(
                "no readable input",
                cause="{notes}" if notes else "no file was named",
                notes={lang: "; ".join(translated_text(note, lang) for note in notes[:4]) for lang in ("en", "zh")},
                remedy="name files or folders of the nodes, such as 'node:*/var/log/job'",
            )
        self._readers = {source.path: (source, share.members) for share in campaign.shares for source in share.sources}
        found.notes = [*sorted(found.notes), *notes]
        found.sources = {path: found.sources[path] for path in self._readers if path in found.sources}
        return found

    def excerpts(self, lines: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
        """See ``Engine``; what lies on a node that is gone is left out."""
        if self._crew is None:
            return []
        wanted: dict[Member, list[tuple[Source, Sequence[int]]]] = {}
        for path, numbers in lines.items():
            source, members = self._readers.get(path, (None, []))
            reader = next((member for member in members if member.idle), None)
            if source is not None and reader is not None:
                wanted.setdefault(reader, []).append((source, numbers))
        for member, windows in wanted.items():
            member.send("windows", windows, patience=min(_EXCERPTS, self._patience))
        found: list[dict[str, Any]] = []
        while any(member.call for member in wanted):
            for _, reply in self._crew.turn():
                found += reply.value or []
        order = {path: index for index, path in enumerate(lines)}
        return sorted(found, key=lambda excerpt: order[excerpt["path"]])


def _shared(arguments: Sequence[str], since: float | None, links: bool) -> tuple[list[Source], list[str]]:
    """Return the sources on storage that all nodes see; raises UsageError for what cannot be read elsewhere."""
    if not arguments:
        return [], []
    piped = next((argument for argument in arguments if argument in STDIN_NAMES), None)
    sources, notes = ([], []) if piped else find_sources(arguments, None, since, links=links)
    piped = piped or next((source.path for source in sources if source.size is None), None)
    if piped:
        raise UsageError(
            "{path} is a pipe, which no other machine can read",
            remedy="leave out --engine ray, or name files that all nodes see",
            path=piped,
        )
    for source in sources:
        source.file = source.file and source.file.absolute()
    return sources, notes
