"""Control groups that exist only while a scenario runs: limits of memory, of processes and of processor time, cgroup v1 and v2."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corpus.scenarios.network import Lab, flat

if TYPE_CHECKING:
    from corpus.scenarios.recorder import Run

ROOT = Path("/sys/fs/cgroup")
#: Controller -> file of its limit in version 1 and in version 2.
LIMITS = {
    "memory": ("memory.limit_in_bytes", "memory.max"),
    "pids": ("pids.max", "pids.max"),
    "cpu": ("cpu.cfs_quota_us", "cpu.max"),
}


def place(controller: str, name: str) -> tuple[Path, str]:
    """Return the folder of a control group and the file of its limit, for the version that this machine has."""
    first, second = LIMITS[controller]
    hierarchy = ROOT / controller
    if hierarchy.is_dir():
        return hierarchy / name, first
    return ROOT / name, second


@dataclass(frozen=True)
class Group:
    """A control group with one limit: bytes of memory, processes, microseconds of a processor in each tenth of a second."""

    name: str
    controller: str
    limit: int

    @property
    def folder(self) -> Path:
        """The group's folder in the control group file system."""
        return place(self.controller, self.name)[0]

    def _create(self) -> None:
        folder, file = place(self.controller, self.name)
        folder.mkdir(exist_ok=True)
        if file == LIMITS[self.controller][1] and not (folder / file).exists():
            (ROOT / "cgroup.subtree_control").write_text(f"+{self.controller}")
        (folder / file).write_text(str(self.limit))

    def _remove(self) -> None:
        for _ in range(50):
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            if not self.folder.exists():
                return
            time.sleep(0.1)

    @contextlib.contextmanager
    def host(self) -> Iterator[Lab]:
        """Yield one host (as ``network`` of a scenario does) while the group exists."""
        self._create()
        try:
            with flat(1) as made:
                yield made
        finally:
            self._remove()

    def take_rank(self, rank: int) -> Callable[[Run], str]:
        """Return an action that puts a rank's process into the group."""

        def take(run: Run) -> str:
            (self.folder / "cgroup.procs").write_text(str(run.pid_of_rank(rank)))
            return f"rank {rank} put into the {self.controller} group {self.name} (limit {self.limit})"

        return take

    def take_node(self, index: int) -> Callable[[Run], str]:
        """Return an action for the very beginning that puts one of the scenario's nodes into the group."""

        def take(run: Run) -> str:
            (self.folder / "cgroup.procs").write_text(str(run.processes[index].pid))
            return f"process {index} put into the {self.controller} group {self.name} (limit {self.limit})"

        return take

    def take_job(self, run: Run) -> str:
        """Put everything that was started into the group (an action for the very beginning: children follow)."""
        for process in run.processes:
            (self.folder / "cgroup.procs").write_text(str(process.pid))
        return f"the job put into the {self.controller} group {self.name} (limit {self.limit})"
