"""Who did not come to the others, came late, or keeps them waiting: at the store, at the collective, at each iteration."""

from __future__ import annotations

import statistics
from dataclasses import replace

from nccl_triage.verify.model import Finding
from nccl_triage.verify.view import View
from nccl_triage.verify.worker.ops import operation

#: Seconds by which a rank must come later than the median of the others before it is called late.
LATE = 1.0
#: A rank is slow when the others wait for it this many times longer than it waits for them, and this long at least.
SLOW_RATIO, SLOW_SECONDS = 3.0, 0.15


def never_joined(view: View) -> Finding | None:
    """The rank that never came to the store while the others waited there."""
    absent = [
        t
        for t in view.traces
        if "store" not in t.times and t.error is None and t.stage in ("started", "start", "imported", "device")
    ]
    if (
        not absent
        or len(absent) == len(view.traces)
        or view.result.stage not in ("start", "imported", "device", "store")
    ):
        return None
    return view.finding(
        "never-joined",
        absent,
        "rank {ranks} never joined the store; the others waited for it",
        "rank {ranks} 从未加入 store，其他 rank 一直在等待",
    )


def store_unreachable(view: View) -> Finding | None:
    """The ranks that could not reach the store of rank 0."""
    failed = [t for t in view.traces if t.rank and t.error is not None and "store" not in t.times]
    if not failed or view.result.stage != "store":
        return None
    found = view.finding(
        "store-unreachable",
        failed,
        "rank {ranks} could not join the store on the host of rank 0",
        "rank {ranks} 无法连接 rank 0 主机上的 store",
    )
    return replace(found, hosts=view.hosts([view.traces[0], *failed]))


def never_entered(view: View) -> Finding | None:
    """The rank that did not come to the collective while others waited in it."""
    entered = [trace for trace in view.traces if "entered" in trace.times]
    silent = [t for t in view.traces if "group" in t.times and "entered" not in t.times and t.error is None]
    if not entered or not silent:
        return None
    stopped = [trace for trace in silent if trace.state in ("T", "t")]
    left = [trace for trace in silent if trace.exit_code == 0]
    if stopped:
        return view.finding(
            "stopped",
            stopped,
            "rank {ranks} is stopped (state T) before the collective in which the others wait",
            "rank {ranks} 的进程处于停止状态（T），其他 rank 在集合操作中等待它",
        )
    if left:
        return view.finding(
            "left",
            left,
            "rank {ranks} exited with code 0 before the collective in which the others wait",
            "rank {ranks} 在集合操作之前以退出码 0 离开",
        )
    return view.finding(
        "absent",
        silent,
        "rank {ranks} never entered the collective in which the others wait",
        "rank {ranks} 从未进入其他 rank 正在等待的集合操作",
    )


def late(view: View) -> Finding | None:
    """The rank that came to the collective much later than the others."""
    times = {trace.rank: trace.times["entered"] for trace in view.traces if "entered" in trace.times}
    if len(times) < 2:
        return None
    usual = statistics.median_low(times.values())
    behind = [trace for trace in view.traces if times.get(trace.rank, usual) - usual > LATE]
    if not behind:
        return None
    gap = max(times.values()) - usual
    return view.finding(
        "late",
        behind,
        f"rank {{ranks}} entered the collective {gap:.1f} s after the others",
        f"rank {{ranks}} 比其他 rank 晚 {gap:.1f} 秒进入集合操作",
    )


def slow(view: View) -> Finding | None:
    """The rank for which the others wait in every iteration: it alone spends no time in the collective."""
    medians = {t.rank: t.details["done"]["median"] for t in view.traces if t.done and t.details["done"].get("median")}
    if len(medians) < 2 or not operation(view.result.run.message.op).symmetric:
        return None
    ordered = sorted(medians, key=lambda rank: medians[rank])
    shortest, next_one = medians[ordered[0]], medians[ordered[1]]
    if next_one - shortest < SLOW_SECONDS or next_one < SLOW_RATIO * shortest:
        return None
    culprit = [trace for trace in view.traces if trace.rank == ordered[0]]
    return view.finding(
        "slow",
        culprit,
        f"the others wait {next_one:.2f} s an iteration for rank {{ranks}}, which waits {shortest:.2f} s for them",
        f"其他 rank 每次迭代等待 rank {{ranks}} {next_one:.2f} 秒，而它只等待 {shortest:.2f} 秒",
    )
