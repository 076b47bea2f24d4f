"""Launchers: one module for each way to reach agents. A launcher yields links; the runner does not know what carries them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from nccl_triage.verify.collective_run import HostPlace


class AgentLink(Protocol):
    """A connection to one host's agent."""

    def send(self, command: Mapping[str, Any]) -> None:
        """Send one command; a dead agent is noticed by ``receive``."""

    def receive(self) -> list[dict[str, Any]]:
        """Return what the agent has said since the last call, without waiting; ``{"answer": "gone"}`` at its end."""

    def descriptor(self) -> int | None:
        """Return a file descriptor that becomes readable with the next answer, or None when it must be polled."""

    def close(self) -> None:
        """End the agent and everything it started."""


class Launcher(Protocol):
    """A way to reach hosts."""

    places: Sequence[HostPlace]

    def open(self) -> list[AgentLink]:
        """Start one agent per host and return the links in their order; raises TriageError on failure."""

    def reserve(self, gpus: Mapping[int, int]) -> dict[int, str]:
        """Take GPUs of hosts (index -> how many) from whoever shares them out.

        Returns CUDA_VISIBLE_DEVICES of the hosts whose GPUs were chosen by somebody else; raises TriageError for GPUs that
        are not to be had.
        """

    def close(self) -> None:
        """End all agents, and release what the launcher reserved."""
