"""Versions of what a job would load: Python, torch, its CUDA and its NCCL, asked in a process of its own."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from typing import Any

from nccl_triage.doctor.probes.seen import Seen, Where

#: Seconds for torch to be imported.
PATIENCE = 80.0
#: What is run by the Python of the job: no GPU is touched, torch.cuda stays uninitialised. The wheels' names are those of
#: NCCL's packages; the library is the one that the process has mapped.
_ASK = """
import json, re, sys
found = {"python": sys.version.split()[0], "executable": sys.executable}
wanted = re.compile(r"(?:nvidia-nccl-.*|vllm|deepspeed|ray)$", re.I)
try:
    from importlib import metadata
    names = {d.metadata["Name"]: d.version for d in metadata.distributions()}
    found["wheels"] = {name: version for name, version in sorted(names.items()) if name and wanted.match(name)}
except Exception:
    found["wheels"] = {}
try:
    import torch
    found["torch"], found["cuda"] = str(torch.__version__), torch.version.cuda
    try:
        version = torch.cuda.nccl.version()
        found["nccl"] = ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
    except Exception as error:
        found["nccl_problem"] = f"{type(error).__name__}: {error}"[:300]
except Exception as error:
    found["problem"] = f"{type(error).__name__}: {error}"[:300]
try:
    with open("/proc/self/maps") as maps:
        found["libraries"] = sorted(set(re.findall(r"(/\\S*libnccl\\.so\\S*)", maps.read())))
except OSError:
    pass
print(json.dumps(found))
"""


def probe(where: Where) -> Seen:
    """Return the versions; without torch those that are installed as packages."""
    seen = Seen({"python": platform.python_version(), "executable": sys.executable, "torch": None})
    python = where.python or sys.executable
    told = _run(python, PATIENCE * where.patience, where, seen)
    if told is None:
        return seen
    seen.facts.update(told)
    if not told.get("torch"):
        seen.miss("torch", "failed", tool=python, error=told.get("problem") or "no torch")
    elif not told.get("cuda"):
        seen.miss("nccl", "no-cuda", torch=told["torch"])
    elif not told.get("nccl"):
        seen.miss("nccl", "failed", tool="torch.cuda.nccl", error=told.get("nccl_problem") or "no version")
    return seen


def _run(python: str, patience: float, where: Where, seen: Seen) -> dict[str, Any] | None:
    try:
        process = subprocess.Popen(
            [python, "-c", _ASK],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(where.environment) or None,
        )
    except OSError as error:
        seen.miss("torch", "failed", tool=python, error=error.strerror)
        return None
    try:
        output, _ = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        seen.miss("torch", "hangs", seconds=f"{patience:.0f}")
        return None
    try:
        told = json.loads(output.decode("utf-8", "replace").strip().splitlines()[-1])
    except (ValueError, IndexError):
        seen.miss("torch", "failed", tool=python, error=f"exit code {process.returncode}")
        return None
    return told if isinstance(told, dict) else None
