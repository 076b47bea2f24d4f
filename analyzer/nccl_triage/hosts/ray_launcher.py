"""Programs behind actors on the nodes of a running Ray cluster.

One small actor per node (``ray_actors.Relay``), which asks for no CPU and no GPU, starts the program and relays its lines; no
collective runs inside an actor. Another actor of a node reserves GPUs. Ray does not pass the driver's NCCL_* and GLOO_*
variables to actors on other nodes. A limit of Ray: it ends a process that has joined a cluster about a minute after the
cluster's head is lost.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_triage.errors import UsageError
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.programs import BOOT, Program
from nccl_triage.hosts.ray_access import Access, failures, reason
from nccl_triage.hosts.ray_actors import GpuHolder, Relay
from nccl_triage.hosts.ray_nodes import RayNode, end_actors, nodes_of, start_actors

#: Seconds a program gets to end what it has started after its input was closed, and Ray to carry the wish there and back.
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
#: Seconds and tries for a query of the clock.
_CLOCK, _TRIES = 2.0, 3
#: Calls that an actor takes at once: one waits for answers, the others never wait long.
_CALLS = 4


class RayLink:
    """A program behind an actor; nothing is lost or doubled when the network fails for a moment.

    After ``silence`` seconds without any return of a call the node counts as lost.
    """

    def __init__(self, ray: Any, relay: Any, name: str, silence: float = SILENCE) -> None:
        self.name = name
        self.relay = relay
        self.gone = False
        self._ray = ray
        self._silence = silence
        self._pending: Any = None
        self._sent = self._received = 0
        self._unconfirmed: dict[int, tuple[bytes, float]] = {}
        self._call_at = self._looked = self._silent = 0.0
        self._why = ""

    def send(self, command: Mapping[str, Any]) -> None:
        """Send one command; a dead actor is left to ``receive``."""
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
        lost = self._silent > self._silence
        return self._lost(f"no answer for {self._silence:.0f} s{self._why}") if lost else []

    def descriptor(self) -> int | None:
        """Return None: Ray has nothing that becomes readable."""
        return None

    def said(self) -> str:
        """Return why the last call failed, if it did."""
        return self._why.removeprefix(": ")

    def ahead(self) -> float | None:
        """Return the seconds by which the node's clock is ahead of ours, by the quickest of a few answers."""
        best: tuple[float, float] | None = None
        with contextlib.suppress(*failures(self._ray)):
            for _ in range(_TRIES):
                before = time.time()
                theirs = self._ray.get(self.relay.clock.remote(), timeout=_CLOCK)
                after = time.time()
                if best is None or after - before < best[0]:
                    best = after - before, theirs - (before + after) / 2
        return None if best is None else round(best[1], 3)

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
        return [{"answer": "gone", "error": why}]

    def _unpack(self, line: bytes) -> dict[str, Any] | None:
        """Return an answer, None for what is none."""
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(answer, dict):
            return None
        return self._lost(str(answer.get("error")))[0] if answer.get("answer") == "gone" else answer


def _living(nodes: Sequence[RayNode]) -> list[RayNode]:
    return [node for node in nodes if node.alive]


class RayLauncher:
    """A program on each node of a running Ray cluster, which is joined at once; raises UsageError when that fails.

    ``address`` is the cluster's, as ``ray.init`` takes it (None: RAY_ADDRESS, or the cluster that runs here), ``choose`` says
    which of its nodes to take (default: all that live). ``folder`` is for files: best one that did not exist before, for nodes
    that do not see it create it and remove it. ``slots``: the ranks on each, if that is fixed. ``timeout`` (seconds) is for GPUs to be reserved, and for all actors to start
    where that is waited for. ``silence``: see ``RayLink``.
    """

    at_once = 1 << 20
    #: An actor may have to wait for a node that is busy.
    reach = 120.0

    def __init__(
        self,
        address: str | None,
        program: Program,
        choose: Callable[[Sequence[RayNode]], Sequence[RayNode]] = _living,
        folder: Path | None = None,
        slots: int | None = None,
        timeout: float = 30.0,
        silence: float = SILENCE,
    ) -> None:
        self._program, self._timeout, self._silence = program, timeout, silence
        self._folder = str((folder or Path()).absolute())
        self.links: dict[int, RayLink] = {}
        self._holders: dict[int, Any] = {}
        self._access: Access | None = Access(address)
        self._ray = self._access.ray
        self._payload: Any = None
        try:
            #: All nodes, also those that are not taken.
            self.nodes = nodes_of(self._ray.nodes())
            self._chosen = choose(self.nodes)
        except BaseException:
            self.close()
            raise
        self.places: Sequence[HostPlace] = [HostPlace(node.name, (), slots, node.address) for node in self._chosen]

    def open(self, place: int) -> RayLink:
        """See ``Launcher``."""
        if self._payload is None:
            self._payload = self._ray.put(self._program.payload)
        node = self._chosen[place]
        given = (BOOT, self._payload, self._program.words, self._program.away, self._folder)
        [relay] = start_actors(self._ray, Relay, [node], given, max_concurrency=_CALLS)
        self.links[place] = RayLink(self._ray, relay, node.name, self._silence)
        return self.links[place]

    def ready(self) -> None:
        """See ``Launcher``."""
        deadline = time.monotonic() + self._timeout
        for link in self.links.values():
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

    def end(self) -> None:
        """See ``Launcher``: the programs first, and then their actors."""
        links, self.links = list(self.links.values()), {}
        try:
            ends = []
            for link in links:
                if not link.gone:
                    with contextlib.suppress(*failures(self._ray)):
                        ends.append(link.relay.stop.remote(FAREWELL))
            if ends:
                with contextlib.suppress(*failures(self._ray)):
                    self._ray.wait(ends, num_returns=len(ends), timeout=FAREWELL + CARRIED)
        finally:
            for link in links:
                link.gone = True
            end_actors(self._ray, [link.relay for link in links])

    def close(self) -> None:
        """End all programs and actors, give the GPUs back, and leave the cluster if it was joined here."""
        access, self._access = self._access, None
        if access is None:
            return
        with contextlib.ExitStack() as last:
            last.callback(access.leave)
            last.callback(self._release)
            self.end()

    def _release(self) -> None:
        holders, self._holders = self._holders, {}
        end_actors(self._ray, holders.values())

    def reserve(self, gpus: Mapping[int, int]) -> dict[int, str]:
        """Take GPUs of nodes, as many as are wanted and free; returns CUDA_VISIBLE_DEVICES as Ray sets it for each node.

        Raises UsageError where a node has none that is free, or does not give them in time.
        """
        free = self._free()
        try:
            for place, wanted in gpus.items():
                count = min(wanted, free.get(place, 0))
                if not count:
                    raise self._refused(place, free)
                [self._holders[place]] = start_actors(self._ray, GpuHolder, [self._chosen[place]], num_gpus=count)
            return {place: self._told(place, free) for place in gpus}
        except BaseException:
            self._release()
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
        return {place: int(found.get(node.id, {}).get("GPU", 0)) for place, node in enumerate(self._chosen)}

    def _refused(self, place: int, free: Mapping[int, int]) -> UsageError:
        return UsageError(
            "the Ray cluster did not reserve the GPUs of {name}",
            cause="{free} of {all} GPUs are free",
            remedy="end the job's actors that hold them",
            name=self.places[place].name,
            free=free.get(place, 0),
            all=self._chosen[place].gpus,
        )
