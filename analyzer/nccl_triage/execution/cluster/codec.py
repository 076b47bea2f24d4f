"""Packs what travels between the driver and the nodes: our code, the rules, and the observations."""

from __future__ import annotations

import io
import pickle
import zlib
from typing import Any

from nccl_triage import gc_tuning
from nccl_triage.engine.schema import RuleSet
from nccl_triage.hosts import programs
from nccl_triage.observations.store import Observations

#: The packages of nccl_triage that a node needs.
_PARTS = ("engine", "execution", "ingest", "messages", "observations", "parsers", "recorder", "scan", "tool_reports")
_PROTOCOL = 5
#: Modules whose classes observations consist of.
_MODULES = frozenset(
    f"nccl_triage.observations.{name}" for name in ("curves", "event", "links", "recorder_table", "store")
)


def program() -> bytes:
    """Return an importable zip of the code that scans logs."""
    return programs.archive(None, "", *_PARTS)


def pack_rules(rules: RuleSet) -> bytes:
    """Return the rules as bytes, since nodes need not have the files."""
    return zlib.compress(pickle.dumps(rules, _PROTOCOL), 1)


def unpack_rules(data: bytes) -> RuleSet:
    """Return rules that ``pack_rules`` has packed."""
    rules = pickle.loads(zlib.decompress(data))
    if not isinstance(rules, RuleSet):
        raise TypeError("no rules")
    return rules


def pack(found: Observations) -> bytes:
    """Return observations as bytes, compressed to about a fifth."""
    return zlib.compress(pickle.dumps(found, _PROTOCOL), 1)


class _ObservationsUnpickler(pickle.Unpickler):
    """Unpickles the classes of observations and nothing else: the data come from other machines."""

    def find_class(self, module: str, name: str) -> Any:
        if module not in _MODULES or "." in name:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of observations")
        return super().find_class(module, name)


def unpack(data: bytes) -> Observations:
    """Return observations that ``pack`` has made; raises UnpicklingError for anything else."""
    with gc_tuning.paused():
        found = _ObservationsUnpickler(io.BytesIO(zlib.decompress(data))).load()
    if not isinstance(found, Observations):
        raise pickle.UnpicklingError("no observations")
    return found
