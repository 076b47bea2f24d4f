"""Variables that matter to communication, of this process and of NCCL's files; no other variable is ever reported."""

from __future__ import annotations

from pathlib import Path

from nccl_triage.doctor.probes.seen import Seen, Where, text
from nccl_triage.verify.worker.host import ALLOWED

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
_MOST, _LONGEST = 400, 1000


def probe(where: Where) -> Seen:
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
    return Seen({"variables": dict(list(chosen.items())[:_MOST]), "files": files})


def _files(where: Where) -> list[Path]:
    """Return NCCL's files in the order in which it reads them (NCCL's src/misc/param.cc, initEnvFunc)."""
    own = where.environment.get("NCCL_CONF_FILE")
    home = where.environment.get("HOME", "")
    chosen = own or (f"{home}/.nccl.conf" if home else "")
    return [where.root / path.lstrip("/") for path in (chosen, "/etc/nccl.conf") if path]


def _assignments(found: str) -> dict[str, str]:
    pairs = (line.strip().partition("=") for line in found.splitlines() if not line.lstrip().startswith("#"))
    return {
        name.strip()[:100]: value.strip()[:_LONGEST]
        for name, equals, value in list(pairs)[:_MOST]
        if equals and name.strip().startswith(_PREFIXES)
    }
