"""One line of a preflight: what was checked, how it came out, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nccl_triage.engine.schema import Text


@dataclass(frozen=True, slots=True)
class PreflightCheck:
    """One check: ok, failed, warning or skipped, with its details."""

    id: str
    state: str
    says: Text

    def to_dict(self) -> dict[str, str]:
        """Return the check as the document has it."""
        return {"id": self.id, "state": self.state, "says": self.says["en"], "says_zh": self.says["zh"]}


def check(name: str, state: str, en: str, zh: str) -> PreflightCheck:
    """Return a check with its text in both languages."""
    return PreflightCheck(name, state, {"en": en, "zh": zh})


@dataclass(frozen=True, slots=True)
class PreflightSuspect:
    """Who stands out, and why: a host, a rank with its GPU, or two hosts between which something is wrong."""

    hosts: tuple[str, ...]
    stage: str
    says: Text
    rank: int | None = None
    gpu: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the suspect as the document has it."""
        return {
            "hosts": list(self.hosts),
            "rank": self.rank,
            "gpu": self.gpu,
            "stage": self.stage,
            "says": self.says["en"],
            "says_zh": self.says["zh"],
        }


def who(hosts: Sequence[str], rank: int | None, gpu: str | None, chinese: bool = False) -> str:
    """Return what a suspect is called in a line: ``gpu-b, rank 3 (GPU 3, 0000:ab:00)``."""
    parts = [("、" if chinese else " and ").join(hosts), *([f"rank {rank}"] if rank is not None else [])]
    return ("，" if chinese else ", ").join(parts) + (f" ({gpu})" if gpu else "")
