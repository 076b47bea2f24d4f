"""Hosts on this machine: a name and processes of their own, in Linux namespaces."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

#: ``/run`` is its own, too: sshd wants a folder there.
_BEGIN = 'hostname "$0" && mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec "$@"'
#: Seconds for what was ended to be gone.
GONE = 10.0


def words(name: str, command: Sequence[str]) -> list[str]:
    """Return the command that runs another one on a host of its own; it ends with all that it has started there."""
    unshare = ["unshare", "--uts", "--pid", "--mount-proc", "--fork", "--kill-child"]
    return [*unshare, "sh", "-c", _BEGIN, name, *command]


def missing(*programs: str) -> str | None:
    """Return why there can be no such hosts, or None."""
    absent = [name for name in ("unshare", *programs) if shutil.which(name) is None]
    if absent:
        return f"{', '.join(absent)} is not installed"
    tried = subprocess.run(words("try", ["true"]), capture_output=True, text=True, check=False)
    return f"no hosts in namespaces: {tried.stderr.strip()}" if tried.returncode else None


class Host:
    """A host whose first process is a daemon."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as file:
            self._unshare = subprocess.Popen(
                words(name, command), stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=dict(environment),
                start_new_session=True,
            )  # fmt: skip
        self.daemon = self._child()

    def _child(self) -> int:
        path = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        deadline = time.monotonic() + GONE
        while not (found := path.read_text().split()):
            assert time.monotonic() < deadline and self._unshare.poll() is None, self.log.read_text()
            time.sleep(0.01)
        return int(found[0])

    def processes(self) -> dict[int, str]:
        """Return the command lines of its processes, zombies left out, by the numbers that they have outside."""
        here = Path(f"/proc/{self.daemon}/ns/pid").readlink()
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (entry / "ns/pid").readlink() == here and (line := (entry / "cmdline").read_text()):
                    found[int(entry.name)] = line.replace("\0", " ").strip()
        return found

    def close(self) -> None:
        """End it and all that runs on it."""
        self._unshare.kill()
        self._unshare.wait()


@contextlib.contextmanager
def nothing_left(hosts: Sequence[Host]) -> Iterator[None]:
    """Assert that what runs on the hosts afterwards has run there before."""
    before = [set(host.processes()) for host in hosts]
    yield
    deadline = time.monotonic() + GONE
    while True:
        left = [
            line
            for host, own in zip(hosts, before, strict=True)
            for pid, line in host.processes().items()
            if pid not in own
        ]
        if not left:
            return
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which nccl-triage of this source tree is found, and no variable of a launcher."""
    kept = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")
    root = Path(__file__).parents[2]
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PYTHONPATH": str(root / "analyzer"),
        **more,
    }
