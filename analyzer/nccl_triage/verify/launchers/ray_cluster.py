"""Agents as actors on the cluster of the job itself: the verifier's ranks stand where the job's ranks stood.

One small actor a node (``ray_relay``), held apart by a placement group of strategy STRICT_SPREAD, starts the node's
agent; no collective ever runs inside an actor. Ray does not hand the driver's NCCL_* and GLOO_* variables to actors on
other nodes, so that what is exported here says nothing about the ranks there: their variables stand in their spec.
A limit of Ray: a process that has joined a cluster is ended by Ray about a minute after the cluster's head is lost.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nccl_triage.errors import UsageError
from nccl_triage.verify import bundle
from nccl_triage.verify.launchers import Link, ray_relay
from nccl_triage.verify.launchers.ray_link import RayLink, end, failures, reason
from nccl_triage.verify.model import Place

#: Seconds to reach the port of the cluster's head.
_REACH = 5.0
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
        self._address = address or "auto"
        self._hosts = hosts
        self._ranks = ranks_per_host
        self._folder = folder
        self._gpus = gpus
        self._namespace = namespace
        self._patience = patience
        self._ray: Any = None
        self._joined = False
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
        ray, links, group = self._ray, self._links, self._group
        self._ray, self._links, self._group = None, [], None
        if ray is None:
            return
        with contextlib.ExitStack() as last:
            if self._joined:
                last.callback(_leave, ray)
            if group is not None:
                last.callback(_give_back, ray, group)
            end(ray, links)

    def _join(self) -> None:
        self._ray = _imported()
        self._joined = not self._ray.is_initialized()
        if not self._joined:
            return
        try:
            _reach(self._address)
            _silence(self._ray, True)
            self._ray.init(
                address=self._address, namespace=self._namespace, logging_level=logging.CRITICAL, log_to_driver=False
            )
        except failures(self._ray) as error:
            raise UsageError(
                "cannot join the Ray cluster at {address!r}",
                cause="{why}",
                why=reason(error),
                remedy="run this on a node of the cluster with the job's Ray version and RAY_AUTH_* variables, "
                "or give the host:port of its head",
                address=self._address,
            ) from None

    def _reserve(self) -> list[dict[str, Any]]:
        """Return the reserved nodes as ``ray.nodes()`` tells them, in the order of their names, each with its bundle."""
        alive = sorted((node for node in self._ray.nodes() if node["Alive"]), key=_name)
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
        died = [_name(node)[0] for node in wanted if node["NodeID"] not in alive]
        return died, self._ray.available_resources().get(what, 0)

    def _start(self, nodes: Sequence[dict[str, Any]], worker: bytes) -> None:
        spread = importlib.import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy
        # An actor without GPUs, and so its agent and ranks, would be kept from seeing any (CUDA_VISIBLE_DEVICES).
        wants: dict[str, Any] = {"num_cpus": 0, **({"num_gpus": self._ranks} if self._gpus else {})}
        with _by_value(self._ray):
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


def _imported() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(
            "Ray cannot be imported", cause="{why}", remedy="run this in the environment of the job's driver", why=error
        ) from None


def _name(node: dict[str, Any]) -> tuple[str, str, str]:
    """Return what orders nodes: the name, then what tells those of one name apart."""
    address = node["NodeManagerAddress"]
    return node.get("NodeManagerHostname") or address, address, node["NodeID"]


def _places(nodes: Sequence[dict[str, Any]], slots: int) -> list[Place]:
    """Return a place a node; several nodes of one host are called HOST, HOST#2 and so on."""
    seen: Counter[str] = Counter()
    places = []
    for node in nodes:
        name, address, _ = _name(node)
        seen[name] += 1
        unique = name if seen[name] == 1 else f"{name}#{seen[name]}"
        places.append(Place(unique, slots=slots, address=address))
    return places


def _granted(group: Any, patience: float) -> bool:
    """Wait for a placement group, in short turns: Ctrl-C is not heard inside of one."""
    deadline = time.monotonic() + patience
    while not group.wait(min(1.0, max(0.0, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return False
    return True


def _reach(address: str) -> None:
    """Raise OSError when nobody listens at the head: Ray would try for minutes and not hear Ctrl-C."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "auto")
    host, _, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), _REACH).close()


def _silence(ray: Any, silent: bool) -> None:
    """Keep Ray from printing the cluster's errors to our standard output, as its own debugger does.

    ``log_to_driver=False`` does not stop them: ``listen_error_messages`` of ray/_private/worker.py.
    """
    with contextlib.suppress(AttributeError):  # a Ray that is built otherwise
        ray._private.worker._worker_logs_enabled = not silent


def _leave(ray: Any) -> None:
    ray.shutdown()
    _silence(ray, False)


def _give_back(ray: Any, group: Any) -> None:
    with contextlib.suppress(*failures(ray)):
        ray.util.remove_placement_group(group)


@contextlib.contextmanager
def _by_value(ray: Any) -> Iterator[None]:
    """Let the actor's class travel whole: the nodes have no nccl-triage to import it from."""
    ray.cloudpickle.register_pickle_by_value(ray_relay)
    try:
        yield
    finally:
        ray.cloudpickle.unregister_pickle_by_value(ray_relay)
