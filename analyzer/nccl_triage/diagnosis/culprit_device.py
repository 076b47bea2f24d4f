"""Culprit methods that join a line of the kernel or of a GPU tool to the rank whose GPU or process it names."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit_base import Culprit, method, of_rank, strongest
from nccl_triage.diagnosis.weigh import Weighed
from nccl_triage.observations.event import Event
from nccl_triage.story.devices import Place

_HOW = {
    "pid": ("the process is that of rank {rank}", "该进程属于 rank {rank}"),
    "pci": ("NCCL shows it as the GPU of rank {rank}", "NCCL 显示它是 rank {rank} 的 GPU"),
}


def _of_host(event: Event) -> bool:
    return event.signature.partition(".")[0] in ("kernel", "nvidia-driver")


def _named(event: Event, place: Place) -> tuple[str, str]:
    """Return how the line names its GPU (switch, device) or process, in both languages."""
    if place.address is not None and "sxid" in event.fields:
        return f"NVSwitch {place.address}", f"NVSwitch {place.address}"
    if place.address is not None and event.signature.startswith("kernel."):
        return f"PCI device {place.address}", f"PCI 设备 {place.address}"
    index = f" (GPU {place.gpu})" if place.gpu is not None else ""
    if place.address is not None:
        return f"GPU {place.address}{index}", f"GPU {place.address}{index}"
    return (f"process {place.pid}", f"进程 {place.pid}") if place.pid is not None else ("", "")


@method("device")
def _device(case: Case, weighed: Weighed) -> list[Culprit]:
    """The rank whose GPU (by its PCI address) or process the strongest evidence of a host's log names, or the GPU's host."""
    events = strongest(weighed)
    if not events or not _of_host(events[0]):
        return []
    told = [event for event in events if _of_host(event) and event.role != "context"] or events[:1]
    for event in sorted(told, key=lambda e: (e.role != "root", case.position(e))):
        place = case.devices.place(event)
        en, zh = _named(event, place)
        on, on_zh = (f" on {place.host}", f"（{place.host}）") if place.host else ("", "")
        if place.rank is not None and place.how:
            why, why_zh = (text.format(rank=place.rank) for text in _HOW[place.how])
            culprit = of_rank(case, place.rank, f"{en}{on} is named: {why}", f"点名 {zh}{on_zh}：{why_zh}")
            culprit.host = culprit.host or place.host
            culprit.gpu = place.gpu if place.gpu is not None else culprit.gpu
            return [culprit]
        if place.address is not None and place.host:
            why = f"{en}{on} is named; no line tells which rank used it"
            why_zh = f"点名 {zh}{on_zh}；没有信息表明是哪个 rank 使用它"
            return [Culprit(None, place.host, None, None, place.gpu, {"en": why, "zh": why_zh})]
    return []
