"""Take out of a recording what belongs to the machine that made it; relations (same host, same path) stay."""

from __future__ import annotations

import re
from pathlib import Path

#: Where the job's scripts and its virtual environment seem to lie.
JOBS = "/opt/train"
ENVIRONMENT = "/opt/venv"


def _whole(key: bytes) -> bytes:
    """Return a pattern for a path anywhere, or for a name that stands alone: ``vm`` is no host in ``total-vm``."""
    escaped = re.escape(key)
    return escaped if b"/" in key else rb"(?<![\w.-])" + escaped + rb"(?![\w-])"


class Neutraliser:
    """Replace paths and names by neutral ones, the longest first."""

    def __init__(self, replacements: dict[str, str]) -> None:
        self._pairs = {key.encode(): value.encode() for key, value in replacements.items() if key}
        keys = sorted(self._pairs, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(_whole, keys))) if keys else None

    def __call__(self, data: bytes) -> bytes:
        """Return the bytes with everything replaced."""
        if self._pattern is None:
            return data
        return self._pattern.sub(lambda match: self._pairs[match.group()], data)


def for_machine(python: Path, jobs: Path, logs: Path, extra: dict[str, str] | None = None) -> Neutraliser:
    """Return the neutraliser for a recording made with this interpreter, these scripts and this log folder."""
    # A virtual environment's programs name the interpreter that it was made from.
    replacements = {str(python.resolve().parent.parent): "/usr/local", str(Path.home()): "/home/user"}
    replacements.update({str(python.parent.parent): ENVIRONMENT, str(jobs): JOBS, str(logs): "/var/log/train"})
    return Neutraliser({**replacements, **(extra or {})})
