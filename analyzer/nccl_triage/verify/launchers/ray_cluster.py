"""Agents as actors on the Ray cluster of the job: the ranks of an experiment run where the ranks of the job ran.

One small actor per node (``ray_relay``), which asks for no CPU and no GPU, starts the node's agent; no collective runs
inside an actor. Once the agents have told which GPUs are idle, another actor of each node reserves them. Ray does not pass the driver's NCCL_* and GLOO_* variables to actors on other nodes, so the variables
of ranks are part of their spec. A limit of Ray: it ends a process that has joined a cluster about a minute after the
cluster's head is lost.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nccl_triage.errors import UsageError
from nccl_triage.ray_access import Access, by_value, failures, node_key, reason, unique_names
from nccl_triage.verify.collective_run import HostPlace
from nccl_triage.verify.launchers import AgentLink, bundle, ray_relay
from nccl_triage.verify.launchers.bundle import RankLogs
from nccl_triage.verify.placement import CPU_WORLD
from nccl_triage.verify.question import Question

#: Seconds an agent gets to kill its ranks after its input was closed, and Ray to carry the wish there and back.
FAREWELL, CARRIED = 2.0, 1.5
#: Seconds that a call waits at the actor for the next answer.
_CALL = 1.0
#: Seconds after which a failed call and an unconfirmed command are sent again.
_CALL_AGAIN, _SEND_AGAIN = 0.5, 1.5
#: Seconds without any return of such calls after which the node counts as lost: less than the grace that the runner
#: gives after a first failure, so that the lost host is named; Ray itself takes 14 s to notice (measured, 2.60).
SILENCE = 6.0
#: The most seconds of silence that one look can add: this process, too, may have been stopped in between.
_LOOK = 0.5


class RayLink:
    """An agent behind an actor; nothing is lost or doubled when the network fails for a moment."""

    def __init__(self, ray: Any, relay: Any, name: str) -> None:
        self.name = name
        self.relay = relay
        self.gone = False
        self._ray = ray
        self._pending: Any = None
        self._sent = self._received = 0
        self._unconfirmed: dict[int, tuple[bytes, float]] = {}
        self._call_at = self._looked = self._silent = 0.0
        self._why = ""
        self._logs = RankLogs()

    def send(self, command: Mapping[str, Any]) -> None:
        """Send one command; a dead actor is left to ``receive``."""
        self._logs.note(command)
        self._deliver(self._sent, json.dumps(command).encode() + b"\n")
        self._sent += 1

    def receive(self) -> list[dict[str, Any]]:
        """Return the answers that have arrived; that the actor, its node or the way to it is lost is the last one."""
        if self.gone:
            return []
        now = time.monotonic()
        try:
            if self._pending is None and now >= self._call_at:
                self._call()
            if self._pending is not None and self._ray.wait([self._pending], timeout=0)[0]:
                reply, self._pending = self._pending, None
                return self._take(*self._ray.get(reply))
        except failures(self._ray) as error:
            self._pending = None
            self._why = f": {reason(error)}"
            # "Unavailable" may be temporary: ask again.
            if type(error).__name__ != "ActorUnavailableError":
                return self._lost(reason(error))
        self._silent += min(now - self._looked, _LOOK)
        self._looked = now
        return self._lost(f"no answer for {SILENCE:.0f} s{self._why}") if self._silent > SILENCE else []

    def descriptor(self) -> int | None:
        """Return None: Ray has nothing that becomes readable."""
        return None

    def close(self) -> None:
        """End the agent and the actor."""
        end(self._ray, [self])

    def _call(self) -> None:
        self._call_at = time.monotonic() + _CALL_AGAIN
        self._pending = self.relay.receive.remote(self._received, _CALL)

    def _take(self, lines: Sequence[bytes], expected: int) -> list[dict[str, Any]]:
        """Return the answers of a reply and ask for the next."""
        self._silent, self._why = 0.0, ""
        self._received += len(lines)
        self._call()
        self._confirm(expected)
        return [answer for line in lines if (answer := self._unpack(line)) is not None]

    def _deliver(self, number: int, line: bytes) -> None:
        self._unconfirmed[number] = line, time.monotonic()
        with contextlib.suppress(*failures(self._ray)):
            self.relay.send.remote(number, line)

    def _confirm(self, expected: int) -> None:
        """Forget the commands that have arrived and repeat those that should have."""
        for number, (line, when) in list(self._unconfirmed.items()):
            if number < expected:
                del self._unconfirmed[number]
            elif time.monotonic() - when > _SEND_AGAIN:
                self._deliver(number, line)

    def _lost(self, why: str) -> list[dict[str, Any]]:
        self.gone = True
        return [{"answer": "gone", "error": f"{self.name}: {why}"}]

    def _unpack(self, line: bytes) -> dict[str, Any] | None:
        """Return an answer, without the log that may have come with it; None for what is no answer."""
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            return None
        if answer.get("answer") == "gone":
            return self._lost(str(answer.get("error")))[0]
        return self._logs.unpack(answer)


def end(ray: Any, links: Sequence[RayLink]) -> None:
    """End agents, all at once, and then their actors."""
    ends = []
    try:
        for link in links:
            if not link.gone:
                with contextlib.suppress(*failures(ray)):
                    ends.append(link.relay.stop.remote(FAREWELL))
        if ends:
            with contextlib.suppress(*failures(ray)):
                ray.wait(ends, num_returns=len(ends), timeout=FAREWELL + CARRIED)
    finally:
        for link in links:
            link.gone = True
            with contextlib.suppress(*failures(ray)):
                ray.kill(link.relay, no_restart=True)


#: Calls that an actor takes at once: one waits for answers, the others never wait long.
_CALLS = 4


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Which nodes of a cluster to take: those with these ``names``, else the job's own, else as many as the job had.

    ``world`` and ``ranks_per_host`` are the user's; without ``gpus``, the nodes' GPUs do not matter.
    """

    question: Question = field(default_factory=lambda: Question(()))
    names: tuple[str, ...] = ()
    world: int | None = None
    ranks_per_host: int | None = None
    gpus: bool = True

    def among(self, nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the chosen nodes of ``ray.nodes()``, in the order of their names; raises UsageError for an unknown name."""
        alive = sorted((node for node in nodes if node["Alive"]), key=node_key)
        if not alive:
            raise UsageError("no node of the Ray cluster is alive", remedy="check the cluster with: ray status")
        if self.names:
            return [self._named(name, alive) for name in self.names]
        own = [node for node in alive if any(_is(node, {name, *self._addresses(name)}) for name in self.question.hosts)]
        order = [*own, *(node for node in alive if node not in own)]
        if self.gpus and any(map(_gpus, order)):
            # The node of the driver is in the log, too, and often has none.
            order = [node for node in order if _gpus(node)]
        count = self._count(order, len([node for node in own if node in order]))
        return sorted(order[:count], key=node_key)

    def _addresses(self, name: str) -> tuple[str, ...]:
        return self.question.addresses.get(name, ())

    def _named(self, name: str, alive: Sequence[dict[str, Any]]) -> dict[str, Any]:
        found = next((node for node in alive if _is(node, {name, *self._addresses(name)})), None)
        if found is None:
            known = ", ".join(node_key(node)[0] for node in alive[:8])
            raise UsageError(
                "no node of the Ray cluster is called {name}",
                cause="its nodes: {known}",
                remedy="name the hosts as Ray does, by name or address",
                name=name,
                known=known,
            )
        return found

    def _count(self, order: Sequence[dict[str, Any]], own: int) -> int:
        """Return how many nodes: all of the job's, and as many as its ranks need; all where nothing is known."""
        ranks = self.world or self.question.world
        each = self.ranks_per_host or max(map(_gpus, order)) if self.gpus else self.ranks_per_host or CPU_WORLD
        needed = -(-ranks // max(1, each)) if ranks else 0
        known = max(own or len(self.question.hosts), needed)
        return min(known, len(order)) if known else len(order)


def _gpus(node: Mapping[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


def _is(node: dict[str, Any], names: set[str]) -> bool:
    host = node_key(node)[0]
    return bool(names & {host, host.split(".")[0], node["NodeManagerAddress"]})


class RayLauncher:
    """One agent a node of a running Ray cluster.

    ``address`` is the cluster's, as ``ray.init`` takes it (None: RAY_ADDRESS, or the cluster that runs here). ``folder`` is
    for the logs: best one that did not exist before, for nodes that do not see it create it and remove it. ``timeout``
    (seconds) is for the actors to start, and again for the GPUs to be reserved. ``places`` is filled by ``open``, in the
    order of the nodes' names.
    """

    def __init__(
        self,
        address: str | None,
        choice: NodeChoice,
        folder: Path,
        namespace: str = "nccl-triage",
        timeout: float = 30.0,
    ) -> None:
        self.places: Sequence[HostPlace] = ()
        self._address = address
        self._choice = choice
        self._folder = folder
        self._namespace = namespace
        self._timeout = timeout
        self._access: Access | None = None
        self._ray: Any = None
        self._nodes: list[dict[str, Any]] = []
        self._links: list[RayLink] = []
        self._holders: dict[int, Any] = {}

    def open(self) -> list[AgentLink]:
        """Join the cluster and start the agents; when that fails, UsageError and nothing is left."""
        self._folder.mkdir(parents=True, exist_ok=True)
        worker = bundle.write(self._folder / "worker.pyz").read_bytes()
        try:
            self._access = Access(self._address, self._namespace)
            self._ray = self._access.ray
            self._nodes = self._choice.among(self._ray.nodes())
            self.places = _places(self._nodes, self._choice.ranks_per_host)
            self._start(worker)
        except BaseException:
            self.close()
            raise
        return list(self._links)

    def close(self) -> None:
        """End all agents and actors, give the GPUs back, and leave the cluster if ``open`` joined it."""
        access, ray, links, holders = self._access, self._ray, self._links, self._holders
        self._access, self._ray, self._links, self._holders = None, None, [], {}
        if access is None:
            return
        with contextlib.ExitStack() as last:
            last.callback(access.leave)
            last.callback(_end_actors, ray, list(holders.values()))
            end(ray, links)

    def reserve(self, gpus: Mapping[int, int]) -> dict[int, str]:
        """Take GPUs of nodes, as many as are wanted and free; returns CUDA_VISIBLE_DEVICES as Ray sets it for each node.

        Raises UsageError where a node has none that is free, or does not give them in time.
        """
        free = self._free()
        try:
            with by_value(self._ray, ray_relay):
                actor = self._ray.remote(ray_relay.GpuHolder)
                for place, wanted in gpus.items():
                    count = min(wanted, free.get(place, 0))
                    if not count:
                        raise self._refused(place, free)
                    options = {"num_cpus": 0, "num_gpus": count, "scheduling_strategy": self._on(place)}
                    self._holders[place] = actor.options(**options).remote()
            return {place: self._told(place, free) for place in gpus}
        except BaseException:
            _end_actors(self._ray, list(self._holders.values()))
            self._holders = {}
            raise

    def _told(self, place: int, free: Mapping[int, int]) -> str:
        try:
            visible: str = self._ray.get(self._holders[place].visible.remote(), timeout=self._timeout)
        except failures(self._ray):
            raise self._refused(place, free) from None
        return visible

    def _free(self) -> dict[int, int]:
        """Return how many GPUs of each node nobody has reserved."""
        found = importlib.import_module("ray._private.state").available_resources_per_node()
        return {place: int(found.get(node["NodeID"], {}).get("GPU", 0)) for place, node in enumerate(self._nodes)}

    def _refused(self, place: int, free: Mapping[int, int]) -> UsageError:
        return UsageError(
            "the Ray cluster did not reserve the GPUs of {name}",
            cause="{free} of {all} GPUs are free",
            remedy="end the job's actors that hold them",
            name=self.places[place].name,
            free=free.get(place, 0),
            all=_gpus(self._nodes[place]),
        )

    def _on(self, place: int) -> Any:
        affinity = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        return affinity(self._nodes[place]["NodeID"], soft=False)

    def _start(self, worker: bytes) -> None:
        with by_value(self._ray, ray_relay):
            actor = self._ray.remote(ray_relay.Relay)
            for index, place in enumerate(self.places):
                # No CPU is asked for: the actors of a stuck job may hold them all.
                options = actor.options(max_concurrency=_CALLS, scheduling_strategy=self._on(index), num_cpus=0)
                relay = options.remote(worker, str(self._folder.absolute()))
                self._links.append(RayLink(self._ray, relay, place.name))
        deadline = time.monotonic() + self._timeout
        for link in self._links:
            try:
                self._ray.get(link.relay.pid.remote(), timeout=max(0.1, deadline - time.monotonic()))
            except failures(self._ray) as error:
                raise UsageError(
                    "no actor could be started on {name} within {timeout:.0f} s",
                    cause="{why}",
                    why=reason(error),
                    remedy="check the raylet log on that node, or ask for fewer hosts",
                    name=link.name,
                    timeout=self._timeout,
                ) from None


def _end_actors(ray: Any, actors: Sequence[Any]) -> None:
    for actor in actors:
        with contextlib.suppress(*failures(ray)):
            ray.kill(actor, no_restart=True)


def _places(nodes: Sequence[dict[str, Any]], slots: int | None) -> list[HostPlace]:
    """Return one host per node."""
    names = unique_names([node_key(node)[0] for node in nodes])
    return [
        HostPlace(name, slots=slots, address=node["NodeManagerAddress"])
        for name, node in zip(names, nodes, strict=True)
    ]
