"""Which GPUs of a host ranks may use: its agent's answer, checked, and the rules of refusal.

The limits are constants here. No torch and no CUDA; the answer comes from a host that may say anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nccl_triage.hosts.probes.gpu import Gpu, GpuProcess, Inventory, pci_address
from nccl_triage.lazy_regex import lazily

#: A driver keeps some memory for itself, and containers hide the processes of others: memory in use above this share
#: of the total, and above this many bytes, means that somebody works there.
USED_SHARE, USED_BYTES = 0.03, 1 << 30
#: Percent of the time that an idle GPU may be busy, in each of the samples.
BUSY_PERCENT = 5
#: GPUs and processes of an answer that are read, and the characters of its texts.
MOST_GPUS, MOST_PROCESSES, MOST_TEXT = 64, 256, 300
_UUID = lazily(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}")
_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a GPU must not be used now; ``evidence`` when it speaks for the cause gpu-hardware-fault by itself."""

    gpu: Gpu
    rule: str
    reason_en: str
    reason_zh: str
    evidence: bool = False


def told_text(value: object, most: int = MOST_TEXT) -> str | None:
    """Return a text of an answer without what no terminal should get; None for anything else."""
    if not isinstance(value, str):
        return None
    return "".join(character if character.isprintable() else " " for character in value[:most]).strip() or None


def inventory_of(answer: object) -> tuple[Inventory, dict[int, int]]:
    """Return the GPUs of an agent's answer and the highest percent busy of each, by index; what is malformed is left out."""
    told: Mapping[str, Any] = answer if isinstance(answer, Mapping) else {}
    listed = _list(told.get("gpus"))
    gpus: dict[int, Gpu] = {}
    busiest: dict[int, int] = {}
    for entry in listed[:MOST_GPUS]:
        gpu = _gpu(entry) if isinstance(entry, Mapping) else None
        # One name for two GPUs would put two ranks on one of them unseen.
        if gpu is None or gpu.index in gpus or (gpu.uuid and gpu.uuid in {other.uuid for other in gpus.values()}):
            continue
        gpus[gpu.index] = gpu
        seen = [_whole(value, 100) for value in _list(entry.get("busy"))[:16]]
        busiest[gpu.index] = max([gpu.utilisation or 0, *(value for value in seen if value is not None)])
    inventory = Inventory(
        tuple(gpus.values()),
        told_text(told.get("driver"), 40),
        told_text(told.get("problem")),
        told_text(told.get("source"), 20) or "",
    )
    return inventory, busiest


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _whole(value: object, most: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _uuids(value: object) -> tuple[str, ...]:
    return tuple(uuid for uuid in _list(value)[:MOST_GPUS] if isinstance(uuid, str) and _UUID.fullmatch(uuid))


def _gpu(told: Mapping[str, Any]) -> Gpu | None:
    index = _whole(told.get("index"), 1023)
    if index is None:
        return None
    return Gpu(
        index=index,
        uuid=next(iter(_uuids([told.get("uuid")])), ""),
        name=told_text(told.get("name"), 80) or "",
        memory_total=_whole(told.get("memory_total"), _BYTES),
        memory_used=_whole(told.get("memory_used"), _BYTES),
        memory_free=_whole(told.get("memory_free"), _BYTES),
        utilisation=_whole(told.get("utilisation"), 100),
        processes=tuple(_processes(_list(told.get("processes")))),
        compute_mode=told_text(told.get("compute_mode"), 40),
        mig=_flag(told.get("mig")),
        recovery_action=told_text(told.get("recovery_action"), 40),
        ecc_uncorrected=_whole(told.get("ecc_uncorrected"), _BYTES),
        remap_pending=_flag(told.get("remap_pending")),
        remap_failure=_flag(told.get("remap_failure")),
        fault=told_text(told.get("fault"), 40),
        bus=pci_address(told.get("bus")),
        instances=_uuids(told.get("instances")),
        instance=told.get("instance") is True,
    )


def _processes(running: list[Any]) -> Iterator[GpuProcess]:
    for entry in running[:MOST_PROCESSES]:
        pid = _whole(entry.get("pid"), 1 << 32) if isinstance(entry, Mapping) else None
        if pid is not None:
            yield GpuProcess(pid, _whole(entry.get("used"), _BYTES))


def refusals(inventory: Inventory, busiest: Mapping[int, int], own_pids: Collection[int] = ()) -> list[Refusal]:
    """Return every reason against using the GPUs of an inventory; empty when all are idle and healthy.

    ``busiest`` gives the highest percent busy by index, ``own_pids`` are processes of the verifier itself.
    """
    found: list[Refusal] = []
    for gpu in inventory.gpus:
        found += _at_rest(gpu, frozenset(own_pids))
        if busiest.get(gpu.index, 0) > BUSY_PERCENT:
            found.append(_busy(gpu, busiest[gpu.index]))
    return found


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
    if gpu.compute_mode == "prohibited":
        yield Refusal(
            gpu,
            "compute-mode",
            f"{name} is in compute mode prohibited: no program may use it",
            f"{name} 的计算模式为 prohibited，任何程序都不能使用",
        )
    if gpu.mig and not gpu.instance:
        yield Refusal(
            gpu,
            "mig",
            f"{name} is divided by MIG: name one of its instances in CUDA_VISIBLE_DEVICES, which takes one rank",
            f"{name} 已启用 MIG：请在 CUDA_VISIBLE_DEVICES 中指定其中一个实例，一个实例只能运行一个 rank",
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
