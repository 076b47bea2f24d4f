"""What the drivers themselves say of the GPUs: of those that a cause blames, and of others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nccl_triage.verify.collective_run import RunFinding
from nccl_triage.verify.decide import Fact, cause_of
from nccl_triage.verify.gpus import Refusal
from nccl_triage.verify.means import Means
from nccl_triage.verify.placement import Request, accused_on, accused_places, is_gpu

#: Kind of a finding of the driver's.
KIND = "gpu-health"


@dataclass(frozen=True, slots=True)
class Health:
    """Faults of the accused GPUs, faults of others, and what they show of the suspected cause."""

    accused: tuple[RunFinding, ...]
    others: tuple[RunFinding, ...]
    fact: Fact


def health_of(request: Request, means: Means, faults: Iterable[tuple[int, Refusal]] | None = None) -> Health:
    """Return what drivers say for a suspected cause; ``faults`` (default: those of the means) come with their host.

    A cause may blame a GPU, all GPUs of a host, or nobody: then every fault counts. Where an accused host or GPU was not
    read, nothing is clean.
    """
    blamed = accused_places(request, means)
    somebody = bool(request.suspect.hosts or request.suspect.gpus)
    accused: list[RunFinding] = []
    others: list[RunFinding] = []
    for place, fault in means.faults if faults is None else faults:
        guilty = accused_on(place, request, means)
        if guilty:
            found = any(is_gpu(gpu, fault.gpu) for gpu in guilty)
        else:
            found = place in blamed or not somebody
        (accused if found else others).append(_finding(place, fault, means))
    read = _read(request, means, blamed) if somebody else any(host.present for host in means.hosts)
    return Health(tuple(accused), tuple(others), "shows" if accused else "clean" if read else "none")


def _read(request: Request, means: Means, blamed: tuple[int, ...]) -> bool:
    """Tell whether a driver has answered for every accused GPU, or for the accused hosts."""
    places = blamed or tuple(range(len(means.places)))
    if not all(means.hosts[place].present for place in places):
        return False
    seen = {place: [*means.hosts[place].gpus, *(one.gpu for one in means.hosts[place].refusals)] for place in places}
    return all(
        any(is_gpu(gpu, known) for place in places if gpu in accused_on(place, request, means) for known in seen[place])
        for gpu in request.suspect.gpus
    )


def _finding(place: int, fault: Refusal, means: Means) -> RunFinding:
    says = means.named(place, {"en": fault.reason_en, "zh": fault.reason_zh})
    return RunFinding(cause_of(KIND), KIND, dict(says), hosts=(means.places[place].name,))
