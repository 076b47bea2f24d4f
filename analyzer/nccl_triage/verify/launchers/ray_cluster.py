"""Agents as actors on the cluster of the job itself: the verifier's ranks stand where the job's ranks stood.

One small actor a node (``ray_relay``), held apart by a placement group of strategy STRICT_SPREAD, starts the node's
agent; no collective ever runs inside an actor. Ray does not hand the driver's NCCL_* and GLOO_* variables to actors on
other nodes, so that what is exported here says nothing about the ranks there: their variables stand in their spec.
A limit of Ray: a process that has joined a cluster is ended by Ray about a minute after the cluster's head is lost.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nccl_triage.errors import UsageError
from nccl_triage.ray_access import Access, by_value, failures, node_key, reason, unique_names
from nccl_triage.verify import bundle
from nccl_triage.verify.launchers import Link, ray_relay
from nccl_triage.verify.launchers.ray_link import RayLink, end
from nccl_triage.verify.model import Place

#: Calls that an actor takes at once: one waits for answers, the others never wait long.
_CALLS = 4
#: The share of a node's own resource that reserves a place on it.
_SHARE = 0.001


class RayLauncher:
    """One agent a node of a running Ray cluster.

    ``address`` is the cluster's, as ``ray.init`` takes it (None: RAY_ADDRESS, or the cluster that runs here); ``hosts``
    is the number of nodes (None: all that are alive and take work); with ``gpus`` each node gives ``ranks_per_host`` of
    its GPUs. ``folder`` is for the logs: best one that did not exist before, for nodes that do not see it create it and
    remove it. ``patience`` (seconds) is for the nodes to be reserved, and again for the actors to start. ``places`` is
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
        patience: float = 30.0,
    ) -> None:
        self.places: Sequence[Place] = ()
        self._address = address
        self._hosts = hosts
        self._ranks = ranks_per_host
        self._folder = folder
        self._gpus = gpus
        self._namespace = namespace
        self._patience = patience
        self._access: Access | None = None
        self._ray: Any = None
        self._group: Any = None
        self._links: list[RayLink] = []

    def open(self) -> list[Link]:
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
        # Without GPUs no CPU is asked for either: the job's own actors, which may be stuck, may hold them all.
        own = [{f"node:{node['NodeManagerAddress']}": _SHARE} for node in able[:count]]
        bundles = [{"GPU": least}] * count if self._gpus else own
        self._group = self._ray.util.placement_group(bundles, strategy="STRICT_SPREAD")
        if not _granted(self._group, self._patience):
            died, free = self._missing(able, what)
            raise UsageError(
                "the Ray cluster did not reserve its nodes within {patience:g} s, wanted: {count}",
                cause="died meanwhile: {died}" if died else "{free:g} of {all:g} {what}s are free",
                died=", ".join(died),
                free=free,
                all=sum(node["Resources"][what] for node in able),
                what=what,
                remedy="end the job's actors that hold them, or ask for fewer hosts or fewer ranks a host",
                patience=self._patience,
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
        deadline = time.monotonic() + self._patience
        for link in self._links:
            try:
                self._ray.get(link.relay.pid.remote(), timeout=max(0.1, deadline - time.monotonic()))
            except failures(self._ray) as error:
                raise UsageError(
                    "no actor could be started on {name} within {patience:.0f} s",
                    cause="{why}",
                    why=reason(error),
                    remedy="look at the node's log of the raylet, or ask for fewer hosts",
                    name=link.name,
                    patience=self._patience,
                ) from None


def _places(nodes: Sequence[dict[str, Any]], slots: int) -> list[Place]:
    """Return a place a node."""
    names = unique_names([node_key(node)[0] for node in nodes])
    return [
        Place(name, slots=slots, address=node["NodeManagerAddress"]) for name, node in zip(names, nodes, strict=True)
    ]


def _granted(group: Any, patience: float) -> bool:
    """Wait for a placement group, in short turns: Ctrl-C is not heard inside of one."""
    deadline = time.monotonic() + patience
    while not group.wait(min(1.0, max(0.0, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return False
    return True


def _give_back(ray: Any, group: Any) -> None:
    with contextlib.suppress(*failures(ray)):
        ray.util.remove_placement_group(group)
