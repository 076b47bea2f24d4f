"""What travels between the driver and the nodes: our code, the rules, and what was found."""

from __future__ import annotations

import importlib.resources
import io
import pickle
import zipfile
import zlib
from typing import Any

from nccl_triage import archives, gc_tuning
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.store import Observations

#: What of nccl_triage a node needs: folders, with all that is in them.
_PARTS = ("engine", "execution", "ingest", "messages", "observations", "parsers", "recorder", "tool_reports", "scan")
_PROTOCOL = 5
#: Modules whose classes findings are made of.
_MODULES = frozenset(
    f"nccl_triage.observations.{name}" for name in ("curves", "event", "links", "recorder_table", "store")
)


def program() -> bytes:
    """Return a zip to import from that holds what scans logs, standard library apart."""
    made = io.BytesIO()
    root = importlib.resources.files("nccl_triage")
    with zipfile.ZipFile(made, "w") as archive:
        archives.add_sources(archive, root, "nccl_triage")
        for part in _PARTS:
            archives.add_sources(archive, root / part, f"nccl_triage/{part}", below=True)
    return made.getvalue()


def pack_rules(rules: RuleSet) -> bytes:
    """Return the rules as bytes: nodes need not have the files."""
    return zlib.compress(pickle.dumps(rules, _PROTOCOL), 1)


def unpack_rules(data: bytes) -> RuleSet:
    """Return rules that the driver has packed."""
    rules = pickle.loads(zlib.decompress(data))
    if not isinstance(rules, RuleSet):
        raise TypeError("no rules")
    return rules


def pack(found: Observations) -> bytes:
    """Return observations as bytes, a fifth of what they would take as they are."""
    return zlib.compress(pickle.dumps(found, _PROTOCOL), 1)


class _Reader(pickle.Unpickler):
    """Makes findings and nothing else: they come from machines whose logs may be anything."""

    def find_class(self, module: str, name: str) -> Any:
        if module not in _MODULES or "." in name:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of observations")
        return super().find_class(module, name)


def unpack(data: bytes) -> Observations:
    """Return observations that ``pack`` has made; raises UnpicklingError for anything else."""
    with gc_tuning.paused():
        found = _Reader(io.BytesIO(zlib.decompress(data))).load()
    if not isinstance(found, Observations):
        raise pickle.UnpicklingError("no observations")
    return found
