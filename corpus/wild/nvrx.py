"""Answers of the restart agent of nvidia-resiliency-ext in its deterministic mode (no model), and how it is run.

It reads one interleaved log and says whether to restart; beside that it names the class, line, rank and node of a
primary failure. Its JSON has the schema ``restart_agent_response.v1``.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from corpus.wild.blobs import lines_of

SCHEMA = "restart_agent_response.v1"
_MODULE = "nvidia_resiliency_ext.attribution.restart_agent"
#: Seconds for one log.
_PATIENCE = 600
#: Class of a failure -> the causes that it covers. A class is right if any of them is. Classes of what is seen when
#: ranks wait for each other (a collective timeout, a cascade) name no cause.
COVERS: dict[str, tuple[str, ...]] = {
    "gpu_hardware_fault": ("gpu-hardware-fault", "gpu-nvls-fabricmanager"),
    "peer_gpu_memory_access_failure": ("gpu-p2p-broken", "gpu-hardware-fault"),
    "infra_policy_event": ("job-preempted",),
    "time_limit": ("job-preempted",),
    "user_cancelled": ("job-preempted",),
    "observed_exception": ("application-exception", "framework-defect", "data-pipeline-failure"),
    "configuration_validation_failure": ("application-exception", "launch-failed"),
    "argument_validation_failure": ("application-exception", "launch-failed"),
    "artifact_or_path_not_found": ("application-exception", "data-pipeline-failure", "launch-failed"),
    "checkpoint_compatibility_mismatch": ("application-exception", "framework-version-incompatibility"),
    "shape_mismatch": ("application-exception", "collective-mismatch"),
    "filesystem_permission_denied": ("storage-fault", "application-exception", "launch-failed"),
    "cuda_oom": ("gpu-out-of-memory",),
    "nan_or_inf": ("numerical-divergence",),
    "bad_token_or_window": ("data-pipeline-failure", "application-exception"),
    "framework_crash": ("process-crashed", "framework-defect"),
    "linux_oom_kill_confirmation": ("host-out-of-memory",),
}
#: Part of the signature of an exception -> the cause that its name states.
_EXCEPTIONS = (
    ("OutOfMemoryError", "gpu-out-of-memory"), ("MemoryError", "host-out-of-memory"),
    ("ImportError", "framework-version-incompatibility"), ("ModuleNotFoundError", "framework-version-incompatibility"),
    ("DistStoreError", "rendezvous-failed"), ("DistNetworkError", "rendezvous-failed"),
)  # fmt: skip


def covered(failure: dict[str, Any]) -> tuple[str, ...]:
    """Return the causes that a primary failure may stand for; none where it only names what was observed."""
    causes = COVERS.get(str(failure.get("failure_class")), ())
    signature = str(failure.get("signature"))
    named = next((cause for word, cause in _EXCEPTIONS if word in signature), None)
    return (named, *causes) if causes and named is not None else causes


def _number(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def answer(response: dict[str, Any], accepted: Sequence[str], files: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Return a response in the common form of answers, read in its favour.

    ``accepted`` are the answers that count as right: of the causes that a class covers the first of these is taken.
    ``files`` are the names and numbers of lines of the files that were read one after the other. No primary failure is
    read as healthy, as for the error line baselines: the agent has no verdict of its own for it.
    """
    failure = response.get("primary_failure")
    if not isinstance(failure, dict):
        return {"verdict": "healthy"}
    causes = covered(failure)
    cause = next((cause for cause in causes if cause in accepted), causes[0] if causes else None)
    rank, host = _number(failure.get("rank")), failure.get("node")
    host = host if isinstance(host, str) else None
    quoted = [item.get("line") for item in response.get("evidence") or () if isinstance(item, dict)]
    lines = [_place(line, files) for line in dict.fromkeys([failure.get("line"), *quoted]) if isinstance(line, int)]
    return {
        "verdict": "diagnosed" if cause else "unknown",
        "cause": cause,
        "culprit": None if rank is None and host is None else {"rank": rank, "host": host},
        "lines": [line for line in lines if line is not None],
    }


def _place(line: int, files: Sequence[tuple[str, int]]) -> dict[str, Any] | None:
    for name, number in files:
        if 0 < line <= number:
            return {"file": name, "line": line}
        line -= number
    return None


def is_installed(python: str) -> bool:
    """Tell whether an interpreter has the package."""
    try:
        found = subprocess.run(
            [python, "-c", f"import {_MODULE}.cli"], capture_output=True, check=False, stdin=subprocess.DEVNULL
        )
    except OSError:
        return False
    return found.returncode == 0


def ask(python: str, logs: Sequence[Path]) -> dict[str, Any] | None:
    """Return the response on the files of one log, one after the other; None where it gives none."""
    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder) / "job.log"
        with joined.open("wb") as file:
            for log in logs:
                data = log.read_bytes()
                file.write(data)
                # So that lines are counted as in the single files.
                file.write(b"\n" if lines_of(data) != data.count(b"\n") else b"")
        command = [python, "-m", f"{_MODULE}.cli", "--disable-l1", str(joined)]
        try:
            found = subprocess.run(
                command,
                capture_output=True,
                check=False,
                stdin=subprocess.DEVNULL,
                timeout=_PATIENCE,
                env={**os.environ},
            )
            response = orjson.loads(found.stdout)
        except (subprocess.TimeoutExpired, orjson.JSONDecodeError):
            return None
    return response if isinstance(response, dict) and response.get("schema_version") == SCHEMA else None
