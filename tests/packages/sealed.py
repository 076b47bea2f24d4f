"""Run a command as in a broken container: no network, no home that can be written."""

from __future__ import annotations

import functools
import os
import resource
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOG = ROOT / "corpus" / "written" / "logs" / "S001-openrlhf-broadcast-two-networks.log"
CAUSE = "network-unreachable-subnet"
#: Not even root can make a folder there.
NO_HOME = "/proc/no-home"
#: Where no proxy answers, for programs that would ask one.
_NOWHERE = "http://127.0.0.1:9"
PATIENCE = 120.0


@functools.cache
def _without_network() -> tuple[str, ...]:
    """Return the command that takes the network away, if this user may do that."""
    for words in (("unshare", "--net"), ("unshare", "--user", "--map-root-user", "--net")):
        if (
            shutil.which(words[0])
            and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
        ):
            return words
    return ()


def run(*words: str | Path, temporary: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; ``temporary`` is its TMPDIR."""
    variables = {
        "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": NO_HOME, "TMPDIR": str(temporary),
        "http_proxy": _NOWHERE, "https_proxy": _NOWHERE, **env,
    }  # fmt: skip
    return subprocess.run(
        [*_without_network(), *map(str, words)], env=variables, cwd=temporary, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip


def spent(*words: str | Path, temporary: Path) -> float:
    """Return the seconds of processor time that a start takes, the least of three: other programs run beside it."""
    least = float("inf")
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = run(*words, temporary=temporary)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert result.returncode == 0, result.stderr
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least
