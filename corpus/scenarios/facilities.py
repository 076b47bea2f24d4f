"""What this machine allows: a scenario that needs more is skipped, with the reason."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

from corpus.scenarios.nccl_double import build as nccl_double


def _works(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _imports(python: Path, module: str) -> str | None:
    if _works(str(python), "-c", f"import importlib.util,sys; sys.exit(importlib.util.find_spec('{module}') is None)"):
        return None
    return f"{module} is not installed for {python}"


def _namespaces(python: Path) -> str | None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and iproute2"
    return None if _works("unshare", "-n", "-m", "-u", "true") else "this kernel or container refuses namespaces"


def _firewall(python: Path) -> str | None:
    if shutil.which("iptables") is None:
        return "iptables is not installed"
    return None if _works("unshare", "-n", "iptables", "-L") else "iptables does not work in a namespace here"


def _memory_cgroup(python: Path) -> str | None:
    version_one = Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    version_two = Path("/sys/fs/cgroup/cgroup.controllers")
    if os.geteuid() != 0:
        return "a memory cgroup needs root"
    if version_one.exists() or (version_two.exists() and "memory" in version_two.read_text()):
        return None
    return "no memory cgroup controller"


def _pids_cgroup(python: Path) -> str | None:
    if os.geteuid() != 0:
        return "a cgroup needs root"
    version_two = Path("/sys/fs/cgroup/cgroup.controllers")
    if Path("/sys/fs/cgroup/pids").is_dir() or (version_two.exists() and "pids" in version_two.read_text()):
        return None
    return "no pids cgroup controller"


def _extra(python: Path, name: str) -> str | None:
    """An old release of a package lies beside the virtual environment's own ones, in ``extra/NAME``."""
    folder = python.parent.parent / "extra" / name
    return None if folder.is_dir() else f"no {folder} (make it with pip install --no-deps --target)"


def _gpu(python: Path) -> str | None:
    if _works(str(python), "-c", "import torch,sys; sys.exit(not torch.cuda.is_available())"):
        return None
    return "no CUDA device that this torch can use"


def _nccl_double(python: Path) -> str | None:
    if shutil.which("cc") is None:
        return "no C compiler"
    return nccl_double.lacks()


_CHECKS: dict[str, Callable[[Path], str | None]] = {
    "namespaces": _namespaces,
    "firewall": _firewall,
    "memory-cgroup": _memory_cgroup,
    "pids-cgroup": _pids_cgroup,
    "gpu": _gpu,
    "torch": lambda python: _imports(python, "torch"),
    "ray": lambda python: _imports(python, "ray"),
    "deepspeed": lambda python: _imports(python, "deepspeed"),
    "nccl": lambda python: _imports(python, "nvidia.nccl"),
    "nccl-double": _nccl_double,
    "compiler": lambda python: None if shutil.which("cc") else "no C compiler",
}


@cache
def missing(facility: str, python: Path) -> str | None:
    """Return why a facility is not there, or None when it is."""
    if facility.startswith("extra:"):
        return _extra(python, facility.removeprefix("extra:"))
    return _CHECKS[facility](python)
