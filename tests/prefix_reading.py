"""The shipped prefixes and layouts, for tests that read lines or paths with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from nccl_triage.engine import load
from nccl_triage.ingest import sources
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.parsers.wrappers import PrefixReader

_RULES = load.load()
PREFIXES = PrefixReader(_RULES.prefixes)
peel, sniff = PREFIXES.peel, PREFIXES.sniff
NAMES = LayoutReader(_RULES.layouts)
read_path = NAMES.read


def find_sources(
    arguments: Sequence[str], stdin: BinaryIO | None, since: float | None = None, *, links: bool = False
) -> tuple[list[sources.Source], list[str]]:
    """Find sources, with what the shipped layouts read in their paths."""
    return sources.find_sources(arguments, stdin, since, names=NAMES, links=links)
