"""What a run shows: the checks in their order, the most certain first; the first that answers is the finding.

Who died of a signal, whose call differs from the others', who never came, which path the probe could not use: these are
facts of the experiment itself. What the ranks printed is read last, by the analyzer's own rules.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

from nccl_triage.verify.arrivals import late, never_entered, never_joined, slow, store_unreachable
from nccl_triage.verify.findings import OTHERWISE
from nccl_triage.verify.model import Finding, RankTrace
from nccl_triage.verify.view import View
from nccl_triage.verify.worker.ops import operation

#: Kinds of findings about paths that a collective can use, but badly.
POOR = frozenset({"path-lossy", "path-delayed"})

Check = Callable[[View], "Finding | None"]


def different_call(view: View) -> Finding | None:
    """The rank that issued another call than the others (or than the experiment asked for, when there is no majority)."""
    if operation(view.result.run.message.op).pair:
        return None
    first = [(trace, trace.calls[0]) for trace in view.traces if trace.calls]
    shapes = [(call["call"], str(call["message"])) for _, call in first]
    counts = Counter(shapes)
    if len(counts) < 2:
        return None
    common, number = counts.most_common(1)[0]
    if list(counts.values()).count(number) > 1:
        asked = operation(view.result.run.message.op).calls
        message = view.result.run.message
        wanted = (str([message.dtype, message.numel]), str(None))
        matching = [shape for shape in counts if shape[0] == asked and shape[1] in wanted]
        common = matching[0] if len(matching) == 1 else common
    odd = [trace for (trace, _), shape in zip(first, shapes, strict=True) if shape != common]
    other = next(shape for shape in shapes if shape != common)
    return view.finding(
        "different-call",
        odd,
        f"rank {{ranks}} calls {other[0]} {other[1]} where the others call {common[0]} {common[1]}",
        f"rank {{ranks}} 调用 {other[0]} {other[1]}，而其他 rank 调用 {common[0]} {common[1]}",
    )


#: Signatures of a watchdog that takes its process down.
_WATCHDOG = ("torch.watchdog", "torch.nccl2", "torch.comm_aborted", "torch.timeout_at_work")
_SIGNALS: dict[int, str] = {
    signal.SIGKILL: "killed",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "terminated",
    signal.SIGINT: "terminated",
}


def _watchdog_abort(view: View, trace: RankTrace) -> bool:
    """Tell whether SIGABRT is only how torch's watchdog ends a rank that waited too long (ProcessGroupNCCL.cpp)."""
    if trace.exit_code != -signal.SIGABRT or "entered" not in trace.times:
        return False
    told = any(str(symptom["signature"]).startswith(_WATCHDOG) for symptom in view.result.symptoms)
    return told or any("entered" not in other.times for other in view.traces)


def died_of_signal(view: View) -> Finding | None:
    """The rank that a signal ended before the parent stopped anything."""
    dead = [t for t in view.traces if t.exit_code is not None and t.exit_code < 0 and not t.killed]
    dead = [trace for trace in dead if not _watchdog_abort(view, trace)]
    if not dead:
        return None
    first = min(dead, key=lambda trace: trace.exited_at or 0.0)
    number = -(first.exit_code or 0)
    kind = _SIGNALS.get(number, "crashed")
    # Real-time signals have no name.
    name = next((known.name for known in signal.Signals if known == number), f"signal {number}")
    return view.finding(
        kind,
        [first],
        f"rank {{ranks}} ended by {name} at the stage after {first.stage!r}",
        f"rank {{ranks}} 在阶段 {first.stage!r} 之后被 {name} 终止",
        "by-hangup" if number == signal.SIGHUP else OTHERWISE,
    )


def own_root_error(view: View) -> Finding | None:
    """What the ranks' own logs establish, where that is no mere consequence of a lost peer."""
    own = view.own
    if own is None or own.status == "possible":
        return None
    if own.cause.startswith("network-") and view.paths:
        return None  # the probe names the pair
    if own.told_by_stages:
        return None  # the stages tell these better than the texts of the ranks that waited
    ranks = [trace for trace in view.traces if trace.rank in own.ranks]
    says = f"the ranks' own log speaks of {own.cause}: {own.line}"
    return Finding(
        own.cause,
        "own-log",
        {"en": says, "zh": f"各 rank 自身日志指向 {own.cause}：{own.line}"},
        view.slots(ranks),
        view.hosts(ranks) or own.hosts,
    )


def _paths_used(view: View) -> list[Finding]:
    used = {view.names[place] for place in view.result.run.places}
    return [found for found in view.paths if set(found.hosts) <= used]


def broken_path(view: View) -> Finding | None:
    """A path that the run needs and that the probe could not use."""
    if view.result.passed:
        return None
    return next((found for found in _paths_used(view) if found.kind not in POOR), None)


def poor_path(view: View) -> Finding | None:
    """A path that can be used, but badly: it counts although the collective passes."""
    if len(view.result.run.places) < 2:
        return None
    return next((found for found in _paths_used(view) if found.kind in POOR), None)


def wrong_data(view: View) -> Finding | None:
    """The ranks whose results differ from the closed form."""
    wrong = [t for t in view.traces if any(t.details.get(stage, {}).get("wrong") for stage in ("warm", "done"))]
    if not wrong:
        return None
    count = sum(trace.details.get("done", trace.details.get("warm", {})).get("wrong", 0) for trace in wrong)
    return view.finding(
        "wrong-data",
        wrong,
        f"{count} elements differ from the exact result on rank {{ranks}}",
        f"rank {{ranks}} 上有 {count} 个元素与精确结果不符",
    )


def _nobody(view: View, kind: str, en: str, zh: str) -> Finding:
    """Return a failure in which no rank stands out: between hosts it speaks for the network."""
    return view.finding(kind, [], en, zh, "between-hosts" if len(view.result.run.places) > 1 else OTHERWISE)


def all_waited(view: View) -> Finding | None:
    """Every rank entered in time, and the collective did not end within its limit."""
    traces = view.traces
    if view.result.passed or not all("entered" in trace.times for trace in traces):
        return None
    return _nobody(
        view,
        "collective-failed",
        "every rank entered the collective, and it did not complete",
        "所有 rank 都进入了集合操作，但它没有完成",
    )


def group_failed(view: View) -> Finding | None:
    """The ranks met at the store, and could not connect with one another."""
    if view.result.passed or view.result.stage != "group":
        return None
    return _nobody(
        view,
        "group-failed",
        "the ranks met at the store and could not connect with one another",
        "各 rank 已在 store 会合，但彼此无法建立连接",
    )


#: In the order in which they are asked.
CHECKS: tuple[Check, ...] = (
    different_call,
    died_of_signal,
    own_root_error,
    wrong_data,
    broken_path,
    never_entered,
    never_joined,
    store_unreachable,
    poor_path,
    late,
    slow,
    group_failed,
    all_waited,
)


def assess(view: View) -> Finding | None:
    """Return what a run shows to be wrong, or None."""
    return next((found for check in CHECKS if (found := check(view)) is not None), None)
