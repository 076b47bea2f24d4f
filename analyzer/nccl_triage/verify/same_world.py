"""Whether an experiment took place in the world of the failure: on the job's hosts, with its GPU and its variables.

Elsewhere its runs tell about the machines at hand and nothing about the failure, whatever they show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from nccl_triage.verify.collective_run import Slot
from nccl_triage.verify.means import Means
from nccl_triage.verify.placement import Request, accused_on, is_slot

HostMatch = Literal["own", "other", "unknown"]
GpuMatch = Literal["accused", "other", "any"]
VariableMatch = Literal["same", "left-out"]


@dataclass(frozen=True, slots=True)
class SameWorld:
    """How the world of an experiment compares with that of the failure.

    ``hosts``: all are the job's, some are not, or the log names none. ``gpu``: the accused one took part, it did not, or
    none is accused. ``variables``: all that can change the outcome were repeated, or some were left out.
    """

    hosts: HostMatch = "own"
    gpu: GpuMatch = "any"
    variables: VariableMatch = "same"


def compare(request: Request, means: Means, slots: Sequence[Slot], backend: str, asserted: bool) -> SameWorld:
    """Return how the hosts, GPUs and variables of a control compare with those of the failure.

    ``asserted``: the person at the keyboard said that the hosts are the job's.
    """
    # Without a run it is the hosts themselves that were asked.
    places = tuple(dict.fromkeys(slot.place for slot in slots)) or tuple(range(len(means.places)))
    return SameWorld(
        match_hosts(request, means, places, asserted),
        match_gpu(request, means, slots) if backend == "nccl" else "any",
        match_variables(request.experiment.kind, request.question.left_out),
    )


def match_hosts(request: Request, means: Means, places: Iterable[int], asserted: bool = False) -> HostMatch:
    """Return whether some hosts of the experiment are the job's."""
    if asserted:
        return "own"
    if not request.question.hosts:
        return "unknown"
    return "own" if all(means.name_in_log(place, request.question) is not None for place in places) else "other"


def match_gpu(request: Request, means: Means, slots: Sequence[Slot]) -> GpuMatch:
    """Return whether a GPU that the log accuses took part, for causes that only GPUs can show."""
    if not request.suspect.gpus or request.experiment.backend != "nccl":
        return "any"
    used = any(is_slot(gpu, slot) for slot in slots for gpu in accused_on(slot.place, request, means))
    return "accused" if used else "other"


#: Kinds of experiments whose outcome no variable of NCCL changes.
_WITHOUT_VARIABLES = frozenset({"store", "versions"})


def match_variables(kind: str, left_out: Iterable[str]) -> VariableMatch:
    """Return whether the variables that can change the outcome of a kind of experiment were repeated."""
    return "left-out" if kind not in _WITHOUT_VARIABLES and any(left_out) else "same"
