"""Lines of others that stand in real logs: what an append or an insertion adds."""

from __future__ import annotations

import random

TEARDOWN = (
    "[rank0]:[W1206 18:44:12.715298746 ProcessGroupNCCL.cpp:1250] Warning: WARNING: destroy_process_group() was not called before "
    "program exit, which can leak resources.\n"
    "/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 2 leaked "
    "semaphore objects to clean up at shutdown\n"
)
SHELL = (
    "bash: line 14: module: command not found\n"
    "ls: cannot access '/scratch/old': No such file or directory\n"
    "rm: cannot remove 'core.4711': Read-only file system\n"
    "du: cannot read directory './private': Permission denied\n"
)
SSHD = "".join(
    f"Jun  3 09:{n // 60:02d}:{n % 60:02d} login1 sshd[{1700 + n}]: {what}\n"
    for n, what in enumerate(
        [
            "error: Bind to port 22 on 0.0.0.0 failed: Address already in use.",
            "Failed password for invalid user admin from 203.0.113.7 port 51514 ssh2",
            "Connection reset by 203.0.113.7 port 51514 [preauth]",
            "fatal: Timeout before authentication for 203.0.113.9 port 40022",
            "Received signal 15; terminating.",
        ]
        * 8
    )
)
BOOT = (
    "[    0.000000] Linux version 5.15.0-105-generic (buildd@lcy02) #115-Ubuntu SMP\n"
    "[    0.412201] ACPI: Early table checksum verification disabled\n"
    "[    1.002113] pci 0000:00:1f.2: reg 0x24: [mem 0xdf24b000-0xdf24b7ff]\n"
    "[    2.551042] nvidia-nvlink: Nvlink Core is being initialized, major device number 236\n"
    "[    3.120002] EXT4-fs (sda2): mounted filesystem with ordered data mode\n"
)
#: What a program survives: tried again, taken another way, caught.
SURVIVED = (
    "WARNING: connect to tracking server failed, retry 1/5 in 2 s\nWARNING: connect to tracking server succeeded\n",
    "Traceback (most recent call last):\n  File \"/app/metrics.py\", line 12, in upload\n    post(url)\n"
    "ConnectionRefusedError: [Errno 111] Connection refused\n",
    "ERROR:metrics:cannot upload, skipped\nTraceback (most recent call last):\n  File \"/app/metrics.py\", line 30, in push\n"
    "    return self.table[key]\nKeyError: 'val'\n",
    "Exception ignored in: <function Client.__del__ at 0x7f2a6c0d1e40>\nTraceback (most recent call last):\n"
    "  File \"/app/client.py\", line 8, in __del__\n    self.close()\nAttributeError: 'Client' object has no attribute '_session'\n",
    "WARNING: OVERFLOW! Attempted loss scale: 65536, reducing to 32768\n",
)  # fmt: skip


def others(chance: random.Random, number: int = 10_000) -> str:
    """Return lines of programs that nobody knows."""
    words = [
        "alpha",
        "bravo",
        "cache",
        "delta",
        "entry",
        "frame",
        "graph",
        "house",
        "index",
        "joint",
        "kernel",
        "layer",
        "metric",
        "node",
        "order",
        "page",
        "queue",
    ]
    return "".join(
        f"{chance.choice(words)} {chance.choice(words)} {chance.randrange(10**6)} {chance.choice(words)}\n"
        for _ in range(number)
    )
