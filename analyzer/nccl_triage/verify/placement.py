"""Where the ranks of an experiment run: which hosts, how many ranks on each, and on which GPUs.

Without a wish of the user: one rank on each usable GPU, or on as many as the cause needs, the accused GPU always among
them. No I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from nccl_triage.engine.schema import Experiment, Text
from nccl_triage.hosts.probes.gpu import Gpu
from nccl_triage.verify.collective_run import Slot, SlotGpu
from nccl_triage.verify.host_names import keys, keys_in_log
from nccl_triage.verify.means import HostMeans, Means
from nccl_triage.verify.question import AccusedGpu, Question, SuspectedCause

#: Ranks of a world whose size is free.
DEFAULT_WORLD = 4
#: Ranks that Gloo runs on one host at most, unless the user asks for more.
CPU_WORLD = 8


@dataclass(frozen=True, slots=True)
class Request:
    """What decides where ranks run: the failure, the suspect, its experiment, and the total that the user wants (or None)."""

    question: Question
    suspect: SuspectedCause
    experiment: Experiment
    world: int | None = None

    @property
    def least(self) -> int:
        """The fewest ranks that show anything."""
        return 1 if self.experiment.scope == "rank" else 2


def place_of(name: str, question: Question, means: Means) -> int | None:
    """Return which host of the experiment a host of the log is; None where none is, or several might be.

    Its name decides; an address decides where one host alone has it.
    """
    own = [means.keys_of(place) for place in range(len(means.places))]
    for wanted in (keys((name,)), keys_in_log(name, question)):
        found = [place for place, known in enumerate(own) if wanted & known]
        if len(found) == 1:
            return found[0]
    return None


def accused_places(request: Request, means: Means) -> tuple[int, ...]:
    """Return the hosts of the experiment that the suspected cause blames."""
    blamed = [*request.suspect.hosts, *(gpu.host for gpu in request.suspect.gpus if gpu.host)]
    found = (place_of(name, request.question, means) for name in dict.fromkeys(blamed))
    return tuple(dict.fromkeys(place for place in found if place is not None))


def places_for(request: Request, means: Means) -> tuple[int, ...]:
    """Return the hosts that an experiment needs: one for what happens inside a host, the accused for a GPU's fault."""
    everywhere = tuple(range(len(means.places)))
    accused = accused_places(request, means)
    if request.experiment.kind == "single":
        return accused or everywhere
    if request.experiment.scope != "host":
        return everywhere
    with_gpus = [place for place in (*accused, *everywhere) if means.hosts[place].gpus]
    return (accused or (*with_gpus, 0))[:1]


def accused_on(place: int, request: Request, means: Means) -> list[AccusedGpu]:
    """Return the accused GPUs of one host; where the log names no host, a GPU may be of any."""
    return [
        gpu
        for gpu in request.suspect.gpus
        if (place if gpu.host is None else place_of(gpu.host, request.question, means)) == place
    ]


def is_gpu(accused: AccusedGpu, gpu: Gpu | SlotGpu) -> bool:
    """Tell whether a GPU is the accused: by its PCI address, else by its index."""
    if accused.bus and gpu.bus:
        return accused.bus == gpu.bus
    return accused.index == gpu.index


def is_slot(accused: AccusedGpu, slot: Slot) -> bool:
    """Tell whether a rank runs on the accused GPU of its host."""
    return slot.gpu is not None and is_gpu(accused, slot.gpu)


def untested(request: Request, means: Means, slots: Sequence[Slot] = ()) -> Iterator[Text]:
    """Yield why accused GPUs have no rank among these, of the hosts where the experiment runs."""
    for place in dict.fromkeys(slot.place for slot in slots) if slots else places_for(request, means):
        host = means.hosts[place]
        if host.assumed or not host.present:
            continue
        used = [slot.gpu.index for slot in slots if slot.place == place and slot.gpu is not None]
        for accused in accused_on(place, request, means):
            if any(is_gpu(accused, gpu) and gpu.index in used for gpu in host.gpus):
                continue
            yield means.named(place, _why_untested(accused, host))


def _why_untested(accused: AccusedGpu, host: HostMeans) -> Text:
    found = [refusal for refusal in host.refusals if is_gpu(accused, refusal.gpu)]
    usable = any(is_gpu(accused, gpu) for gpu in host.gpus)
    if found and not usable:
        return {
            "en": f"the accused {accused} is left out: {found[0].reason_en}",
            "zh": f"未使用被指认的 {accused}：{found[0].reason_zh}",
        }
    if usable:
        return {"en": f"the accused {accused} has no rank", "zh": f"被指认的 {accused} 上没有 rank"}
    return {"en": f"the accused {accused} is not visible here", "zh": f"此处看不到被指认的 {accused}"}


def slots_of(request: Request, means: Means, backend: str) -> tuple[Slot, ...]:
    """Return where the ranks run, numbered host by host; empty where GPUs cannot take as many ranks as are needed."""
    places = places_for(request, means)
    counts = _counts(request, means, places, backend)
    if backend == "nccl":
        crowded = [counts[place] > len(means.hosts[place].gpus) for place in places]
        if any(more and not means.hosts[place].shareable for more, place in zip(crowded, places, strict=True)):
            return ()
    slots: list[Slot] = []
    for place in places:
        gpus = _gpus_of(place, counts[place], request, means) if backend == "nccl" else ()
        numbers = range(len(slots), len(slots) + counts[place])
        slots += [Slot(number, place, gpus[k] if gpus else None) for k, number in enumerate(numbers)]
    return tuple(slots)


def _counts(request: Request, means: Means, places: Sequence[int], backend: str) -> dict[int, int]:
    """Return the ranks of each host."""
    if request.world is not None:
        even = _even(max(request.world, request.least, len(places)), places)
        limits = {place: means.places[place].slots or even[place] for place in places}
        return {place: min(even[place], limits[place]) for place in places}
    default = _by_gpus(request, means, places) if backend == "nccl" else _by_log(request, places)
    fixed = {place: count for place in places if (count := means.places[place].slots)}
    counts = {**default, **fixed}
    # A GPU that takes one process only can still be checked alone.
    alone = backend == "nccl" and request.experiment.kind == "single" and not means.hosts[places[0]].shareable
    if not (fixed or alone):
        counts[places[0]] += max(0, request.least - sum(counts.values()))
    return counts


def _even(total: int, places: Collection[int]) -> dict[int, int]:
    return {place: total // len(places) + (k < total % len(places)) for k, place in enumerate(places)}


def _by_log(request: Request, places: Sequence[int]) -> dict[int, int]:
    """Return the ranks of each host without GPUs: those of the log, as far as a processor can run them."""
    free = DEFAULT_WORLD if len(places) == 1 else 1
    even = _even(max(request.question.world or free, request.least, len(places)), places)
    return {place: min(CPU_WORLD, count) for place, count in even.items()}


def _by_gpus(request: Request, means: Means, places: Sequence[int]) -> dict[int, int]:
    """Return one rank a GPU: all of them for what happens inside a host, else as many as the job had there."""
    question, every = request.question, {place: len(means.hosts[place].gpus) for place in places}
    inside_host = request.experiment.scope == "host" or request.experiment.kind == "single"
    if inside_host or not question.world:
        return {place: max(1, count) for place, count in every.items()}
    even = _even(max(question.world, len(places)), places)
    # A log names a part of a host's ranks, or more of them than an even share.
    known = {place_of(name, question, means): len(ranks) for name, ranks in question.ranks_of.items()}
    return {place: max(1, min(count, max(even[place], known.get(place, 0)))) for place, count in every.items()}


def _gpus_of(place: int, count: int, request: Request, means: Means) -> list[SlotGpu]:
    """Return the GPU of each of ``count`` ranks of a host, in turn; of fewer ranks than GPUs the accused ones go first."""
    usable = means.hosts[place].gpus
    accused = accused_on(place, request, means)
    order = sorted(range(len(usable)), key=lambda k: (not any(is_gpu(one, usable[k]) for one in accused), k))
    told = [_told(means.hosts[place], device) for device in sorted(order[:count])]
    return [told[number % len(told)] for number in range(count)] if told else []


def _told(host: HostMeans, device: int) -> SlotGpu:
    gpu = host.gpus[device]
    # Where the visible GPUs cannot be set by UUID, a process counts them as nvidia-smi does.
    return SlotGpu(device if host.devices is not None else gpu.index, gpu.index, gpu.uuid, gpu.bus)


def gpu_env(slots: Sequence[Slot], means: Means) -> dict[int, dict[str, str]]:
    """Return the variables that give each rank its GPUs.

    All usable GPUs of its host are visible to a rank. Ranks that share one get a NCCL_HOSTID each: NCCL refuses two ranks
    on one GPU of one host.
    """
    used = [(slot.place, slot.gpu) for slot in slots if slot.gpu is not None]
    shared = len(set(used)) < len(used)
    found: dict[int, dict[str, str]] = {}
    for rank, slot in enumerate(slots):
        own = {"NCCL_HOSTID": f"rank{rank}"} if shared and slot.gpu is not None else {}
        devices = means.hosts[slot.place].devices if slot.gpu is not None else None
        if devices is not None:
            own["CUDA_VISIBLE_DEVICES"] = devices
        if own:
            found[rank] = own
    return found


def inside(place: int, count: int, means: Means) -> list[Slot]:
    """Return slots of one host for a run on its GPUs: as many as ``count`` at most, and no more than there are GPUs.

    Two ranks share a single GPU where it takes them; fewer than two slots are none.
    """
    host = means.hosts[place]
    most = max(2 if host.shareable else 1, len(host.gpus))
    if not host.gpus or most < 2:
        return []
    told = [_told(host, device) for device in range(len(host.gpus))]
    return [Slot(number, place, told[number % len(told)]) for number in range(min(count, most))]
