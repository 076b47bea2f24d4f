"""Which GPUs are visible to this process, and whether they are idle; nothing is changed.

The rules of refusal are those of ``idle``; the limits are constants here. No torch and no CUDA: asking must not take
memory on a GPU that someone else uses.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nccl_triage.verify.gpu import Gpu, Inventory

#: A driver keeps some memory for itself, and containers hide the processes of others: memory in use above this share
#: of the total, and above this many bytes, means that somebody works there.
USED_SHARE, USED_BYTES = 0.03, 1 << 30
#: Percent of the time that an idle GPU may be busy, in each of ``SAMPLES`` samples over ``SAMPLED`` seconds.
BUSY_PERCENT, SAMPLES, SAMPLED = 5, 3, 1.0
_LIBRARY = "libnvidia-ml.so.1"
_LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "usr/lib/wsl/lib",
    "run/opengl-driver/lib",
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a GPU must not be used now; ``evidence`` when it speaks for the cause gpu-hardware-fault by itself."""

    gpu: Gpu
    rule: str
    reason_en: str
    reason_zh: str
    evidence: bool = False


Sampler = Callable[[], Mapping[int, int | None]]


def likely_present(root: Path = Path("/"), environment: Mapping[str, str] | None = None) -> bool:
    """Return whether asking for GPUs is worth it: a device, a loaded driver or its library exists. Imports nothing."""
    if (root / "proc/driver/nvidia").exists() or any((root / "dev").glob("nvidia[0-9]*")):
        return True
    paths = (os.environ if environment is None else environment).get("LD_LIBRARY_PATH", "").split(":")
    folders = [*(root / name for name in _LIBRARY_FOLDERS), *(Path(path) for path in paths if path)]
    return any((folder / _LIBRARY).exists() for folder in folders)


def visible(environment: Mapping[str, str] | None = None) -> Inventory:
    """Return the GPUs that a CUDA program started from here would see; never raises.

    ``environment`` (default: this process's) gives CUDA_VISIBLE_DEVICES. Indices count in the order of the PCI bus: with
    different GPUs in one host CUDA counts so only when CUDA_DEVICE_ORDER=PCI_BUS_ID is set, and the inventory says it.
    """
    from nccl_triage.verify import gpu_smi, nvml

    inventory = nvml.read()
    if not inventory.source:
        with_tool = gpu_smi.read()
        problem = None if with_tool.gpus else f"{inventory.problem}; {with_tool.problem}"
        inventory = replace(with_tool, problem=problem)
    return selected(inventory, os.environ if environment is None else environment)


def selected(inventory: Inventory, environment: Mapping[str, str]) -> Inventory:
    """Return the inventory as CUDA_VISIBLE_DEVICES leaves it.

    As CUDA does it: the list ends before its first entry that names no GPU; a UUID may be shortened
    (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars).
    """
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    if wanted is None or not inventory.gpus:
        return inventory
    chosen: list[Gpu] = []
    problem = None
    for entry in (part.strip() for part in wanted.split(",")):
        gpu = _named(entry, inventory.gpus)
        if gpu is None:
            kind = "a MIG instance, which is not tested" if entry.startswith("MIG-") else "no GPU of this host"
            problem = f"CUDA_VISIBLE_DEVICES={wanted}: {entry!r} names {kind}"
            break
        if gpu in chosen:
            chosen, problem = [], f"CUDA_VISIBLE_DEVICES={wanted}: {entry!r} is listed twice"
            break
        chosen.append(gpu)
    by_index = any(entry.strip().isdigit() for entry in wanted.split(","))
    if (
        by_index
        and len({gpu.name for gpu in inventory.gpus}) > 1
        and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    ):
        problem = (
            problem
            or "different GPUs in one host: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or indices may refer to other GPUs"
        )
    return replace(inventory, gpus=tuple(chosen), problem=problem)


def _named(entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
    if entry.isdigit():
        return next((gpu for gpu in gpus if gpu.index == int(entry)), None)
    found = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None


def idle(
    inventory: Inventory,
    own_pids: Collection[int] = (),
    *,
    sample: Sampler | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Refusal]:
    """Return every reason against using the GPUs of an inventory; empty when all are idle and healthy.

    ``sample`` gives percent busy by index (default: asks the driver), ``own_pids`` are processes of the verifier itself.
    """
    refusals = [refusal for gpu in inventory.gpus for refusal in _at_rest(gpu, frozenset(own_pids))]
    if not inventory.gpus:
        return refusals
    sample = sample or _sampler(inventory)
    busiest = {gpu.index: gpu.utilisation or 0 for gpu in inventory.gpus}
    for _ in range(SAMPLES - 1):  # the inventory holds the first sample
        sleep(SAMPLED / (SAMPLES - 1))
        for index, percent in sample().items():
            if index in busiest and percent is not None:
                busiest[index] = max(busiest[index], percent)
    for gpu in inventory.gpus:
        if busiest[gpu.index] > BUSY_PERCENT:
            refusals.append(_busy(gpu, busiest[gpu.index]))
    return sorted(refusals, key=lambda refusal: inventory.gpus.index(refusal.gpu))


def _sampler(inventory: Inventory) -> Sampler:
    from nccl_triage.verify import gpu_smi, nvml

    return nvml.utilisation if inventory.source == "nvml" else gpu_smi.utilisation


def _busy(gpu: Gpu, percent: int) -> Refusal:
    return Refusal(
        gpu,
        "utilisation",
        f"{_name(gpu)} is {percent} % busy (limit {BUSY_PERCENT} %)",
        f"{_name(gpu)} 利用率 {percent}%(上限 {BUSY_PERCENT}%)",
    )


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.name})" if gpu.name else f"GPU {gpu.index}"


def _size(count: int | None) -> str:
    return "?" if count is None else f"{count / (1 << 30):.1f} GiB"


def _at_rest(gpu: Gpu, own: frozenset[int]) -> Iterator[Refusal]:
    name = _name(gpu)
    others = [process for process in gpu.processes if process.pid not in own]
    if others:
        listed = ", ".join(f"{process.pid} ({_size(process.used)})" for process in others[:4])
        more = ", .." if len(others) > 4 else ""
        yield Refusal(
            gpu,
            "processes",
            f"{name} is used by {len(others)} other process(es): pid {listed}{more}",
            f"{name} 正被其他 {len(others)} 个进程使用：pid {listed}{more}",
        )
    if gpu.memory_used is not None:
        used = gpu.memory_used - sum(process.used or 0 for process in gpu.processes if process.pid in own)
        limit = max(USED_BYTES, int(USED_SHARE * (gpu.memory_total or 0)))
        if used > limit:
            yield Refusal(
                gpu,
                "memory",
                f"{name} has {_size(used)} of memory in use (limit {_size(limit)}), perhaps by a process in another container",
                f"{name} 已占用显存 {_size(used)}(上限 {_size(limit)}),可能来自另一个容器中的进程",
            )
    if gpu.compute_mode not in (None, "default"):
        yield Refusal(
            gpu,
            "compute-mode",
            f"{name} is in compute mode {gpu.compute_mode}",
            f"{name} 的计算模式为 {gpu.compute_mode}",
        )
    if gpu.mig:
        yield Refusal(
            gpu,
            "mig",
            f"{name} has MIG enabled: NCCL cannot use the whole GPU",
            f"{name} 已启用 MIG，NCCL 无法使用整卡",
        )
    yield from _health(gpu, name)


def _health(gpu: Gpu, name: str) -> Iterator[Refusal]:
    if gpu.fault is not None:
        yield Refusal(
            gpu,
            "fault",
            f"the driver cannot answer for {name}: {gpu.fault}",
            f"驱动无法读取 {name}: {gpu.fault}",
            evidence=gpu.fault in ("lost", "reset-required"),
        )
    if gpu.recovery_action not in (None, "none"):
        yield Refusal(
            gpu,
            "recovery",
            f"the driver requests {name}: {gpu.recovery_action}",
            f"驱动要求对 {name} 执行：{gpu.recovery_action}",
            evidence=True,
        )
    if gpu.ecc_uncorrected:
        yield Refusal(
            gpu,
            "ecc",
            f"{name} counted {gpu.ecc_uncorrected} uncorrectable ECC errors since the driver was loaded",
            f"{name} 自驱动加载以来出现 {gpu.ecc_uncorrected} 个不可纠正的 ECC 错误",
            evidence=True,
        )
    if gpu.remap_pending or gpu.remap_failure:
        what = ("failed", "失败") if gpu.remap_failure else ("waits for a reset", "等待重置后生效")
        yield Refusal(
            gpu, "remap", f"a row remap of {name} {what[0]}", f"{name} 的显存行重映射{what[1]}", evidence=True
        )
