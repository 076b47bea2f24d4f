"""In words: what could not be seen, and why."""

from __future__ import annotations

from collections.abc import Mapping

from nccl_triage.doctor import wording
from nccl_triage.knowledge.model import Text

WHAT: dict[str, Text] = {
    "shm": {"en": "/dev/shm", "zh": "/dev/shm"},
    "cgroup": {"en": "limits of the cgroup", "zh": "cgroup 限制"},
    "infiniband": {"en": "InfiniBand and RoCE ports", "zh": "InfiniBand 与 RoCE 端口"},
    "pci": {"en": "devices on the PCI bus", "zh": "PCI 总线设备"},
    "iommu": {"en": "the IOMMU", "zh": "IOMMU"},
    "acs": {"en": "ACS of PCI bridges", "zh": "PCI 桥的 ACS"},
    "clock": {"en": "the state of the clock", "zh": "时钟状态"},
    "firewall-rules": {"en": "rules of packet filters", "zh": "防火墙规则"},
    "storage": {"en": "room on a file system", "zh": "文件系统空间"},
    "kernel-log": {"en": "the kernel's log (Xid, processes killed)", "zh": "内核日志（Xid、被杀进程）"},
    "gpus": {"en": "GPUs", "zh": "GPU"},
    "gpu-details": {
        "en": "temperature limits, NVLink, paths and fabric of GPUs",
        "zh": "GPU 的温度阈值、NVLink、路径与 fabric",
    },
    "driver-cuda": {"en": "the CUDA that the driver supports", "zh": "驱动支持的 CUDA"},
    "torch": {"en": "torch", "zh": "torch"},
    "nccl": {"en": "torch's NCCL", "zh": "torch 的 NCCL"},
    "host": {"en": "the host", "zh": "该主机"},
}
WHY: dict[str, Text] = {
    "absent": {"en": "{path} does not exist", "zh": "{path} 不存在"},
    "denied": {"en": "{path} may not be read without root", "zh": "没有 root 权限无法读取 {path}"},
    "unreadable": {"en": "{path} cannot be read ({error})", "zh": "无法读取 {path}（{error}）"},
    "failed": {"en": "{tool}: {error}", "zh": "{tool}：{error}"},
    "root": {"en": "that needs root", "zh": "需要 root"},
    "no-driver": {
        "en": "no NVIDIA driver and no device of one is here",
        "zh": "本机没有 NVIDIA 驱动及其设备",
    },
    "no-nvml": {
        "en": "the Python package nvidia-ml-py is missing ({error})",
        "zh": "缺少 Python 包 nvidia-ml-py（{error}）",
    },
    "no-cuda": {"en": "torch {torch} is built without CUDA", "zh": "torch {torch} 未带 CUDA"},
    "hangs": {"en": "no answer within {seconds} s", "zh": "{seconds} 秒内没有应答"},
    "died": {"en": "the probe ended by {error}", "zh": "探测进程因 {error} 结束"},
    "broke": {"en": "a bug in the probe ({error})", "zh": "探测程序出错（{error}）"},
}


def words(entry: Mapping[str, str]) -> tuple[Text, Text]:
    """Return what could not be seen and why, in both languages; words of a later release are shown as they are."""
    what, why = str(entry.get("what", "")), str(entry.get("why", ""))
    try:
        reason = wording.fill(WHY[why], entry)
    except KeyError:
        reason = {"en": why, "zh": why}
    return WHAT.get(what, {"en": what, "zh": what}), reason
