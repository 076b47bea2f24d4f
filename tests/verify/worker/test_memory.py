"""How much memory ranks take: together a share of what is free."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nccl_triage.verify.worker import memory

GIB = 1 << 30


def torch(free: int, count: int) -> Any:
    return SimpleNamespace(
        cuda=SimpleNamespace(mem_get_info=lambda device: (free, 80 * GIB), device_count=lambda: count)
    )


@pytest.mark.parametrize(("ranks", "gpus", "sharing"), [(8, 8, 1), (1, 8, 1), (2, 1, 2), (3, 2, 2), (4, 0, 4)])
def test_ranks_of_a_gpu_share_it(ranks: int, gpus: int, sharing: int) -> None:
    found = memory.room(torch(10 * GIB, gpus), SimpleNamespace(type="cuda"), ranks)
    assert found == 8 * GIB // sharing


def test_ranks_of_a_host_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 16 * GIB)
    assert memory.room(None, SimpleNamespace(type="cpu"), 4) == 2 * GIB
    assert memory.room(None, SimpleNamespace(type="cpu"), 0) == 8 * GIB


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


FREE = {"proc/meminfo": "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n"}
V2 = {"proc/self/cgroup": "0::/job.slice/step\n"}


@pytest.mark.parametrize(
    ("files", "left"),
    [
        (FREE, 16 * GIB),
        ({}, memory.UNKNOWN),
        ({"proc/meminfo": "MemAvailable: many kB\n"}, memory.UNKNOWN),
        # a limit of the group, of one above it, and none
        ({**FREE, **V2, "sys/fs/cgroup/job.slice/step/memory.max": f"{4 * GIB}", "sys/fs/cgroup/job.slice/step/memory.current": f"{GIB}"}, 3 * GIB),
        ({**FREE, **V2, "sys/fs/cgroup/job.slice/memory.max": f"{2 * GIB}", "sys/fs/cgroup/job.slice/memory.current": "0"}, 2 * GIB),
        ({**FREE, **V2, "sys/fs/cgroup/job.slice/memory.max": "max", "sys/fs/cgroup/job.slice/memory.current": "5"}, 16 * GIB),
        # in a container its own group is the root of what it sees
        ({**FREE, **V2, "sys/fs/cgroup/memory.max": f"{GIB}", "sys/fs/cgroup/memory.current": f"{GIB // 2}", "sys/fs/cgroup/memory.stat": f"anon 5\ninactive_file {GIB // 4}\n"}, GIB * 3 // 4),
        # version 1
        ({**FREE, "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/job\n", "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{GIB}", "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "0"}, GIB),
        ({**FREE, "proc/self/cgroup": "4:memory:/job\n", "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712", "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "1"}, 16 * GIB),
        ({**FREE, **V2, "sys/fs/cgroup/memory.max": "5", "sys/fs/cgroup/memory.current": "9"}, 0),
    ],
)  # fmt: skip
def test_what_a_host_has_left(tmp_path: Path, files: dict[str, str], left: int) -> None:
    assert memory.available(machine(tmp_path, files)) == left


def test_this_host() -> None:
    assert 0 < memory.available() < 1 << 50
