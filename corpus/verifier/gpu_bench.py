"""A bench on one GPU: an open agent on this host, a folder for results, and the time that is left."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpus.verifier.kinds import Kind
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.processes import ProcessLauncher
from nccl_triage.verify import runner
from nccl_triage.verify.cluster import Cluster, worker
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Deadlines, RunResult, Slot
from nccl_triage.verify.record import bandwidth, rate


@dataclass
class Bench:
    """An open agent on this host, a folder for results, and the time that is left."""

    cluster: Cluster
    out: Path
    backend: str
    end: float
    skipped: list[str] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
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


def told(result: RunResult | None) -> dict[str, Any]:
    """Return what a run came to, and with which software."""
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


@contextmanager
def opened(out: Path, backend: str, budget: float) -> Iterator[Bench]:
    """Yield the bench for ``budget`` seconds; raises SystemExit without a torch that can be imported."""
    (out / "worker").mkdir(parents=True, exist_ok=True)
    with Cluster(ProcessLauncher([HostPlace("here", slots=8)], worker())) as cluster:
        cluster.greet(30)
        broken = cluster.preload(120)
        if broken:
            raise SystemExit(f"torch cannot be imported: {broken[0]}")
        yield Bench(cluster, out, backend, time.monotonic() + budget)
