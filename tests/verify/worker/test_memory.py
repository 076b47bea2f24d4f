"""How much memory ranks take: together a share of what is free."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nccl_triage.verify.worker import memory

GIB = 1 << 30


def gpu(bus: int, free: int = 10 * GIB) -> tuple[Any, Any]:
    """Return a torch and its device, a GPU with so much free memory."""
    about = SimpleNamespace(pci_domain_id=0, pci_bus_id=bus, pci_device_id=0)
    cuda = SimpleNamespace(mem_get_info=lambda device: (free, 80 * GIB), get_device_properties=lambda device: about)
    return SimpleNamespace(cuda=cuda), SimpleNamespace(type="cuda", index=0)


def test_ranks_of_a_gpu_share_it() -> None:
    one, two, other = (memory.room(*gpu(bus)) for bus in (0x4F, 0x4F, 0x52))
    assert one.free == 8 * GIB and one == two and one.memory != other.memory
    assert memory.least([one, other]) == 8 * GIB
    assert memory.least([one, two, other]) == 4 * GIB
    assert memory.least([one, other, memory.room(*gpu(0x60, GIB))]) == int(GIB * 0.8)


def test_ranks_of_a_host_share_it_whatever_their_containers(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("5c6f\n")
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 16777216 kB\n")
    found = memory.room(None, SimpleNamespace(type="cpu"), tmp_path)
    assert found == memory.MemoryRoom("5c6f", 8 * GIB)
    assert memory.least([found] * 4) == 2 * GIB
    assert memory.least([found, found, memory.MemoryRoom("other", 3 * GIB)]) == 3 * GIB
    assert memory.room(None, SimpleNamespace(type="cpu"), tmp_path / "nowhere").memory, "a name is better than nothing"


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
