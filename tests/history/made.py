"""Incidents for tests, all at times relative to one that is now."""

from __future__ import annotations

import time

from nccl_triage.history.incidents import Input, KeptIncident, KeptSuspect

NOW = float(int(time.time()))
DAY = 86400.0


def failed(
    host: str | None = "gpu07",
    cause: str = "gpu-hardware-fault",
    days: float = 1.0,
    *,
    number: int = 0,
    status: str = "established",
    rank: int | None = 3,
    gpu: int | None = None,
    pci: str | None = None,
    hosts: tuple[str, ...] = ("gpu07", "gpu08"),
    inputs: tuple[Input, ...] = (),
    lines: int = 10,
) -> KeptIncident:
    """Return a failure of one host so many days ago."""
    when = NOW - days * DAY
    return KeptIncident(
        "diagnosed", when, when, dated=True, cause=cause, family="hardware", status=status, confidence=0.9,
        headline="A GPU or its host is broken.", headline_zh="GPU 或其主机硬件故障。", world_size=16, launcher="torchrun",
        hosts=hosts, host_count=len(hosts), software={"nccl": "2.21.5"}, tool="0.1.0", lines=lines,
        culprits=(KeptSuspect(host=host, rank=rank, gpu=gpu, pci=pci),), inputs=inputs, id=number,
    )  # fmt: skip


def healthy(days: float, hosts: tuple[str, ...] = ("gpu07", "gpu08"), number: int = 0) -> KeptIncident:
    """Return a job that ended well so many days ago."""
    when = NOW - days * DAY
    return KeptIncident("healthy", when, when, dated=True, hosts=hosts, host_count=len(hosts), id=number)
