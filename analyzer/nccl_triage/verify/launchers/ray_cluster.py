"""Agents as actors on the Ray cluster of the job: the ranks of an experiment run where the ranks of the job ran.

One small actor per node (``ray_relay``), placed by a STRICT_SPREAD placement group, starts the node's agent; no collective
runs inside an actor. Ray does not pass the driver's NCCL_* and GLOO_* variables to actors on other nodes, so the variables
of ranks are part of their spec. A limit of Ray: it ends a process that has joined a cluster about a minute after the
cluster's head is lost.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_triage.errors import UsageError
from nccl_triage.ray_access import Access, by_value, failures, node_key, reason, unique_names
from nccl_triage.verify.collective_run import HostPlace
from nccl_triage.verify.launchers import AgentLink, bundle, ray_relay
from nccl_triage.verify.launchers.bundle import RankLogs

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
#: The share of a node's own resource that reserves a place on it.
_SHARE = 0.001


class RayLauncher:
    """One agent a node of a running Ray cluster.

    ``address`` is the cluster's, as ``ray.init`` takes it (None: RAY_ADDRESS, or the cluster that runs here); ``hosts``
    is the number of nodes (None: all that are alive and take work); with ``gpus`` each node gives ``ranks_per_host`` of
    its GPUs. ``folder`` is for the logs: best one that did not exist before, for nodes that do not see it create it and
    remove it. ``timeout`` (seconds) is for the nodes to be reserved, and again for the actors to start. ``places`` is
    filled by ``open``, in the order of the nodes' names.
    """

    def __init__(
        self,
        address: str | None,
        hosts: int | None,
        ranks_per_host: int,
        folder: Path,
        gpus: bool,
        namespace: str = "nccl-triage",
        timeout: float = 30.0,
    ) -> None:
        self.places: Sequence[HostPlace] = ()
        self._address = address
        self._hosts = hosts
        self._ranks = ranks_per_host
        self._folder = folder
        self._gpus = gpus
        self._namespace = namespace
        self._timeout = timeout
        self._access: Access | None = None
        self._ray: Any = None
        self._group: Any = None
        self._links: list[RayLink] = []

    def open(self) -> list[AgentLink]:
        """Join the cluster, reserve the nodes, start the agents; when that fails, UsageError and nothing is left."""
        self._folder.mkdir(parents=True, exist_ok=True)
        worker = bundle.write(self._folder / "worker.pyz").read_bytes()
        try:
            self._join()
            nodes = self._reserve()
            self.places = _places(nodes, self._ranks)
            self._start(nodes, worker)
        except BaseException:
            self.close()
            raise
        return list(self._links)

    def close(self) -> None:
        """End all agents and actors, give the nodes back, and leave the cluster if ``open`` joined it."""
        access, ray, links, group = self._access, self._ray, self._links, self._group
        self._access, self._ray, self._links, self._group = None, None, [], None
        if access is None:
            return
        with contextlib.ExitStack() as last:
            last.callback(access.leave)
            if group is not None:
                last.callback(_give_back, ray, group)
            end(ray, links)

    def _join(self) -> None:
        self._access = Access(self._address, self._namespace)
        self._ray = self._access.ray

    def _reserve(self) -> list[dict[str, Any]]:
        """Return the reserved nodes as ``ray.nodes()`` tells them, in the order of their names, each with its bundle."""
        alive = sorted((node for node in self._ray.nodes() if node["Alive"]), key=node_key)
        what, least = ("GPU", self._ranks) if self._gpus else ("CPU", _SHARE)
        able = [node for node in alive if node["Resources"].get(what, 0) >= least]
        count = len(able) if self._hosts is None else self._hosts
        # A group with more bundles than nodes would wait for ever.
        if not 0 < count <= len(able):
            raise UsageError(
                "{able} nodes of the Ray cluster can take part, wanted: {wanted}",
                cause="{alive} nodes are alive, each must have {gpus} GPUs"
                if self._gpus
                else "{alive} nodes are alive, each must have a CPU",
                remedy="ask for fewer hosts or fewer ranks a host, or add nodes",
                able=len(able),
                wanted=self._hosts or 1,
                alive=len(alive),
                gpus=least,
            )
        # Without GPUs no CPU is asked for either: the actors of a stuck job may hold them all.
        own = [{f"node:{node['NodeManagerAddress']}": _SHARE} for node in able[:count]]
        bundles = [{"GPU": least}] * count if self._gpus else own
        self._group = self._ray.util.placement_group(bundles, strategy="STRICT_SPREAD")
        if not _granted(self._group, self._timeout):
            died, free = self._missing(able, what)
            raise UsageError(
                "the Ray cluster did not reserve its nodes within {timeout:g} s, wanted: {count}",
                cause="died meanwhile: {died}" if died else "{free:g} of {all:g} {what}s are free",
                died=", ".join(died),
                free=free,
                all=sum(node["Resources"][what] for node in able),
                what=what,
                remedy="end the job's actors that hold them, or ask for fewer hosts or fewer ranks a host",
                timeout=self._timeout,
                count=count,
            )
        where = self._ray.util.placement_group_table(self._group)["bundles_to_node_id"]
        bundle_of = {node_id: index for index, node_id in where.items()}
        return [{**node, "bundle": bundle_of[node["NodeID"]]} for node in alive if node["NodeID"] in bundle_of]

    def _missing(self, wanted: Sequence[dict[str, Any]], what: str) -> tuple[list[str], float]:
        """Return the nodes that died meanwhile, and how much of a resource is free."""
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        died = [node_key(node)[0] for node in wanted if node["NodeID"] not in alive]
        return died, self._ray.available_resources().get(what, 0)

    def _start(self, nodes: Sequence[dict[str, Any]], worker: bytes) -> None:
        spread = importlib.import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy
        # An actor without GPUs, and so its agent and ranks, would be kept from seeing any (CUDA_VISIBLE_DEVICES).
        wants: dict[str, Any] = {"num_cpus": 0, **({"num_gpus": self._ranks} if self._gpus else {})}
        with by_value(self._ray, ray_relay):
            actor = self._ray.remote(ray_relay.Relay)
            for node, place in zip(nodes, self.places, strict=True):
                strategy = spread(self._group, placement_group_bundle_index=node["bundle"])
                options = actor.options(max_concurrency=_CALLS, scheduling_strategy=strategy, **wants)
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


def _places(nodes: Sequence[dict[str, Any]], slots: int) -> list[HostPlace]:
    """Return one host per node."""
    names = unique_names([node_key(node)[0] for node in nodes])
    return [
        HostPlace(name, slots=slots, address=node["NodeManagerAddress"])
        for name, node in zip(names, nodes, strict=True)
    ]


def _granted(group: Any, timeout: float) -> bool:
    """Wait for a placement group, in short calls, since Ctrl-C is not handled inside of one."""
    deadline = time.monotonic() + timeout
    while not group.wait(min(1.0, max(0.0, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return False
    return True


def _give_back(ray: Any, group: Any) -> None:
    with contextlib.suppress(*failures(ray)):
        ray.util.remove_placement_group(group)
