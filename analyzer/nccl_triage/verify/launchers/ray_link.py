"""The driver's end of a line to an agent behind a Ray actor (``ray_relay``)."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from nccl_triage.ray_access import failures, reason
from nccl_triage.verify.launchers.logs import Logs

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
        self._logs = Logs()

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
            # "Unavailable" may be the network's mood: ask again.
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
