"""Runs the probes on every node of a Ray cluster at once, as an archive that needs no installation there."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from nccl_triage.doctor.collect import ProbeOptions
from nccl_triage.doctor.document import HostAnswer
from nccl_triage.hosts import asking, programs
from nccl_triage.hosts.ray_launcher import RayLauncher
from nccl_triage.hosts.ray_nodes import departed

#: Seconds for the probes of a node.
NODE_TIMEOUT = 120.0


def program() -> programs.Program:
    """Return what runs on the nodes."""
    return programs.Program(programs.archive("nccl_triage.doctor.collect", "doctor"))


def collect(
    address: str | None, wish: ProbeOptions, say: asking.Progress = lambda done, total: None
) -> list[HostAnswer]:
    """Return the answers of the nodes by name, the dead last; ``say`` receives how many have answered.

    Raises UsageError when the cluster cannot be joined.
    """
    launcher = RayLauncher(address, program(), silence=float("inf"))
    found: dict[int, HostAnswer] = {}
    names = [place.name for place in launcher.places]

    def take(index: int, answer: dict[str, Any]) -> None:
        if answer.pop("answer", None) == "facts":
            found[index] = HostAnswer(names[index], answer, ahead=launcher.links[index].ahead())

    try:
        wishes = dict.fromkeys(range(len(names)), asdict(wish))
        problems = asking.ask(launcher, wishes, NODE_TIMEOUT * wish.timeout_factor, take, say)
        dead = departed(launcher.nodes, launcher.nodes)
    finally:
        launcher.close()
    silent = {index: HostAnswer(names[index], problem=why) for index, why in problems.items()}
    answers = {**silent, **found}
    return [
        *(answers.get(index, HostAnswer(name, problem="no answer")) for index, name in enumerate(names)),
        *(HostAnswer(name, problem="Ray reports this node dead") for name in dead),
    ]
