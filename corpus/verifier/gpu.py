"""Everything that one GPU can show of the verifier on real NCCL, in one command and less than ten minutes.

    python -m corpus.verifier.gpu --out results            # on a machine with a GPU and torch with NCCL
    python -m corpus.verifier.gpu --out results --backend gloo    # the same code where there is none

Several ranks share the GPU: a NCCL_HOSTID of its own makes each rank a host, so that they talk over NCCL's sockets; what
needs the paths between GPUs (P2P, shared memory, NVLS) is not exercised. NCCL 2.30.3 and newer can also share a GPU with
NCCL_MULTI_RANK_GPU_ENABLE=1, which is tried where it exists. Results: ops.json, environment.json, methods.json,
recordings/ (logs, flight-recorder dumps and a label each), sessions.json, summary.md, and all of it in results.tar.gz.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corpus.verifier.kinds import KINDS, Kind
from corpus.verifier.prove import shoot, summary, table
from nccl_triage.engine import load
from nccl_triage.verify import runner
from nccl_triage.verify.assess import AssessedRun, assess, diagnose_own_logs
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Deadlines, HostPlace, RunResult, Slot
from nccl_triage.verify.launchers.processes import ProcessLauncher
from nccl_triage.verify.record import bandwidth, finding_record, rate
from nccl_triage.verify.worker.inventory import visible
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


@dataclass
class Bench:
    """An open agent on this host, a folder for results, and the time that is left."""

    cluster: Cluster
    out: Path
    backend: str
    end: float
    skipped: list[str] = field(default_factory=list)
    count: int = 0

    def left(self) -> float:
        """Return the seconds left of the budget."""
        return self.end - time.monotonic()

    def run(self, label: str, world: int, **how: Any) -> RunResult | None:
        """Run one collective, or note that the time was over."""
        if self.left() < 20:
            self.skipped.append(label)
            return None
        self.count += 1
        method = how.pop("method", "spawn" if self.backend == "nccl" else "fork")
        shared = how.pop("hostids", self.backend == "nccl")
        env = {"NCCL_SOCKET_IFNAME": "lo", **how.pop("env", {})} if self.backend == "nccl" else how.pop("env", {})
        if self.backend == "gloo":
            env = {"GLOO_SOCKET_IFNAME": env.get("NCCL_SOCKET_IFNAME", "lo"), **env}
        run = CollectiveRun(
            label=f"{self.count:03d}-{label}",
            slots=tuple(Slot(rank, 0) for rank in range(world)),
            message=how.pop("message", CollectiveMessage(numel=1 << 20)),
            backend=self.backend,
            device="cuda" if self.backend == "nccl" else "cpu",
            env=env,
            per_rank_env={rank: {"NCCL_HOSTID": f"rank{rank}"} for rank in range(world)} if shared else {},
            **how,
        )
        return runner.execute(
            self.cluster, run, self.out / "runs" / run.label, Deadlines().scaled(0.7), method=method, budget=self.left()
        )

    def write(self, name: str, found: Any) -> None:
        """Write one result file."""
        (self.out / name).write_text(json.dumps(found, indent=1) + "\n")


def _told(result: RunResult | None) -> dict[str, Any]:
    if result is None:
        return {"outcome": "not-run"}
    first = result.ranks[0]
    about = {**first.details.get("imported", {}), **first.details.get("device", {})}
    errors = [trace.error["text"][:300] for trace in result.ranks.values() if trace.error]
    return {
        "outcome": result.outcome,
        "stage": result.stage,
        "seconds": round(result.seconds, 2),
        "bandwidth": bandwidth(result),
        "software": {key: about.get(key) for key in ("torch", "cuda", "nccl", "name")},
        "errors": errors[:2],
        "parts": [_rate(part, result.run.world) for part in first.parts],
        "cleaned_s": round(result.cleaned_s, 3),
    }


def _rate(part: dict[str, Any], world: int) -> dict[str, Any]:
    kept = {key: part[key] for key in ("op", "numel", "dtype", "wrong", "median")}
    found = rate(part["op"], part["numel"], part["dtype"], world, part["median"])
    return {**kept, "busbw": found["busbw"]} if found else kept


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
        found[f"world {world}"] = _told(bench.run(f"ops-w{world}", world, more=chosen))
    bench.write("ops.json", found)


def environments(bench: Bench) -> None:
    """One all_reduce with one variable changed at a time."""
    found = []
    for env in ENVIRONMENTS:
        name = "-".join(f"{key}={value}" for key, value in env.items()) or "control"
        found.append({"env": env, **_told(bench.run(f"env-{name}", 2, env=env))})
    bench.write("environment.json", found)


def methods(bench: Bench) -> None:
    """Ranks that import torch for themselves against ranks forked from a process that has; ranks that share a GPU openly."""
    found = {
        "spawn": _told(bench.run("method-spawn", 2, method="spawn")),
        "fork": _told(bench.run("method-fork", 2, method="fork")),
    }
    nccl = str(found["spawn"].get("software", {}).get("nccl") or "")
    if tuple(int(part) for part in nccl.split(".") if part.isdigit()) >= SHARES_GPU:
        env = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4", "NCCL_NVLS_ENABLE": "0"}
        found["multi-rank"] = _told(bench.run("multi-rank", 2, env=env, hostids=False))
    if bench.backend == "nccl":
        found["same-gpu"] = _told(bench.run("same-gpu", 2, hostids=False))
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
            **_told(result),
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


@contextmanager
def _open(out: Path, backend: str, budget: float) -> Iterator[Bench]:
    (out / "worker").mkdir(parents=True, exist_ok=True)
    with Cluster(ProcessLauncher([HostPlace("here", slots=8)], out / "worker")) as cluster:
        cluster.greet(30)
        broken = cluster.preload(120)
        if broken:
            raise SystemExit(f"torch cannot be imported: {broken[0]}")
        yield Bench(cluster, out, backend, time.monotonic() + budget)


def main() -> int:
    """Run the groups in the order in which they matter and pack the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backend", choices=["nccl", "gloo"], default="nccl")
    parser.add_argument("--budget", type=float, default=560.0, help="seconds for everything")
    parser.add_argument("--groups", default="ops,environments,methods,recordings,sessions")
    parser.add_argument("--kinds", default="", help="names of kinds, separated by commas (default: all on one host)")
    given = parser.parse_args()
    inventory = visible()
    if given.backend == "nccl" and not inventory.gpus:
        print(f"no GPU: {inventory.problem}; --backend gloo runs the same code on the CPU", file=sys.stderr)
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

    with _open(given.out, given.backend, given.budget) as bench:
        steps: dict[str, Callable[[Bench], None]] = {
            "ops": every_op,
            "environments": environments,
            "methods": methods,
            "recordings": lambda one: recordings(one, [k for k in kinds if not k.healthy and k.make is None]),
        }
        for name, step in steps.items():
            if name in groups:
                step(bench)
                say(f"{name}: done, {bench.left():.0f} s left")
        text = sessions(bench, kinds, say) if "sessions" in groups else ""
        bench.write("machine.json", {"gpus": [str(gpu) for gpu in inventory.gpus], "skipped": bench.skipped})
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
