"""Report documents as small as the verifier needs them: one suspected cause and the collective that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nccl_triage._version import __version__


def document(
    cause: str,
    *,
    world: int,
    hosts: Sequence[str] = (),
    op: str = "ALLREDUCE",
    numel: int = 1 << 16,
    timeout_s: float | None = None,
    env: Mapping[str, str] | None = None,
    port: int | None = None,
    backend: str = "gloo",
    lines: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the document of a log that made ``cause`` probable and not certain, by ``lines`` where they are given."""
    evidence = [_evidence(line) for line in lines]
    if port is not None:
        evidence.append(_evidence(f"The server socket has failed to listen on port: {port}"))
    return {
        "schema_version": 1,
        "tool": {"name": "nccl-triage", "version": __version__, "rules": ""},
        "verdict": "diagnosed",
        "headline": f"Probably: {cause}.",
        "headline_zh": f"很可能：{cause}。",
        "diagnoses": [
            {
                "cause": cause,
                "status": "supported",
                "confidence": 0.7,
                "score": 2.4,
                "contributions": [],
                "culprits": [],
                "evidence": evidence,
                "verification": None,
            }
        ],
        "collective": {
            "op": op,
            "numel_in": numel,
            "dtype": None,
            "world_size": world,
            "timeout_ms": None if timeout_s is None else timeout_s * 1000,
        },
        "job": {
            "world_size": world,
            "hosts": [{"name": name, "addresses": [], "ranks": []} for name in hosts],
            "software": {"nccl": "2.29.7"} if backend == "nccl" else {},
            "env": dict(env or {}),
        },
        "symptoms": [{"signature": f"{backend}.error"}],
        "timeline": [],
        "excerpts": [],
    }


def _evidence(text: str) -> dict[str, Any]:
    return {"path": "made.log", "line": 1, "text": text}
