"""Versions of libraries, drivers and frameworks that both runs print and that differ."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage.baseline.model import Difference
from nccl_triage.baseline.values import by_name, changed
from nccl_triage.diagnosis import software
from nccl_triage.diagnosis.case import Case


def compare(good: Case, bad: Case) -> Iterator[Difference]:
    """Yield the programs whose version is another; a version that only one run prints says nothing."""
    for name, theirs, ours in by_name(software.versions(good), software.versions(bad)):
        yield from changed("version", name, theirs, ours)
