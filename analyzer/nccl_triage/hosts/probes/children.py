"""Child processes of a program on a host: other parts of itself, none of which outlives its parent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from .host import die_with_parent


def own() -> list[str]:
    """Return the command that starts this program again."""
    return [sys.executable, sys.argv[0]]


def helper(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start another part of this program, with pipes to its input and output; ``environment`` is set besides ours."""
    return subprocess.Popen(
        [*own(), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        preexec_fn=die_with_parent,
    )
