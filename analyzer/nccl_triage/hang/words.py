"""What could not be taken of a hanging job, and why, in both languages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nccl_triage.doctor import wording
from nccl_triage.knowledge.entries import Text

WHAT: dict[str, Text] = {
    "find": {"en": "processes", "zh": "进程"},
    "stacks": {"en": "stacks", "zh": "调用栈"},
    "ras": {"en": "NCCL RAS", "zh": "NCCL RAS"},
    "recorder": {"en": "flight recorder", "zh": "flight recorder"},
    "gpus": {"en": "nvidia-smi", "zh": "nvidia-smi"},
    "kernel": {"en": "kernel log", "zh": "内核日志"},
    "connections": {"en": "connections", "zh": "网络连接"},
    "logs": {"en": "logs", "zh": "日志"},
    "signal": {"en": "signal", "zh": "信号"},
}
WHY: dict[str, Text] = {
    "broke": {"en": "this is a bug in nccl-triage ({error})", "zh": "这是 nccl-triage 的缺陷（{error}）"},
    "dead-pipe": {"en": "no process reads the pipe {path}", "zh": "没有进程读取管道 {path}"},
    "failed": {"en": "{error}", "zh": "{error}"},
    "late": {"en": "not ready within {seconds} s", "zh": "{seconds} 秒内没有完成"},
    "no-capability": {
        "en": "the container has no SYS_PTRACE; run this on the container's host, or start it with --cap-add=SYS_PTRACE",
        "zh": "容器没有 SYS_PTRACE；请在容器所在的主机上运行，或以 --cap-add=SYS_PTRACE 启动容器",
    },
    "no-connections": {"en": "none is visible", "zh": "看不到任何连接"},
    "no-dump": {"en": "no dump within {seconds} s of asking for one", "zh": "请求转储后 {seconds} 秒内没有出现"},
    "no-handler": {
        "en": "process {pid} does not handle {signal}, which would kill it",
        "zh": "进程 {pid} 没有处理 {signal}，发送会将其杀死",
    },
    "no-logs": {
        "en": "the ranks have no log file open; add its path when you diagnose again",
        "zh": "各 rank 没有打开日志文件；再次诊断时请加上日志的路径",
    },
    "no-pipe": {
        "en": "no pipe to ask for a dump; set TORCH_NCCL_DEBUG_INFO_PIPE_FILE before the next start",
        "zh": "没有可用来请求转储的管道；下次启动前请设置 TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
    },
    "no-program": {"en": "{program} is not installed", "zh": "没有安装 {program}"},
    "no-py-spy": {
        "en": "py-spy is not installed; run pip install py-spy, then this again",
        "zh": "没有安装 py-spy；请执行 pip install py-spy 后重试",
    },
    "no-python": {"en": "a rank is no Python program", "zh": "有 rank 不是 Python 程序"},
    "no-rank": {"en": "the ranks of the processes are not known", "zh": "不知道各进程的 rank"},
    "no-ras": {
        "en": "no answer at {address}; it takes NCCL 2.24 or later",
        "zh": "{address} 没有应答；需要 NCCL 2.24 或更高版本",
    },
    "no-start": {"en": "{error}", "zh": "{error}"},
    "ptrace": {
        "en": "the kernel does not permit it; run this as the job's user or as root",
        "zh": "内核不允许；请以作业的用户或 root 运行",
    },
    "ptrace-scope": {
        "en": "kernel.yama.ptrace_scope is {value}; run this as root",
        "zh": "kernel.yama.ptrace_scope 为 {value}；请以 root 运行",
    },
    "too-large": {"en": "{path} is too large ({size} bytes)", "zh": "{path} 过大（{size} 字节）"},
    "unreadable": {"en": "{path}: {error}", "zh": "{path}：{error}"},
}


def said(note: Mapping[str, Any], lang: str) -> str:
    """Return what could not be taken and why."""
    values = note.get("values")
    what, why = wording.unseen(WHAT, WHY, note, values if isinstance(values, dict) else {})
    return f"{what[lang]}: {why[lang]}"
