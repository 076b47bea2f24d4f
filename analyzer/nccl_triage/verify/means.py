"""What each host offers to an experiment, made of the answers of the hosts' agents: usable GPUs, refusals, torch, NCCL.

The asking host's GPUs say nothing of another's. No I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nccl_triage.engine.schema import Text
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.probes.gpu import Gpu
from nccl_triage.verify import host_names
from nccl_triage.verify.gpus import MOST_GPUS, Refusal, inventory_of, refusals, told_text
from nccl_triage.verify.question import Question

#: Rules that ``--allow-busy`` cannot lift: such a GPU takes no program at all.
IMPOSSIBLE = frozenset({"mig", "compute-mode", "fault"})
#: Reasons that are shown of one host.
_SHOWN = 4
NO_GPU: Text = {"en": "no NVIDIA GPU is visible", "zh": "看不到 NVIDIA GPU"}
NO_ANSWER: Text = {"en": "its agent did not report its GPUs", "zh": "其代理未报告 GPU 情况"}
_ROCM: Text = {
    "en": "its GPUs are AMD's: whether they are idle and healthy cannot be read yet, so nothing runs on them",
    "zh": "其 GPU 为 AMD 产品：目前无法读取其空闲与健康状态，因此不在其上运行",
}


@dataclass(frozen=True, slots=True)
class HostMeans:
    """What one host offers.

    ``gpus`` are those that ranks may use, ``refusals`` what speaks against others (and, with ``--allow-busy``, against these),
    ``present`` the number of GPUs of either kind, ``no_gpu`` why none is usable. ``torch`` is a version, ``unknown`` where
    it cannot be known, None without any; ``no_torch`` and ``no_nccl`` say why ranks cannot import it or use NCCL.
    ``known_as`` are the keys of the host's own name and addresses. ``assumed``: nobody has asked the host, its GPUs are a guess.
    """

    gpus: tuple[Gpu, ...] = ()
    present: int = 0
    refusals: tuple[Refusal, ...] = ()
    no_gpu: Text = field(default_factory=lambda: NO_GPU)
    torch: str | None = None
    nccl: str | None = None
    no_torch: Text | None = None
    no_nccl: Text | None = None
    known_as: frozenset[str] = frozenset()
    assumed: bool = False

    @property
    def shareable(self) -> bool:
        """Whether two ranks may use one of the GPUs: not a MIG instance, nor a GPU for one process."""
        return not any(gpu.instance or gpu.compute_mode not in (None, "default") for gpu in self.gpus)

    @property
    def devices(self) -> str | None:
        """CUDA_VISIBLE_DEVICES of the ranks: the usable GPUs by UUID; None where these are not known."""
        uuids = [gpu.uuid for gpu in self.gpus]
        return ",".join(uuids) if uuids and all(uuids) else None

    @property
    def faults(self) -> tuple[Refusal, ...]:
        """The faults that the driver reports of GPUs, usable or not."""
        return tuple(refusal for refusal in self.refusals if refusal.evidence)

    def reasons(self) -> Text:
        """Return why there is no usable GPU."""
        if self.refusals and len({refusal.gpu for refusal in self.refusals}) == self.present:
            return _listed(self.refusals)
        return self.no_gpu

    def only(self, visible: str) -> HostMeans:
        """Return the means with those GPUs alone that a value of CUDA_VISIBLE_DEVICES names (indices or UUIDs)."""
        names = [part.strip() for part in visible.split(",") if part.strip()]
        kept = tuple(gpu for gpu in self.gpus if str(gpu.index) in names or any(_is(gpu, name) for name in names))
        why = {
            "en": f"none of the GPUs that were assigned ({visible}) is idle and healthy",
            "zh": f"分配到的 GPU（{visible}）均非空闲且健康",
        }
        return replace(self, gpus=kept, no_gpu=self.no_gpu if kept else why)


def _is(gpu: Gpu, name: str) -> bool:
    return name.startswith(("GPU-", "MIG-")) and gpu.uuid.startswith(name)


def _listed(found: Sequence[Refusal]) -> Text:
    lifted = not all(refusal.rule in IMPOSSIBLE for refusal in found)
    return {
        "en": "; ".join(refusal.reason_en for refusal in found[:_SHOWN])
        + (" (--allow-busy uses them anyway)" if lifted else ""),
        "zh": "；".join(refusal.reason_zh for refusal in found[:_SHOWN])
        + ("（--allow-busy 可强制使用）" if lifted else ""),
    }


@dataclass(frozen=True, slots=True)
class Means:
    """The hosts of an experiment and what each offers, in one order."""

    places: tuple[HostPlace, ...]
    hosts: tuple[HostMeans, ...]

    @classmethod
    def alike(
        cls,
        places: Sequence[HostPlace],
        gpus: int = 0,
        gpu_free: int | None = None,
        gpu_name: str = "",
        torch: str | None = "unknown",
        no_gpu: Text = NO_GPU,
    ) -> Means:
        """Return the means of hosts that cannot be asked: each with as many GPUs, of which nothing else is known."""
        found = tuple(Gpu(index, name=gpu_name, memory_free=gpu_free) for index in range(min(gpus, MOST_GPUS)))
        each = HostMeans(found, len(found), no_gpu=no_gpu, torch=torch, assumed=True)
        return cls(tuple(places), (each,) * len(places))

    @property
    def gpus(self) -> int:
        """The usable GPUs of the host with the fewest."""
        return min((len(host.gpus) for host in self.hosts), default=0)

    @property
    def gpu_free(self) -> int:
        """The least free memory of a usable GPU, in bytes; 0 where it is not known."""
        return min((gpu.memory_free or 0 for host in self.hosts for gpu in host.gpus), default=0)

    @property
    def gpu_name(self) -> str | None:
        """The models of the usable GPUs."""
        names = dict.fromkeys(gpu.name for host in self.hosts for gpu in host.gpus if gpu.name)
        return ", ".join(names) or None

    @property
    def no_gpu(self) -> Text:
        """Why a host has no usable GPU: of the first such host."""
        place = next((place for place, host in enumerate(self.hosts) if not host.gpus), None)
        return NO_GPU if place is None else self.named(place, self.hosts[place].reasons())

    @property
    def torch(self) -> str | None:
        """The versions of torch on the hosts; None when one has none."""
        versions = dict.fromkeys(host.torch for host in self.hosts)
        return None if None in versions or not versions else ", ".join(str(version) for version in versions)

    @property
    def faults(self) -> Iterator[tuple[int, Refusal]]:
        """The faults that drivers report, each with the index of its host."""
        for place, host in enumerate(self.hosts):
            for refusal in host.faults:
                yield place, refusal

    def keys_of(self, place: int) -> frozenset[str]:
        """Return the names and addresses by which a host can be told from others."""
        return host_names.keys((self.places[place].name, self.places[place].address)) | self.hosts[place].known_as

    def name_in_log(self, place: int, question: Question) -> str | None:
        """Return what the log calls a host; None where it does not name it."""
        return host_names.name_in_log(question, self.keys_of(place))

    def names_in_log(self, places: Iterable[int], question: Question) -> tuple[str, ...]:
        """Return what the log calls each host, its own name where the log does not name it."""
        return tuple(self.name_in_log(place, question) or self.places[place].name for place in places)

    def named(self, place: int, why: Text) -> Text:
        """Return a reason with the host's name before it, where there are several hosts."""
        if len(self.places) < 2:
            return why
        name = self.places[place].name
        return {"en": f"{name}: {why['en']}", "zh": f"{name}：{why['zh']}"}

    def why_no_nccl(self, places: Iterable[int]) -> Text | None:
        """Return why NCCL cannot run on some hosts, or None."""
        for place in places:
            host = self.hosts[place]
            if not host.gpus:
                return self.named(place, host.reasons())
            if host.no_nccl is not None:
                return self.named(place, host.no_nccl)
        return None

    def why_no_torch(self, places: Iterable[int]) -> Text | None:
        """Return why ranks cannot import torch on some hosts, or None."""
        for place in places:
            host = self.hosts[place]
            if host.no_torch is not None:
                return self.named(place, host.no_torch)
            if host.torch is None:
                return self.named(place, NO_TORCH)
        return None

    def with_only(self, visible: Mapping[int, str]) -> Means:
        """Return the means with those GPUs alone that hosts' values of CUDA_VISIBLE_DEVICES name."""
        hosts = (host.only(visible[place]) if place in visible else host for place, host in enumerate(self.hosts))
        return replace(self, hosts=tuple(hosts))


def without_gpus(means: Means, why: Text) -> Means:
    """Return the means of the same hosts whose GPUs cannot be had."""
    return replace(means, hosts=tuple(replace(host, gpus=(), refusals=(), no_gpu=why) for host in means.hosts))


NO_TORCH: Text = {
    "en": "this Python has no PyTorch: use --python with the job's Python",
    "zh": "当前 Python 未安装 PyTorch：请用 --python 指定作业所用的解释器",
}


def host_means(answer: object, facts: Mapping[str, Any] | None = None, *, allow_busy: bool = False) -> HostMeans:
    """Return what a host offers by the answer of its agent (None: there was none) and by its facts."""
    known = host_names.known_as(facts or {})
    if not isinstance(answer, Mapping):
        return HostMeans(no_gpu=NO_ANSWER, torch="unknown", known_as=known)
    inventory, busiest = inventory_of(answer)
    against = refusals(inventory, busiest)
    barred = [found.gpu for found in against if not allow_busy or found.rule in IMPOSSIBLE]
    problem = inventory.problem
    return HostMeans(
        gpus=tuple(gpu for gpu in inventory.gpus if gpu not in barred),
        present=len(inventory.gpus),
        refusals=tuple(against),
        no_gpu=_ROCM if inventory.source == "rocm" else {"en": problem, "zh": problem} if problem else NO_GPU,
        known_as=known,
        **_torch(answer.get("torch")),
    )


def _torch(told: object) -> dict[str, Any]:
    """Return the fields of ``HostMeans`` that an answer's torch decides."""
    if told is None:
        return {"torch": None, "no_torch": NO_TORCH}
    if not isinstance(told, Mapping):
        return {"torch": "unknown"}
    version = told_text(told.get("version"), 60) or "unknown"
    found: dict[str, Any] = {"torch": version, "nccl": told_text(told.get("nccl"), 40)}
    error = told_text(told.get("error"))
    if error is not None:
        why = {"en": f"torch cannot be imported: {error}", "zh": f"无法导入 torch：{error}"}
        return {**found, "no_torch": why, "no_nccl": why}
    return {**found, "no_nccl": _why_no_nccl(told, version)}


def _why_no_nccl(told: Mapping[str, Any], version: str) -> Text | None:
    if told.get("hip"):
        return {
            "en": f"torch {version} is built for AMD's GPUs (ROCm), which are not used yet",
            "zh": f"torch {version} 为 AMD GPU（ROCm）构建，目前不支持",
        }
    if "cuda" in told and told["cuda"] is None:
        return {
            "en": f"torch {version} is built without CUDA: use --python with the job's Python",
            "zh": f"torch {version} 不支持 CUDA：请用 --python 指定作业所用的解释器",
        }
    error = told_text(told.get("nccl_error"))
    if told.get("has_nccl") is False or error is not None:
        more = f" ({error})" if error else ""
        return {"en": f"torch {version} has no NCCL{more}", "zh": f"torch {version} 不含 NCCL{more}"}
    return None
