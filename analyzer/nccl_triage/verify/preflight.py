"""Checks before a job starts: whether hosts are alike, reach each other, and run each collective correctly and fast.

The same agents, probes, runs and checks as a verification, without a diagnosis to put to the test. Hosts and devices are
screened one by one and in pairs first, so that the one that stands out is named.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nccl_triage._version import __version__
from nccl_triage.engine.schema import Experiment, RuleSet
from nccl_triage.hosts.interfaces import gloo_choice
from nccl_triage.verify import api, previous, record, session, variables
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.collective_run import SEVERAL_HOSTS, CollectiveMessage, CollectiveRun, Deadlines
from nccl_triage.verify.judge import Trial
from nccl_triage.verify.means import Means
from nccl_triage.verify.pair_screening import PairScreening, bisected
from nccl_triage.verify.placement import Request, gpu_env, slots_of
from nccl_triage.verify.plan import Plan, Planned, backend_of
from nccl_triage.verify.preflight_check import PreflightCheck, PreflightSuspect, check, who
from nccl_triage.verify.question import Question, SuspectedCause
from nccl_triage.verify.reachability import BROKEN
from nccl_triage.verify.screening import Screening, gpu_of, only, says_of
from nccl_triage.verify.trials import Session
from nccl_triage.verify.worker.ops import OPERATIONS

#: Elements of the small and the middle message of every operation, and of the one that is timed (bytes: 4 and 2 each).
SMALL, MIDDLE, LARGE_CPU, LARGE_GPU = 1 << 10, 1 << 18, 1 << 20, 1 << 26
#: Bytes of the sizes of a sweep: 8 B to 128 MiB, each twice the one before.
SWEEP = tuple(8 << power for power in range(25))
#: /dev/shm below this and fewer open files than this make trouble sooner or later (NCCL's and PyTorch's own advice).
SHM_BYTES, OPEN_FILES = 1 << 30, 65536
#: Facts that must be the same on all hosts.
ALIKE = ("torch", "nccl", "driver", "python")


def gpu_checks(means: Means, backend: str) -> Iterator[PreflightCheck]:
    """Tell whether the driver reports faults, and whether there are idle GPUs."""
    for place, fault in means.faults:
        says = means.named(place, {"en": fault.reason_en, "zh": fault.reason_zh})
        yield check("gpu-health", "failed", says["en"], says["zh"])
    why = means.why_no_nccl(range(len(means.places)))
    if why is not None:
        yield check("gpus", "failed" if backend == "nccl" else "skipped", why["en"], why["zh"])
    elif means.gpus:
        counts = " + ".join(str(len(host.gpus)) for host in means.hosts)
        yield check("gpus", "ok", f"{counts} idle x {means.gpu_name}", f"{counts} 块空闲 {means.gpu_name}")


def host_checks(names: Sequence[str], facts: Sequence[dict[str, Any]]) -> Iterator[PreflightCheck]:
    """Compare the hosts' versions and look at limits that are too small."""
    for name in ALIKE:
        seen = {host: entry.get(name) for host, entry in zip(names, facts, strict=True)}
        values = set(seen.values())
        if len(values) > 1:
            listed = ", ".join(f"{host} {value}" for host, value in seen.items())
            yield check(f"same-{name}", "failed", f"{name} differs: {listed}", f"{name} 不一致：{listed}")
        elif None not in values:
            yield check(f"same-{name}", "ok", f"{name} {values.pop()} everywhere", f"各主机 {name} 一致")
    for host, entry in zip(names, facts, strict=True):
        shm, files = (entry.get("shm") or {}).get("size"), (entry.get("limits") or {}).get("nofile", -1)
        if shm is not None and shm < SHM_BYTES:
            yield check(
                "shm", "warning", f"{host}: /dev/shm has {shm >> 20} MiB", f"{host}：/dev/shm 只有 {shm >> 20} MiB"
            )
        if 0 <= files < OPEN_FILES:
            yield check("nofile", "warning", f"{host}: {files} open files at most", f"{host}：最多打开 {files} 个文件")


def network_checks(made: Session, run: CollectiveRun) -> Iterator[PreflightCheck]:
    """Tell what facts and probe show of the interfaces and paths that a realised run takes."""
    if len(made.names) < 2:
        yield check("reachability", "skipped", "one host: no path to probe", "只有一台主机，无需探测")
        return
    found = made.findings(run)
    if run.backend == "gloo":
        yield from loopback_checks(made.names, made.cluster.facts)
    for finding in found:
        yield PreflightCheck(f"path {finding.kind}", "failed", dict(finding.says))
    others = sorted({(p.target, p.interface) for p in made.report.matrix.paths if p.state in BROKEN})
    if others and not found:
        listed = ", ".join(f"{interface} of {host}" for host, interface in others[:6])
        yield check(
            "other-interfaces",
            "warning",
            f"not reachable from every host: {listed}; NCCL may use them unless NCCL_SOCKET_IFNAME names others",
            f"并非各处都能访问：{listed}；除非 NCCL_SOCKET_IFNAME 另行指定，NCCL 可能会使用它们",
        )
    if not found:
        count = sum(path.usable for path in made.report.matrix.paths)
        yield check(
            "reachability",
            "ok",
            f"{count} paths between {len(made.names)} hosts",
            f"{len(made.names)} 台主机之间 {count} 条通路正常",
        )


def loopback_checks(names: Sequence[str], facts: Sequence[Mapping[str, Any]]) -> Iterator[PreflightCheck]:
    """Warn of hosts whose own name is a loopback address: our runs choose an interface, a job of Gloo would not."""
    for host, entry in zip(names, facts, strict=True):
        taken = gloo_choice(entry["interfaces"], None, entry["own_addresses"])
        if taken and all(one["loopback"] for one in taken):
            address = taken[0]["address"]
            yield check(
                "own-name",
                "warning",
                f"{host}: its own name stands for {address}, which no other host reaches; Gloo takes it unless "
                "GLOO_SOCKET_IFNAME names an interface",
                f"{host}：主机名解析为 {address}，其他主机无法访问；除非 GLOO_SOCKET_IFNAME 指定接口，否则 Gloo 会使用该地址",
            )


def collectives(backend: str, world: int) -> CollectiveRun:
    """Return the run with every operation at two sizes, and a large all-reduce whose time counts."""
    large = LARGE_GPU if backend == "nccl" else LARGE_CPU
    more = tuple(
        CollectiveMessage(name, numel, dtype)
        for name, row in OPERATIONS.items()
        if name != "INIT" and (world > 1 or not row.pair)
        for numel in (SMALL, MIDDLE)
        for dtype in ("float32", "bfloat16")
    )
    return CollectiveRun(
        label="preflight",
        slots=(),
        message=CollectiveMessage("ALLREDUCE", large, "bfloat16" if backend == "nccl" else "float32"),
        backend=backend,
        device="cuda" if backend == "nccl" else "cpu",
        more=more,
    )


def collective_checks(
    trial: Trial | None, run: CollectiveRun, written: dict[str, Any] | None
) -> Iterator[PreflightCheck]:
    """Tell which operations gave right results, who stands out, and whether the bandwidth is in its band."""
    if trial is None or written is None:
        yield check(
            "collectives",
            "skipped",
            "no time is left, or the hosts that could run them cannot talk to each other",
            "时间已用完，或可用的主机之间无法通信",
        )
        return
    result = trial.result
    parts = [trace.parts for trace in result.ranks.values()]
    done = min((len(found) for found in parts), default=0)
    wrong = sorted({part["op"] for found in parts for part in found if part["wrong"]})
    if wrong:
        yield check("results", "failed", f"wrong results: {', '.join(wrong)}", f"结果错误：{', '.join(wrong)}")
    if result.passed and trial.finding is None:
        total = 1 + len(run.more)
        yield check(
            "collectives",
            "ok",
            f"{total} collectives on {run.world} ranks, all correct",
            f"{run.world} 个 rank 上 {total} 次集合操作全部正确",
        )
    else:
        step = run.more[done].op if result.stage == "done" and done < len(run.more) else run.message.op
        says = says_of(trial)
        yield check("collectives", "failed", f"{step}: {says['en']}", f"{step}：{says['zh']}")
    expected = written.get("expected") or {}
    if expected.get("state") == "below":
        yield check("bandwidth", "warning", expected["says"], expected["says_zh"])
    elif written.get("bandwidth"):
        rate = written["bandwidth"]["busbw"]
        note = expected.get("says") or ""
        yield check(
            "bandwidth",
            "ok",
            f"{rate:.3g} GB/s bus bandwidth. {note}".strip(),
            f"总线带宽 {rate:.3g} GB/s。{expected.get('says_zh') or ''}",
        )


def preflight(
    settings: api.Settings,
    rules: RuleSet,
    *,
    sweep: bool = False,
    say: Callable[[Mapping[str, str]], None] = lambda text: None,
    faults: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Carry out all checks and return the document; raises UsageError when hosts cannot be reached.

    With ``sweep`` the all-reduce is timed at every size of ``SWEEP``, too.
    """
    started = time.monotonic()
    nobody = SuspectedCause("", "possible", 0.0)
    request = Request(Question(()), nobody, Experiment(kind="replay"), settings.options.world)
    earlier = previous.read(settings.previous)
    with (
        session.lock(wait=settings.wait),
        session.workspace(settings.workdir, force=settings.force) as folder,
        api.launcher_of(settings, request.question, folder) as launcher,
        Cluster(launcher) as cluster,
    ):
        say({"en": "asking the hosts", "zh": "正在询问各主机"})
        means = api.ask_hosts(cluster, settings)
        backend = backend_of(request, means, settings.options) or "nccl"
        if backend == "nccl":
            means = api.reserved(cluster, means, range(len(cluster.places)))
        checks = list(gpu_checks(means, backend))
        made = Plan(request.question, means, settings.options, ())
        live = Session(cluster, made, rules, folder, say=say, faults=faults)
        live.prepare({backend}, len(cluster.places) > 1)
        checks += host_checks(live.names, cluster.facts)
        checks += [PreflightCheck("torch", "failed", dict(problem)) for problem in live.report.problems]
        runs: list[dict[str, Any]] = []
        suspects: list[PreflightSuspect] = []
        measured: dict[str, Any] = {}
        if not live.report.problems and not any(entry.state == "failed" and entry.id == "gpus" for entry in checks):
            run, planned = _everything(made, request, backend)
            run = replace(run, sweep=SWEEP if sweep else ())
            checks += network_checks(live, live.realised(run))
            screening = Screening(live, replace(run, more=(), sweep=()), planned)
            trial, run = _screened(screening, run)
            runs = [record.run_record(trial, live.names, cluster.facts, "", earlier)] if trial is not None else []
            checks += screening.checks
            checks += collective_checks(trial, run, runs[0] if runs else None)
            suspects, measured = screening.suspects, screening.measured
        paths = [path.to_dict() for path in live.report.matrix.paths if path.state != "reachable"]
        hosts = [_host(name, facts) for name, facts in zip(live.names, cluster.facts, strict=True)]
    return {
        "schema_version": 1,
        "tool": {"name": "nccl-triage", "version": __version__},
        "verdict": "not-ready" if any(check.state == "failed" for check in checks) else "ready",
        "checks": [check.to_dict() for check in checks],
        "suspects": [suspect.to_dict() for suspect in suspects],
        "measured": measured,
        "runs": runs,
        "reachability": paths,
        "hosts": hosts,
        "seconds": round(time.monotonic() - started, 2),
    }


def _everything(made: Plan, request: Request, backend: str) -> tuple[CollectiveRun, Planned]:
    """Return the run of every operation on all ranks, and its limits."""
    slots = slots_of(request, made.means, backend)
    run = replace(
        collectives(backend, len(slots)),
        slots=slots,
        env=variables.of_user(dict(_own_variables())),
        per_rank_env=gpu_env(slots, made.means),
    )
    limits = (SEVERAL_HOSTS if len(made.means.places) > 1 else Deadlines()).scaled(made.options.timeout_factor)
    return run, Planned(request.suspect, request.experiment, run, None, deadlines=limits)


def _screened(screening: Screening, run: CollectiveRun) -> tuple[Trial | None, CollectiveRun]:
    """Screen devices, hosts and pairs, then run every operation on the hosts that are sound; returns that run."""
    screening.carry_out()
    pairs = PairScreening(screening)
    pairs.carry_out()
    sound = screening.places
    if screening.failed:
        run = only(run, sound)
    if len(run.slots) < 2 <= screening.base.world or pairs.cut(sound):
        return None, run
    trial = screening.live.trial(run, 0, screening.planned)
    finding = trial.finding if trial is not None else None
    if trial is not None and trial.fails and not screening.suspects:
        if finding is not None and (finding.ranks or finding.hosts):
            screening.suspects += _named_by(trial, screening.live.names)
        elif len(run.places) > 2:
            bisected(screening, run, says_of(trial))
    return trial, run


def _named_by(trial: Trial, names: Sequence[str]) -> Iterator[PreflightSuspect]:
    """Yield the ranks, or the hosts, that the finding of a run names."""
    finding = trial.finding
    assert finding is not None
    for trace in trial.result.ranks.values():
        if trace.slot.number in finding.ranks:
            yield PreflightSuspect(
                (names[trace.slot.place],), "collectives", dict(finding.says), trace.slot.number, gpu_of(trace)
            )
    if not finding.ranks:
        yield PreflightSuspect(finding.hosts, "collectives", dict(finding.says))


def _host(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Return a host's facts; of its variables only those that no secret hides in."""
    return {"name": name, **facts, "env": variables.of_user(facts.get("env") or {})}


def _own_variables() -> Iterator[tuple[str, str]]:
    """Yield the variables of this process that a job started from here would have."""
    for name, value in os.environ.items():
        if name.startswith(("NCCL_", "GLOO_")):
            yield name, value


def _who(suspect: Mapping[str, Any], chinese: bool) -> str:
    return who(suspect["hosts"], suspect["rank"], suspect["gpu"], chinese)


def _sweep_lines(sizes: Sequence[Mapping[str, Any]], chinese: bool) -> Iterator[str]:
    """Yield a table of the sizes that were timed, as nccl-tests prints it."""
    if sizes:
        names = (
            ("字节", "微秒", "算法带宽 GB/s", "总线带宽 GB/s")
            if chinese
            else ("bytes", "us", "algbw GB/s", "busbw GB/s")
        )
        yield "  " + "".join(f"{name:>14}" for name in names)
    for size in sizes:
        values = (
            f"{size['bytes']:.0f}",
            f"{size['median_s'] * 1e6:.1f}",
            f"{size['algbw']:.4g}",
            f"{size['busbw']:.4g}",
        )
        yield "  " + "".join(f"{value:>14}" for value in values)


def text(document: dict[str, Any], chinese: bool) -> str:
    """Return the document for a terminal, one line a check."""
    marks = {"ok": "ok", "failed": "FAILED", "warning": "warning", "skipped": "skipped"}
    head = {"ready": ("ready", "就绪"), "not-ready": ("not ready", "未就绪")}[document["verdict"]]
    lines = [f"preflight: {head[1] if chinese else head[0]} ({document['seconds']:.1f} s)"]
    for one in document["checks"]:
        lines.append(f"  {marks[one['state']]}: {one['id']}: {one['says_zh' if chinese else 'says']}")
    lines += [line for run in document["runs"] for line in _sweep_lines(run["sweep"], chinese)]
    named = dict.fromkeys(_who(suspect, chinese) for suspect in document["suspects"])
    if named:
        lines.append(f"  {'可疑对象：' if chinese else 'suspects: '}{'; '.join(named)}")
    return "\n".join(lines) + "\n"
