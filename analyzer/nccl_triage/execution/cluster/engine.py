"""The engine for logs on a Ray cluster: joins, scans, reads excerpts, and leaves nothing running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from nccl_triage import interrupts
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import InputError, UsageError
from nccl_triage.execution.cluster import codec, targets
from nccl_triage.execution.cluster.cluster_scan import ClusterScan
from nccl_triage.execution.cluster.notes import NodeNotes
from nccl_triage.execution.cluster.workers import WorkerHandle, Workers
from nccl_triage.execution.reading import Progress
from nccl_triage.hosts.ray_access import Access
from nccl_triage.hosts.ray_nodes import departed, nodes_of
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.ingest.sources import STDIN_NAMES, Source, find_sources
from nccl_triage.messages import translated_text
from nccl_triage.observations.store import Observations
from nccl_triage.stopping import ReadingStop

#: Seconds without any progress after which a node counts as hung.
NODE_TIMEOUT = 120.0
#: Seconds for reading the excerpts around the evidence.
_EXCERPTS = 30.0


class RayEngine:
    """The nodes of a running Ray cluster.

    ``address`` is the cluster's, as ``ray.init`` takes it (None: RAY_ADDRESS, or the cluster that runs here); ``jobs``
    is the number of processes on each node, ``timeout`` the seconds without progress after which one counts as hung.
    Arguments ``node:NAME/path`` are read on the nodes of that name, others, which all nodes must see, by any node.
    ``stop`` takes the signals while logs are read, and ends that.
    """

    def __init__(
        self,
        address: str | None = None,
        jobs: int = 1,
        timeout: float = NODE_TIMEOUT,
        since: float | None = None,
        stop: ReadingStop | None = None,
        links: bool = False,
    ) -> None:
        self._links = links
        self._address, self._jobs, self._timeout, self._since, self._stop = address, jobs, timeout, since, stop
        self._access: Access | None = None
        self._workers: Workers | None = None
        self._readers: dict[str, tuple[Source, list[WorkerHandle]]] = {}

    def __enter__(self) -> RayEngine:
        self._access = Access(self._address)
        return self

    def __exit__(self, *_: object) -> None:
        access, workers = self._access, self._workers
        self._access = self._workers = None
        try:
            if workers is not None:
                workers.close()
        finally:
            if access is not None:
                access.leave()

    def scan(self, arguments: Sequence[str], rules: RuleSet, progress: Progress | None) -> Observations:
        """See ``Engine``."""
        if self._access is None:
            raise RuntimeError("the engine is used outside of its with block")
        ray, node_notes = self._access.ray, NodeNotes()
        anywhere = [argument for argument in arguments if not targets.is_on_nodes(argument)]
        sources, notes = _shared(anywhere, self._since, self._links, LayoutReader(rules.layouts))
        nodes = nodes_of(ray.nodes())
        living = [node for node in nodes if node.alive]
        asked = targets.by_node([argument for argument in arguments if targets.is_on_nodes(argument)], nodes)
        node_notes.dead(departed(list(asked), nodes))
        self._workers = Workers(ray, codec.program(), codec.pack_rules(rules))
        scan = ClusterScan(ray, self._workers, node_notes, self._timeout, self._jobs, self._stop)
        with self._stop.listening() if self._stop is not None else nullcontext():
            scan.search({node: paths for node, paths in asked.items() if node.alive}, self._since, self._links)
            if sources:
                scan.share(sources, living)
            found = scan.run(progress)
        notes += node_notes.texts()
        if not found.sources and self._stop is not None and self._stop.asked is not None:
            raise interrupts.Ended(self._stop.asked)
        if not found.sources:
            raise InputError(
                "no readable input",
                cause="{notes}" if notes else "no file was named",
                notes={lang: "; ".join(translated_text(note, lang) for note in notes[:4]) for lang in ("en", "zh")},
                remedy="name files or folders of the nodes, such as 'node:*/var/log/job'",
            )
        self._readers = {source.path: (source, share.workers) for share in scan.shares for source in share.sources}
        found.notes = [*sorted(found.notes), *notes]
        found.sources = {path: found.sources[path] for path in self._readers if path in found.sources}
        return found

    def excerpts(self, lines: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
        """See ``Engine``; logs on a lost node are left out."""
        if self._workers is None:
            return []
        wanted: dict[WorkerHandle, list[tuple[Source, Sequence[int]]]] = {}
        for path, numbers in lines.items():
            source, workers = self._readers.get(path, (None, []))
            reader = next((worker for worker in workers if worker.idle), None)
            if source is not None and reader is not None:
                wanted.setdefault(reader, []).append((source, numbers))
        for worker, windows in wanted.items():
            worker.send("windows", windows, timeout=min(_EXCERPTS, self._timeout))
        found: list[dict[str, Any]] = []
        while any(worker.call for worker in wanted):
            for _, reply in self._workers.wait():
                found += reply.value or []
        order = {path: index for index, path in enumerate(lines)}
        return sorted(found, key=lambda excerpt: order[excerpt["path"]])


def _shared(
    arguments: Sequence[str], since: float | None, links: bool, names: LayoutReader
) -> tuple[list[Source], list[str]]:
    """Return the sources on storage that all nodes see; raises UsageError for what cannot be read elsewhere."""
    if not arguments:
        return [], []
    piped = next((argument for argument in arguments if argument in STDIN_NAMES), None)
    sources, notes = ([], []) if piped else find_sources(arguments, None, since, links=links, names=names)
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
