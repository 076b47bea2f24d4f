"""What the tests of the file-based launchers share: a report, a stand-in for srun, and results as ranks leave them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.verify.api import Settings
from nccl_triage.verify.plan import PlanOptions
from nccl_triage.verify.written import files

#: Really starts the tasks that its options ask for, each as Slurm would.
SRUN = """#!{python}
import os, subprocess, sys
words, options = sys.argv[1:], {{}}
while words and words[0].startswith("--"):
    name, _, value = words.pop(0).partition("=")
    options[name] = value
nodes, tasks, each = (int(options[name]) for name in ("--nodes", "--ntasks", "--ntasks-per-node"))
assert nodes * each >= tasks, options
step = {{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": str(os.getpid()), "SLURM_NTASKS": str(tasks)}}
started = []
for rank in range(tasks):
    place = {{"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % each), "SLURM_NODEID": str(rank // each)}}
    started.append(subprocess.Popen(words, env={{**os.environ, **step, **place}}))
sys.exit(max(process.wait() for process in started))
"""

#: Seconds at which a healthy rank passes each stage, on its own clock.
HEALTHY = {
    "start": 0.0, "imported": 2.0, "device": 2.0, "store": 2.1, "group": 2.2, "entered": 2.3, "warm": 2.4, "done": 2.5,
}  # fmt: skip


def srun(folder: Path) -> str:
    """Put a stand-in for srun into a folder and return the PATH that begins with it."""
    folder.mkdir()
    (folder / "srun").write_text(SRUN.format(python=sys.executable))
    (folder / "srun").chmod(0o700)
    return f"{folder}:/usr/local/bin:/usr/bin:/bin"


def settings(folder: Path, backend: str = "gloo", patience: float = 1.0, **changes: Any) -> Settings:
    """Return settings that write into a folder."""
    return Settings(workdir=folder, options=PlanOptions(backend=backend, timeout_factor=patience), **changes)


def written(folder: Path, asked: dict[str, Any], rules: RuleSet, **changes: Any) -> Path:
    """Write the runs for a report for Slurm and return the folder."""
    files.write(asked, rules, settings(folder, **changes), "slurm")
    return folder


def labels(folder: Path) -> list[str]:
    """Return the labels of the runs in a folder."""
    found: list[str] = json.loads((folder / "plan.json").read_text())["runs"]
    return found


def facts(host: str, address: str = "10.0.0.1") -> dict[str, Any]:
    """Return what a host with one network says of itself."""
    network = {"netmask": "255.255.255.0", "mtu": 1500, "up": True}
    loopback = {**network, "name": "lo", "address": "127.0.0.1", "loopback": True, "default": False}
    eth0 = {**network, "name": "eth0", "address": address, "loopback": False, "default": True}
    return {"host": host, "own_addresses": [address], "interfaces": [loopback, eth0]}


def result(
    folder: Path,
    label: str,
    rank: int,
    host: str = "node-a",
    until: str = "done",
    *,
    skew: float = 0.0,
    end: Mapping[str, Any] | None = None,
    device: Mapping[str, Any] | None = None,
    error: str | None = None,
    attempt: str = "1.0",
    started: float = 100.0,
    env: Mapping[str, str] | None = None,
    late: float = 0.0,
    gpus: Mapping[str, Any] | None = None,
) -> Path:
    """Write the file of a rank that came as far as ``until``; its clock runs ``skew`` seconds ahead."""
    plan = json.loads((folder / "plan.json").read_text())["plan"]
    about = facts(host, f"10.0.0.{1 + sum(host.encode()) % 250}")
    about |= {"gpus": gpus} if gpus is not None else {}
    lines: list[dict[str, Any]] = [
        {"stage": "task", "plan": plan, "attempt": attempt, "started": started, "facts": about}
    ]
    lines.append({"stage": "env", "env": dict(env or {})})
    stages = list(HEALTHY)
    for stage in stages[: stages.index(until) + 1]:
        at = HEALTHY[stage] + skew + (late if stages.index(stage) >= stages.index("entered") else 0.0)
        lines.append({"stage": stage, "t": at})
        lines[-1].update({"device": device or {}, "done": {"wrong": 0, "median": 0.001}}.get(stage, {}))
    if error is not None:
        lines.append({"stage": "error", "t": 9.0 + skew, "type": "RuntimeError", "text": error})
    lines.append(
        {"stage": "exit", "t": 9.5 + skew, "code": 0, "killed": False, "state": None, "why": None, **(end or {})}
    )
    path = folder / "results" / label / f"rank-{rank}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"rank": rank, **line}) + "\n" for line in lines))
    return path
