"""A job of eight ranks on two hosts as files: the trainer's log, and the kernel's log of each host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from time import gmtime, strftime
from typing import Any

from nccl_triage import diagnose

#: 2025-06-03 14:00:00, when the job begins; a step takes ten seconds.
BEGIN = 1748959200
STEPS = 12
HOSTS = ("gpu-a1", "gpu-a2")
BUSES = ("1b", "3b", "5d", "9b")
#: The collective that never ended, as each rank but the dead one reports it.
FAILURE = (
    "[rank{rank}]:[E603 {clock}.123456789 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=120, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=60000) ran for 60010 "
    "milliseconds before timing out."
)


def stamp(seconds: float) -> str:
    """Return ``2025-06-03 14:00:00``, seconds after the job's beginning."""
    return strftime("%Y-%m-%d %H:%M:%S", gmtime(BEGIN + seconds))


def pid(rank: int) -> int:
    """Return the pid of a rank on its host."""
    return 40_000 + rank


def trainer(dead: int | None = None, finished: bool = False) -> str:
    """Return the trainer's log: NCCL's start with each rank's GPU, steps, and, where a rank is dead, the time-outs."""
    lines = []
    for rank in range(8):
        host, local = HOSTS[rank // 4], rank % 4
        lines.append(
            f"{host}:{pid(rank)}:{pid(rank) + 100} [{local}] NCCL INFO ncclCommInitRank comm 0x55aa0{rank} rank {rank} nranks 8 "
            f"cudaDev {local} nvmlDev {local} busId {BUSES[local]}000 commId 0x9d1ce27b - Init COMPLETE"
        )
    lines += [f"{stamp(10 * n)} INFO step {n} | loss {3.0 / (n + 1):.4f} | 10.0 s/step" for n in range(STEPS)]
    if dead is not None:
        clock = strftime("%H:%M:%S", gmtime(BEGIN + 10 * STEPS + 60))
        lines += [FAILURE.format(rank=rank, clock=clock) for rank in range(8) if rank != dead]
    if finished:
        lines.append(f"{stamp(10 * STEPS)} INFO Training finished")
    return "\n".join(lines) + "\n"


def xid(seconds: float, bus: str, number: int = 79, rest: str = "GPU has fallen off the bus.") -> str:
    """Return a line of ``dmesg -T``."""
    clock = strftime("%a %b %e %H:%M:%S %Y", gmtime(BEGIN + seconds))
    return f"[{clock}] NVRM: Xid (PCI:0000:{bus}:00): {number}, pid='<unknown>', name=<unknown>, {rest}"


def oom(seconds: float, number: int, name: str) -> str:
    """Return the end of a report of the out-of-memory killer, as in /var/log/messages."""
    clock = strftime("%b %e %H:%M:%S", gmtime(BEGIN + seconds))
    return (
        f"{clock} {HOSTS[1]} kernel: [91234.5] Out of memory: Killed process {number} ({name}) total-vm:181234567kB, "
        "anon-rss:98765432kB, file-rss:1234kB, shmem-rss:567890kB, UID:0 pgtables:213456kB oom_score_adj:0"
    )


def verdict(folder: Path, log: str, kernel: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Write the files, the kernel's logs by their names, and return the document of their diagnosis."""
    (folder / "train.log").write_text(log)
    for name, lines in kernel.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    found: dict[str, Any] = diagnose([folder]).to_dict()
    return found
