"""Everything that one GPU can show of the verifier on real NCCL, in one command and less than ten minutes.

    python -m corpus.verifier.gpu --out results            # on a machine with a GPU and torch with NCCL
    python -m corpus.verifier.gpu --out results --backend gloo    # the same code where there is none

Several ranks share the GPU: a NCCL_HOSTID of its own makes each rank a host, so that they talk over NCCL's sockets; what
needs the paths between GPUs (P2P, shared memory, NVLS) is not exercised. NCCL 2.30.3 and newer can also share a GPU with
NCCL_MULTI_RANK_GPU_ENABLE=1, which is tried where it exists. Results: inventory.json (what an agent tells of the host),
eager.json (communicators made with the group: which stage fails with what), transport.json (what NCCL's own log tells),
gate.json (the runs before a control), events.json (CUDA's events against the clock), ops.json, environment.json,
methods.json, recordings/ (logs, flight-recorder dumps and a label each), sessions.json, summary.md, and all of it in
results.tar.gz.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from corpus.verifier.documents import document
from corpus.verifier.gpu_bench import Bench, opened, told
from corpus.verifier.kinds import KINDS, Kind
from corpus.verifier.prove import shoot, summary, table
from nccl_triage.engine import load
from nccl_triage.hosts.probes.inventory import visible
from nccl_triage.verify import api, transport
from nccl_triage.verify.assess import assess, diagnose_own_logs
from nccl_triage.verify.assessed_run import AssessedRun
from nccl_triage.verify.collective_run import CollectiveMessage
from nccl_triage.verify.plan import PlanOptions
from nccl_triage.verify.record import finding_record
from nccl_triage.verify.worker.ops import OPERATIONS, operation

#: Elements a rank of the collectives in ops.json: latency, middle, bandwidth.
SIZES = (1 << 10, 1 << 18, 1 << 22)
#: One variable each against the control.
ENVIRONMENTS: tuple[dict[str, str], ...] = (
    {},
    {"NCCL_NVLS_ENABLE": "0"},
    {"NCCL_P2P_DISABLE": "1"},
    {"NCCL_SHM_DISABLE": "1"},
    {"NCCL_ALGO": "Ring"},
    {"NCCL_ALGO": "Tree"},
    {"NCCL_PROTO": "Simple"},
    {"NCCL_PROTO": "LL"},
    {"NCCL_SOCKET_IFNAME": "lo"},
    {"NCCL_SOCKET_IFNAME": "nosuch0"},
)
#: NCCL releases from which on ranks may share a GPU openly.
SHARES_GPU = (2, 30, 3)


def every_op(bench: Bench) -> None:
    """Every operation at three sizes in float32 and bfloat16, with 1, 2 and 4 ranks."""
    more = tuple(
        CollectiveMessage(op, numel, dtype)
        for op in OPERATIONS
        if op != "INIT"
        for numel in SIZES
        for dtype in ("float32", "bfloat16")
    )
    found = {}
    for world in (1, 2, 4):
        chosen = tuple(part for part in more if world > 1 or not operation(part.op).pair)
        found[f"world {world}"] = told(bench.run(f"ops-w{world}", world, more=chosen))
    bench.write("ops.json", found)


def inventory(bench: Bench) -> None:
    """What the agent of this host tells of its GPUs, of torch and of NCCL."""
    answers = bench.cluster.gpus([0], imports=True)
    bench.write("inventory.json", {"answer": answers.get(0), "facts": bench.cluster.facts[0]})


#: A failure of the bootstrap, and one of a collective: variables and faults.
FAILURES: dict[str, dict[str, Any]] = {
    "healthy": {},
    "no-interface": {"env": {"NCCL_SOCKET_IFNAME": "nosuch0"}},
    "same-gpu": {"hostids": False},
    "killed": {"faults": {"1": {"name": "sigkill"}}},
}


def eager(bench: Bench) -> None:
    """At which stage each failure shows, and when each stage is reached: the communicator is made with the group."""
    found = {}
    for name, how in FAILURES.items():
        result = bench.run(f"eager-{name}", 2, **how)
        stages = [trace.times for trace in result.ranks.values()] if result is not None else []
        reached = [{stage: round(seconds, 3) for stage, seconds in times.items()} for times in stages]
        found[name] = {**told(result), "stages": reached}
    bench.write("eager.json", found)


def transports(bench: Bench) -> None:
    """What our parsers read in NCCL's own log, with and without the paths of one host."""
    rules, found = load.load(()), {}
    for name, env in {"control": {}, "no-p2p": {"NCCL_P2P_DISABLE": "1"}, "no-shm": {"NCCL_SHM_DISABLE": "1"}}.items():
        result = bench.run(f"transport-{name}", 2, env=env)
        if result is None or result.folder is None:
            continue
        taken = transport.read(Path(result.folder), rules)
        logs = sorted(Path(result.folder).glob(transport.LOGS))
        lines = {log.name: len(log.read_text(errors="replace").splitlines()) for log in logs}
        found[name] = {**told(result), "transport": taken.to_dict() if taken else None, "lines": lines}
    bench.write("transport.json", found)


def gates(bench: Bench) -> None:
    """A whole verification of one suspicion: the runs before its control, and all others."""
    asked = document("collective-mismatch", world=2, backend=bench.backend)
    if bench.left() < 60:
        bench.skipped.append("gate")
        return
    options = PlanOptions(backend=bench.backend, budget=bench.left(), timeout_factor=0.5, allow_busy=True)
    changed, _ = api.verify(asked, load.load(()), api.Settings(options=options, wait=60.0))
    bench.write("gate.json", changed["diagnoses"][0]["verification"])


def events(bench: Bench) -> None:
    """CUDA's events against the clock, in a process of its own."""
    if bench.backend != "nccl":
        return
    words = [sys.executable, "-m", "corpus.verifier.event_times"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    bench.write("events.json", {"exit": done.returncode, "times": _json(done.stdout), "errors": done.stderr[-2000:]})


def _json(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text[-2000:]


def environments(bench: Bench) -> None:
    """One all_reduce with one variable changed at a time."""
    found = []
    for env in ENVIRONMENTS:
        name = "-".join(f"{key}={value}" for key, value in env.items()) or "control"
        found.append({"env": env, **told(bench.run(f"env-{name}", 2, env=env))})
    bench.write("environment.json", found)


def methods(bench: Bench) -> None:
    """Ranks that import torch for themselves against ranks forked from a process that has; ranks that share a GPU openly."""
    found = {
        "spawn": told(bench.run("method-spawn", 2, method="spawn")),
        "fork": told(bench.run("method-fork", 2, method="fork")),
    }
    nccl = str(found["spawn"].get("software", {}).get("nccl") or "")
    if tuple(int(part) for part in nccl.split(".") if part.isdigit()) >= SHARES_GPU:
        env = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4", "NCCL_NVLS_ENABLE": "0"}
        found["multi-rank"] = told(bench.run("multi-rank", 2, env=env, hostids=False))
    if bench.backend == "nccl":
        found["same-gpu"] = told(bench.run("same-gpu", 2, hostids=False))
    bench.write("methods.json", found)


def recordings(bench: Bench, kinds: list[Kind]) -> None:
    """One run of each fault with NCCL's own log and the flight recorder's dumps, labelled for the corpus."""
    rules = load.load(())
    labels = []
    for kind in kinds:
        folder = bench.out / "recordings" / kind.name
        folder.mkdir(parents=True, exist_ok=True)
        dump = str(folder.resolve() / "nccl_trace_rank_")
        env = {
            **dict(kind.asks.get("env", {})),
            "NCCL_DEBUG": "INFO",
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_FR_DUMP_TEMP_FILE": dump,
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": dump,
        }
        result = bench.run(f"record-{kind.name}", kind.world, env=env, faults=kind.faults)
        if result is None:
            continue
        for log in sorted(Path(str(result.folder)).glob("rank-*.log")):
            (folder / log.name).write_bytes(log.read_bytes())
        finding = assess(AssessedRun(result, ["here"], (), diagnose_own_logs(result, rules)))
        label = {
            "id": f"gpu-{kind.name}",
            "injected": kind.does,
            "cause": kind.found or ("healthy" if kind.healthy else kind.cause),
            "culprit": list(kind.ranks),
            "finding": finding_record(finding) if finding else None,
            "right": finding is None if kind.healthy else bool(finding and finding.cause == kind.found),
            **told(result),
        }
        (folder / "label.json").write_text(json.dumps(label, indent=1) + "\n")
        labels.append(label)
    bench.write("recordings.json", labels)


def sessions(bench: Bench, kinds: list[Kind], say: Callable[[str], None]) -> str:
    """Whole sessions of the verifier against each fault, as far as the time goes."""
    results: dict[str, Any] = {}
    for kind in kinds:
        if bench.left() < 60:
            bench.skipped.append(f"session {kind.name}")
            continue
        shot = shoot(replace(kind, patience=0.5), bench.backend)
        results[kind.name] = [shot]
        say(f"session {kind.name}: {'right' if shot.right else 'WRONG'}: {shot.outcome} {shot.found} {shot.ranks}")
    bench.write("sessions.json", {name: [vars(shot) for shot in shots] for name, shots in results.items()})
    return f"{summary(kinds, results)}\n\n{table(kinds, results)}"


#: What is done, in the order in which it matters.
GROUPS: dict[str, Callable[[Bench], None]] = {
    "inventory": inventory,
    "eager": eager,
    "transports": transports,
    "gates": gates,
    "events": events,
    "ops": every_op,
    "environments": environments,
    "methods": methods,
    "recordings": lambda bench: recordings(bench, [kind for kind in bench.kinds if not kind.healthy and not kind.make]),
}


def main() -> int:
    """Run the groups in the order in which they matter and pack the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backend", choices=["nccl", "gloo"], default="nccl")
    parser.add_argument("--budget", type=float, default=560.0, help="seconds for everything")
    parser.add_argument(
        "--groups", default=",".join([*GROUPS, "sessions"]), help="what is done, separated by commas (default: all)"
    )
    parser.add_argument("--kinds", default="", help="names of kinds, separated by commas (default: all on one host)")
    given = parser.parse_args()
    seen = visible()
    if given.backend == "nccl" and not seen.gpus:
        print(f"no GPU: {seen.problem}; --backend gloo runs the same code on the CPU", file=sys.stderr)
        return 2
    wanted = set(filter(None, given.kinds.split(",")))
    kinds = [
        kind
        for kind in KINDS
        if kind.places == 1 and given.backend in kind.backends and (not wanted or kind.name in wanted)
    ]
    groups = given.groups.split(",")
    given.out.mkdir(parents=True, exist_ok=True)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with opened(given.out, given.backend, given.budget) as bench:
        bench.kinds = kinds
        for name, step in GROUPS.items():
            if name in groups:
                step(bench)
                say(f"{name}: done, {bench.left():.0f} s left")
        text = sessions(bench, kinds, say) if "sessions" in groups else ""
        bench.write("machine.json", {"gpus": [str(gpu) for gpu in seen.gpus], "skipped": bench.skipped})
        left_out = f"\nLeft out for lack of time: {', '.join(bench.skipped)}.\n" if bench.skipped else ""
        (given.out / "summary.md").write_text(text + left_out)
    with tarfile.open(given.out / "results.tar.gz", "w:gz") as archive:
        for entry in sorted(given.out.iterdir()):
            if entry.name not in ("results.tar.gz", "worker"):
                archive.add(entry, arcname=entry.name)
    print(text + left_out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
