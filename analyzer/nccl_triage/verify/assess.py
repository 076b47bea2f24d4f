"""What a run shows: the checks in order of certainty: the first that finds something gives the finding.

The checks look for ranks that died of a signal, a call that differs from the others', ranks that never came, came late
or keep the others waiting (at the store, at the collective, at each iteration), unusable paths, and what the rules find
in the ranks' own logs.
"""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import InputError
from nccl_triage.verify import transport
from nccl_triage.verify.assessed_run import AssessedRun, OwnDiagnosis
from nccl_triage.verify.collective_run import RankTrace, RunFinding, RunResult
from nccl_triage.verify.decide import OTHERWISE, cause_of
from nccl_triage.verify.network_findings import LOG_PORT, ONE_WAY
from nccl_triage.verify.recorded_calls import DIFFERENT, different_recorded
from nccl_triage.verify.stragglers import late, slow
from nccl_triage.verify.worker.ops import operation

#: The most symptoms kept of a run.
_KEPT = 12


def diagnose_own_logs(result: RunResult, rules: RuleSet) -> OwnDiagnosis | None:
    """Diagnose the logs of a run that failed, and keep its symptoms and the transport of any run in the result.

    Returns None when the rules name no cause.
    """
    from nccl_triage.api import diagnose

    if result.folder is not None and result.run.backend == "nccl":
        result.transport = transport.read(Path(result.folder), rules)
    if result.folder is None or result.passed or result.own_failure is not None:
        return None
    with contextlib.suppress(InputError):
        document = diagnose([result.folder], rules=rules, model=None).to_dict()
        result.symptoms = [_symptom(entry, result.folder) for entry in document["symptoms"][:_KEPT]]
        if document["verdict"] == "diagnosed":
            return _own(document["diagnoses"][0], rules)
    return None


def _symptom(entry: dict[str, Any], folder: str) -> dict[str, Any]:
    kept = {name: entry[name] for name in ("signature", "role", "meaning", "count", "ranks")}
    return {**kept, "path": str(entry["first"]["path"]).removeprefix(f"{folder}/"), "line": entry["first"]["line"]}


def _own(best: dict[str, Any], rules: RuleSet) -> OwnDiagnosis:
    culprits = best["culprits"]
    return OwnDiagnosis(
        cause=best["cause"],
        status=best["status"],
        ranks=tuple(sorted({c["rank"] for c in culprits if c["rank"] is not None})),
        hosts=tuple(dict.fromkeys(c["host"] for c in culprits if c["host"])),
        line=best["evidence"][0]["text"][:300] if best["evidence"] else "",
        told_by_stages=rules.causes[best["cause"]].experiment.told_by_stages,
    )


def never_joined(view: AssessedRun) -> RunFinding | None:
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


def store_unreachable(view: AssessedRun) -> RunFinding | None:
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


def never_entered(view: AssessedRun) -> RunFinding | None:
    """The rank that did not come to the collective while others waited in it, or left before its end."""
    entered = [trace for trace in view.traces if "entered" in trace.times]
    gone = [trace for trace in entered if trace.exit_code == 0 and not trace.done and trace.error is None]
    if gone and len(gone) < len(view.traces):
        return view.finding(
            "left",
            gone,
            "rank {ranks} exited with code 0 in the midst of the collectives in which the others wait",
            "rank {ranks} 在其他 rank 仍在等待的集合操作中途以退出码 0 退出",
        )
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
            "rank {ranks} 在集合操作之前以退出码 0 退出",
        )
    return view.finding(
        "absent",
        silent,
        "rank {ranks} never entered the collective in which the others wait",
        "rank {ranks} 从未进入其他 rank 正在等待的集合操作",
    )


#: Kind of a finding that is what the ranks' own logs say, whichever cause that is.
OWN_LOG = "own-log"
#: Kinds of findings about paths that work badly.
POOR = frozenset({"path-lossy", "path-delayed"})

Check = Callable[[AssessedRun], "RunFinding | None"]


def different_call(view: AssessedRun) -> RunFinding | None:
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
        f"rank {{ranks}} calls {other[0]} {other[1]} while the others call {common[0]} {common[1]}",
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


def _watchdog_abort(view: AssessedRun, trace: RankTrace) -> bool:
    """Tell whether a SIGABRT came from torch's watchdog, which ends a rank that waited too long (ProcessGroupNCCL.cpp)."""
    if trace.exit_code != -signal.SIGABRT or "entered" not in trace.times:
        return False
    told = any(str(symptom["signature"]).startswith(_WATCHDOG) for symptom in view.result.symptoms)
    return told or any("entered" not in other.times for other in view.traces)


def _said_why(view: AssessedRun, trace: RankTrace) -> bool:
    """Tell whether a rank aborted itself after its log had said of what: it is the victim of that, not the culprit."""
    own = view.own
    if own is None or own.status == "possible" or own.told_by_stages:
        return False
    return own.cause != cause_of("crashed") and trace.exit_code == -signal.SIGABRT


def died_of_signal(view: AssessedRun) -> RunFinding | None:
    """The rank that a signal ended before the parent stopped anything."""
    dead = [t for t in view.traces if t.exit_code is not None and t.exit_code < 0 and not t.killed]
    dead = [trace for trace in dead if not (_watchdog_abort(view, trace) or _said_why(view, trace))]
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
        f"rank {{ranks}} was stopped by {name} at the stage after {first.stage!r}",
        f"rank {{ranks}} 在阶段 {first.stage!r} 之后被 {name} 终止",
        "by-hangup" if number == signal.SIGHUP else OTHERWISE,
    )


def own_root_error(view: AssessedRun) -> RunFinding | None:
    """The cause that the ranks' own logs establish, unless it only follows from a lost peer."""
    own = view.own
    if own is None or own.status == "possible":
        return None
    if own.cause.startswith("network-") and view.paths:
        return None  # the probe names the pair
    if own.told_by_stages:
        return None  # the stages tell these better than the texts of the ranks that waited
    # A rank that stops over what another one sent is the one that tells, and the other one's call looks right to itself.
    blamed = () if own.cause == cause_of(DIFFERENT) else own.ranks
    ranks = [trace for trace in view.traces if trace.rank in blamed]
    says = f"the ranks' own log points to {own.cause}: {own.line}"
    return RunFinding(
        own.cause,
        OWN_LOG,
        {"en": says, "zh": f"各 rank 自身日志指向 {own.cause}：{own.line}"},
        view.slots(ranks),
        view.hosts(ranks) or own.hosts,
    )


def _paths_used(view: AssessedRun) -> list[RunFinding]:
    used = {view.names[place] for place in view.result.run.places}
    return [found for found in view.paths if set(found.hosts) <= used]


def broken_path(view: AssessedRun) -> RunFinding | None:
    """A path that the run needs and that the probe could not use.

    Gloo may pass although only one of two hosts can connect to the other, where NCCL, for which it stands, would fail.
    """
    found = [path for path in _paths_used(view) if path.kind not in POOR and path.kind != LOG_PORT]
    if view.result.passed:
        found = [path for path in found if path.kind == ONE_WAY and view.result.run.backend == "gloo"]
    return found[0] if found else None


def poor_path(view: AssessedRun) -> RunFinding | None:
    """A path that works badly, which counts although the collective passes."""
    if len(view.result.run.places) < 2:
        return None
    return next((found for found in _paths_used(view) if found.kind in POOR), None)


def wrong_data(view: AssessedRun) -> RunFinding | None:
    """The ranks whose results differ from the closed form."""
    wrong = [t for t in view.traces if any(t.details.get(stage, {}).get("wrong") for stage in ("warm", "done"))]
    if not wrong:
        return None
    count = sum(trace.details.get("done", trace.details.get("warm", {})).get("wrong", 0) for trace in wrong)
    return view.finding(
        "wrong-product" if view.result.run.alone else "wrong-data",
        wrong,
        f"{count} elements differ from the exact result on rank {{ranks}}",
        f"rank {{ranks}} 上有 {count} 个元素与精确结果不符",
        OTHERWISE if view.result.run.device == "cuda" else "on-cpu",
    )


def _nobody(view: AssessedRun, kind: str, en: str, zh: str) -> RunFinding:
    """Return a failure in which no rank stands out; between hosts it is evidence for the network."""
    return view.finding(kind, [], en, zh, "between-hosts" if len(view.result.run.places) > 1 else OTHERWISE)


def never_finished(view: AssessedRun) -> RunFinding | None:
    """The ranks that did not finish what they had to do alone."""
    stuck = [trace for trace in view.traces if not trace.done]
    if not stuck:
        return None
    return view.finding(
        "never-finished",
        stuck,
        f"rank {{ranks}} did not finish its own computation (the last stage is {stuck[0].stage!r})",
        f"rank {{ranks}} 未能完成自身的计算（最后阶段为 {stuck[0].stage!r}）",
    )


def all_waited(view: AssessedRun) -> RunFinding | None:
    """Every rank entered in time, and the collective did not end within its limit."""
    traces = view.traces
    if view.result.passed or not all("entered" in trace.times for trace in traces):
        return None
    return _nobody(
        view,
        "collective-failed",
        "every rank entered the collective, but it did not complete",
        "所有 rank 都进入了集合操作，但它没有完成",
    )


def group_failed(view: AssessedRun) -> RunFinding | None:
    """The ranks met at the store, and could not connect with one another."""
    if view.result.passed or view.result.stage != "group":
        return None
    return _nobody(
        view,
        "group-failed",
        "the ranks met at the store but could not connect to each other",
        "各 rank 已在 store 会合，但彼此无法建立连接",
    )


#: In the order in which they are asked.
CHECKS: tuple[Check, ...] = (
    different_call,
    different_recorded,
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


#: Of a run in which every rank works alone.
ALONE: tuple[Check, ...] = (died_of_signal, own_root_error, wrong_data, never_finished, slow)


def assess(view: AssessedRun) -> RunFinding | None:
    """Return what a run shows to be wrong, or None; the verifier's own failure shows nothing."""
    if view.result.own_failure is not None:
        return None
    checks = ALONE if view.result.run.alone else CHECKS
    return next((found for check in checks if (found := check(view)) is not None), None)
