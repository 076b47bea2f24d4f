"""Probes of what a job would load: Python, torch, CUDA and NCCL versions, and the environment variables that concern communication."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from nccl_triage.doctor.probes.result import ProbeResult, ProbeTarget, text
from nccl_triage.hosts.probes.host import ALLOWED

#: Seconds for torch to be imported.
IMPORT_TIMEOUT = 80.0
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


def probe_software(where: ProbeTarget) -> ProbeResult:
    """Return the versions; without torch those that are installed as packages."""
    seen = ProbeResult({"python": platform.python_version(), "executable": sys.executable, "torch": None})
    python = where.python or sys.executable
    told = _run(python, IMPORT_TIMEOUT * where.timeout_factor, where, seen)
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


def _run(python: str, timeout: float, where: ProbeTarget, seen: ProbeResult) -> dict[str, Any] | None:
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
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        seen.miss("torch", "hangs", seconds=f"{timeout:.0f}")
        return None
    try:
        told = json.loads(output.decode("utf-8", "replace").strip().splitlines()[-1])
    except (ValueError, IndexError):
        seen.miss("torch", "failed", tool=python, error=f"exit code {process.returncode}")
        return None
    return told if isinstance(told, dict) else None


#: Prefixes and names that may leave the host.
_PREFIXES = (*ALLOWED, "RCCL_", "CUDA_", "UCX_", "FI_", "OMPI_MCA_", "TORCH_DISTRIBUTED_", "TORCHELASTIC_")
_NAMES = frozenset(
    {
        *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LD_LIBRARY_PATH", "LD_PRELOAD"),
        *("OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "TORCH_CPP_LOG_LEVEL", "VLLM_NCCL_SO_PATH", "RAY_ADDRESS"),
    }
)
#: Our own variables begin as NCCL's do and mean nothing to it.
_OWN = "NCCL_TRIAGE_"
_MOST_VARIABLES, _LONGEST = 400, 1000


def probe_environment(where: ProbeTarget) -> ProbeResult:
    """Return the variables and, by file, what NCCL reads from its files where the environment does not say it."""
    chosen = {
        name: value[:_LONGEST]
        for name, value in sorted(where.environment.items())
        if (name.startswith(_PREFIXES) and not name.startswith(_OWN)) or name in _NAMES
    }
    files = {}
    for path in _files(where):
        found = text(path)
        if found is not None:
            files["/" + str(path.relative_to(where.root))] = _assignments(found)
    return ProbeResult({"variables": dict(list(chosen.items())[:_MOST_VARIABLES]), "files": files})


def _files(where: ProbeTarget) -> list[Path]:
    """Return NCCL's files in the order in which it reads them (NCCL's src/misc/param.cc, initEnvFunc)."""
    own = where.environment.get("NCCL_CONF_FILE")
    home = where.environment.get("HOME", "")
    chosen = own or (f"{home}/.nccl.conf" if home else "")
    return [where.root / path.lstrip("/") for path in (chosen, "/etc/nccl.conf") if path]


def _assignments(found: str) -> dict[str, str]:
    pairs = (line.strip().partition("=") for line in found.splitlines() if not line.lstrip().startswith("#"))
    return {
        name.strip()[:100]: value.strip()[:_LONGEST]
        for name, equals, value in list(pairs)[:_MOST_VARIABLES]
        if equals and name.strip().startswith(_PREFIXES)
    }
