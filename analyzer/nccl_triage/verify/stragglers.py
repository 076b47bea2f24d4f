"""The checks of a run for ranks that come late, compute slowly, or keep the others waiting."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from nccl_triage.verify.assessed_run import AssessedRun
from nccl_triage.verify.collective_run import RankTrace, RunFinding
from nccl_triage.verify.outliers import above, below, others
from nccl_triage.verify.worker.ops import operation

#: A rank is late when it comes to the collective this many seconds after the others, and takes this many times longer.
LATE, LATE_RATIO = 1.0, 3.0
#: A rank is slow when the others wait for it this many times longer than it waits for them, and this long at least.
SLOW_RATIO, SLOW_SECONDS = 3.0, 0.15
#: ... or when its own work takes this many times longer, and this much longer at least: the cores of a host are shared
#: and noisy, a GPU is neither.
WORK = {"cpu": (2.5, 0.04), "cuda": (1.5, 0.0005)}

#: The parts of a rank's own work (``worker.compute``).
PARTS = ("matmul_s", "copy_s")


def late(view: AssessedRun) -> RunFinding | None:
    """The rank that came to the collective much later than the others, once the group was made."""
    entered = {trace.rank: trace.times["entered"] for trace in view.traces if "entered" in trace.times}
    if len(entered) < 2:
        return None
    made = max((trace.times["group"] for trace in view.traces if "group" in trace.times), default=0.0)
    delays = {rank: max(0.0, value - made) for rank, value in entered.items()}
    behind = above(delays, LATE_RATIO, LATE)
    if not behind:
        return None
    gap = delays[behind[0]] - others(delays, behind[0])
    return view.finding(
        "late",
        [trace for trace in view.traces if trace.rank in behind],
        f"rank {{ranks}} entered the collective {gap:.1f} s after the others",
        f"rank {{ranks}} 比其他 rank 晚 {gap:.1f} 秒进入集合操作",
    )


def slow(view: AssessedRun) -> RunFinding | None:
    """The rank whose own work takes long, or for which the others wait in every iteration while it waits for nobody."""
    return _slow_work(view) or _waited_for(view)


def _waited_for(view: AssessedRun) -> RunFinding | None:
    waits = {t.rank: t.details["done"]["median"] for t in view.traces if t.done and t.details["done"].get("median")}
    if len(waits) < 2 or not operation(view.result.run.message.op).symmetric:
        return None
    culprits = below(waits, SLOW_RATIO, SLOW_SECONDS)
    if not culprits:
        return None
    own, usual = waits[culprits[0]], others(waits, culprits[0])
    return view.finding(
        "slow",
        [trace for trace in view.traces if trace.rank in culprits],
        f"the others wait {usual:.2f} s per iteration for rank {{ranks}}, which waits {own:.2f} s for them",
        f"其他 rank 每次迭代等待 rank {{ranks}} {usual:.2f} 秒，而它只等待 {own:.2f} 秒",
    )


def _slow_work(view: AssessedRun) -> RunFinding | None:
    told = [trace for trace in view.traces if work_of(trace)]
    buses = Counter(trace.details.get("device", {}).get("bus") for trace in told)
    if any(bus is not None and count > 1 for bus, count in buses.items()):
        return None  # ranks that share a GPU take its time from each other
    for names, values in _comparable(told):
        ratio, least = WORK[names[0]]
        culprits = above(values, ratio, least)
        if culprits:
            usual = others(values, culprits[0])
            return view.finding(
                "slow",
                [trace for trace in view.traces if trace.rank in culprits],
                f"rank {{ranks}} takes {1000 * values[culprits[0]]:.3g} ms for {names[1]} of its own, "
                f"the others {1000 * usual:.3g} ms",
                f"rank {{ranks}} 完成自身的{names[2]}耗时 {1000 * values[culprits[0]]:.3g} 毫秒，"
                f"其他 rank 为 {1000 * usual:.3g} 毫秒",
            )
    return None


def work_of(trace: RankTrace) -> dict[str, float]:
    """Return the seconds of a rank's own work by its parts; empty where it did not tell them, or not as numbers."""
    told = trace.details["done"].get("compute") if trace.done else None
    parts = {}
    for name in PARTS:
        value = told.get(name) if isinstance(told, dict) else None
        if not isinstance(value, (int, float)) or not 0 < value < math.inf:
            return {}
        parts[name] = float(value)
    return parts


def _comparable(told: list[RankTrace]) -> Iterator[tuple[tuple[str, str, str], dict[int, float]]]:
    """Yield the kind of device and the name of the work, and the seconds of the ranks whose devices are of one model."""
    models: dict[tuple[str, str], list[RankTrace]] = {}
    for trace in told:
        about = trace.details.get("device", {})
        models.setdefault((str(about.get("device", "cpu")), str(about.get("name"))), []).append(trace)
    for (device, _), traces in models.items():
        work = {trace.rank: work_of(trace) for trace in traces}
        if device == "cuda":
            for part, en, zh in (("matmul_s", "a matrix multiplication", "矩阵乘法"), ("copy_s", "a copy", "内存拷贝")):
                yield (device, en, zh), {rank: parts[part] for rank, parts in work.items()}
        else:
            yield ("cpu", "a computation", "计算"), {rank: sum(parts.values()) for rank, parts in work.items()}
