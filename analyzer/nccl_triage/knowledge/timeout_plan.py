"""A recommendation of timeouts as data: what a collective needs, what a model's phases need, how to set it."""

from __future__ import annotations

from typing import Any

from nccl_triage.knowledge import amounts, catalogue, timeouts
from nccl_triage.knowledge.entries import Text, pair
from nccl_triage.knowledge.timeouts import Assumptions, CollectiveTraffic

#: What to know, and what else to do, before a timeout is raised.
RISKS: tuple[Text, ...] = (
    {
        "en": "A longer timeout hides dead processes: a missing rank keeps all GPUs idle until it expires. "
        "Raise it only for a rank that is known to make progress.",
        "zh": "更长的超时会掩盖已死的进程：永远不来的 rank 会让所有 GPU 空等到超时。只有确知该 rank 仍在推进时才调大。",
    },
    {
        "en": "Keep the default group's timeout short, and wait for the long phase in a separate Gloo group: "
        "g = dist.new_group(backend='gloo', timeout=timedelta(hours=6)); dist.monitored_barrier(g) names the missing "
        "rank.",
        "zh": "保持默认进程组的超时较短，只在单独的 Gloo 组中等待长阶段："
        "g = dist.new_group(backend='gloo', timeout=timedelta(hours=6))；dist.monitored_barrier(g) 会指出缺席的 rank。",
    },
    {
        "en": "Do the long work before creating the group, on all ranks at once (sharded checkpoints), or in the "
        "background (torch.distributed.checkpoint.async_save).",
        "zh": "把耗时工作放到建组之前、由所有 rank 同时完成（分片检查点），或放到后台（torch.distributed.checkpoint.async_save）。",
    },
    {
        "en": "Set TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_PROPAGATE_ERROR=1, so that the next timeout names "
        "the missing rank and a failure stops the job at once.",
        "zh": "设置 TORCH_NCCL_TRACE_BUFFER_SIZE=2000 和 TORCH_NCCL_PROPAGATE_ERROR=1，使下次超时能指出缺席的 rank，"
        "并让失败立即结束作业。",
    },
)
#: From here on the work belongs outside of the group.
_TOO_LONG = 7200
TOO_LONG: Text = {
    "en": "More than two hours: move this phase out of the group instead of waiting for it there.",
    "zh": "超过两小时：应把这个阶段移出进程组，而不是让其他 rank 在组内等待。",
}


def _settings() -> dict[str, Any]:
    """Return who sets the timeouts of collectives, and how."""
    knobs = catalogue.knobs()
    return {
        "kind": "timeouts",
        "owners": [
            {"milliseconds": o.milliseconds, "program": o.program, **pair("who", o.who), "knob": o.knob}
            for o in catalogue.owners()
        ],
        "knobs": [
            {
                "id": knob.id,
                "title": knob.title,
                "write": knob.write,
                "unit": knob.unit,
                **pair("default", knob.default),
                "since": knob.since,
                **pair("note", knob.note),
            }
            for knob in knobs.values()
        ],
    }


def _assumptions(given: Assumptions) -> list[dict[str, Any]]:
    rows: list[tuple[str, str, Text]] = [
        ("--storage", f"{amounts.short(given.storage)} GB/s", {"en": "storage speed", "zh": "存储速度"}),
        (
            "--network",
            f"{amounts.short(given.network * 8)} Gbit/s",
            {"en": "network speed of one rank", "zh": "单个 rank 的网络速度"},
        ),
        (
            "--weight-bytes",
            f"{amounts.short(given.weight_bytes)} B",
            {"en": "bytes per weight (2: bf16, fp16)", "zh": "每个权重的字节数（2：bf16、fp16）"},
        ),
        (
            "--state-bytes",
            f"{amounts.short(given.state_bytes)} B",
            {
                "en": "bytes per parameter in a checkpoint (14: bf16 weight, fp32 copy, two fp32 Adam moments)",
                "zh": "检查点中每个参数的字节数（14：bf16 权重、fp32 副本、Adam 的两个 fp32 动量）",
            },
        ),
        (
            "--compile",
            f"{amounts.short(given.compile)} s",
            {"en": "compiling (not computed)", "zh": "编译时间，非计算得出"},
        ),
        (
            "--factor",
            amounts.short(given.factor),
            {"en": "safety factor for the longest phase", "zh": "对最长阶段的余量倍数"},
        ),
    ]
    return [{"option": option, "value": value, **pair("what", what)} for option, value, what in rows]


def _phases(given: Assumptions) -> dict[str, Any]:
    seconds = timeouts.recommended(given)
    return {
        "parameters": given.parameters,
        "phases": [
            {
                "id": phase.id,
                **pair("title", phase.title),
                "seconds": round(phase.seconds, 1),
                **pair("shown", amounts.duration(phase.seconds)),
                "sum": phase.sum or None,
            }
            for phase in timeouts.phases(given)
        ],
        "recommended_seconds": seconds,
        **pair("recommended", amounts.duration(seconds)),
        **pair("warning", TOO_LONG if seconds > _TOO_LONG else None),
        "assumptions": _assumptions(given),
    }


def _collective(message: CollectiveTraffic, bandwidth: float, limit: float | None) -> dict[str, Any]:
    slow, given = message.seconds(timeouts.SLOW), message.seconds(bandwidth)
    return {
        "op": message.op,
        "numel": message.numel,
        "world_size": message.world,
        "dtype": message.dtype,
        "bytes": message.bytes,
        "size": amounts.size(message.bytes),
        "factor": round(message.factor, 4),
        "bandwidth": bandwidth,
        "seconds": round(given, 4),
        **pair("shown", amounts.duration(given)),
        "slow_bandwidth": timeouts.SLOW,
        "slow_seconds": round(slow, 4),
        **pair("slow_shown", amounts.duration(slow)),
        "explains": None if limit is None else slow >= limit,
        "limit": limit,
    }


def plan(
    given: Assumptions | None = None,
    message: CollectiveTraffic | None = None,
    limit: float | None = None,
    bandwidth: float = 1.25,
) -> dict[str, Any]:
    """Return the page of timeouts; without a model and a collective it tells who sets them and how.

    ``limit`` is a timeout in seconds that the collective is compared with, ``bandwidth`` is in GB/s.
    """
    page = _settings()
    page["collective"] = _collective(message, bandwidth, limit) if message is not None else None
    page["model"] = _phases(given) if given is not None else None
    seconds = timeouts.recommended(given) if given is not None else None
    for row, knob in zip(page["knobs"], catalogue.knobs().values(), strict=True):
        row["set"] = timeouts.written(knob, seconds)
    page["risks"] = [pair("says", text) for text in RISKS]
    return page
