"""Runs on real Gloo, through one agent that has imported torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nccl_triage.verify import runner
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Deadlines, RunResult, Slot

#: Seconds of every stage: a healthy run takes 0.1 s.
QUICK = Deadlines(start=20.0, store=8.0, group=15.0, entered=6.0, first=10.0, timed=15.0, grace=1.0)

SMALL = CollectiveMessage(numel=4096)


@dataclass
class Gloo:
    """An open cluster of one host, and how to run something on it."""

    cluster: Cluster
    folder: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def run(
        self, world: int = 3, message: CollectiveMessage = SMALL, deadlines: Deadlines = QUICK, **changes: Any
    ) -> RunResult:
        """Carry out one run with its own label and folder; ``changes`` are fields of Run."""
        label = f"test-{next(self.numbers)}"
        run = CollectiveRun(label, tuple(Slot(rank, 0) for rank in range(world)), message, iterations=3)
        run = replace(run, env={"GLOO_SOCKET_IFNAME": "lo"}, **changes)
        return runner.execute(self.cluster, run, self.folder / label, deadlines)
