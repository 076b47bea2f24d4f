"""The question that a report document poses to the verifier: collective, world, hosts, and variables of the job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.hosts.probes.gpu import pci_address
from nccl_triage.lazy_regex import lazily
from nccl_triage.verify import variables
from nccl_triage.verify.proofs import proves
from nccl_triage.verify.worker.ops import OPERATIONS, UNKNOWN_NUMEL

_PORT = lazily(r"(?<![A-Za-z])(?:master_port|MASTER_PORT|port|\[::\]|0\.0\.0\.0)[\"']?[ =:]{1,3}(\d{2,5})\b")
_MASTER = lazily(r"(?:master_addr(?:ess)?|MASTER_ADDR)[\"']?[ =:]{1,3}([\w.-]{3,80})")
_RAY_ADDRESS = lazily(r"^([\w.-]{1,120}:\d{2,5})$")
_RAY = lazily(r"Connecting to existing Ray cluster at address: ([\w.-]{1,80}:\d{2,5})(?!\d)")
_GPU_ADDRESS = lazily(r"\bGPU ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\b", re.IGNORECASE)
_VARIABLE = lazily(r"\b(?:NCCL|GLOO)_[A-Z0-9_]{2,40}\b")

#: Id of what experiments contribute to the score of a cause.
EVIDENCE_ID = "verification"

#: Bounds of what a log can mean: ranks of a job, and 30 days of timeout.
MOST_RANKS, MOST_MILLISECONDS = 1 << 20, 30 * 86_400_000
#: Characters of a name at most: no host has a longer one (RFC 1035).
LONGEST_NAME = 255
#: torch says ALLGATHER_COALESCED in its logs (Work.cpp) and ALLGATHER_coalesced in its flight recorder.
_OPS = {name.upper(): name for name in OPERATIONS}


@dataclass(frozen=True, slots=True)
class AccusedGpu:
    """A GPU that a cause blames: its host as the log calls it, and its index or PCI address (``0000:4f:00``), or both."""

    host: str | None
    index: int | None = None
    bus: str | None = None

    def __str__(self) -> str:
        which = f"GPU {self.bus if self.index is None else self.index}"
        return f"{which} of {self.host}" if self.host else which


@dataclass(frozen=True, slots=True)
class SuspectedCause:
    """A cause of the document with the ranks, hosts and GPUs that it blames.

    ``proven``: the log itself has decisive evidence of it.
    """

    cause: str
    status: str
    confidence: float
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    gpus: tuple[AccusedGpu, ...] = ()
    proven: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """What is known of the failure, None or empty where the log did not tell.

    ``env`` are the job's variables that an experiment repeats, ``left_out`` the names of those that it should and does not.
    """

    suspects: tuple[SuspectedCause, ...]
    op: str | None = None
    numel: int | None = None
    dtype: str | None = None
    world: int | None = None
    timeout: float | None = None
    hosts: tuple[str, ...] = ()
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranks_of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    backend: str | None = None
    port: int | None = None
    master: str | None = None
    ray_address: str | None = None
    root: int = 0
    uneven: bool = False


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(entry for entry in value if isinstance(entry, str)) if isinstance(value, list) else ()


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _name(value: Any) -> str | None:
    """Return what may be the name of something; a longer one is cut, and then matches nothing."""
    return value[:LONGEST_NAME] if isinstance(value, str) and value else None


def _names(value: Any) -> tuple[str, ...]:
    return tuple(filter(None, map(_name, value))) if isinstance(value, list) else ()


def _whole(value: Any, most: int, least: int = 1) -> int | None:
    """Return a whole number within bounds, None for anything else: a report may have been written by anybody."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if least <= value <= most else None


def _ranks(value: Any) -> tuple[int, ...]:
    found = (_whole(entry, MOST_RANKS, 0) for entry in value) if isinstance(value, list) else ()
    return tuple(rank for rank in found if rank is not None)


def _texts(document: Mapping[str, Any]) -> Iterator[str]:
    for found in _mappings(document.get("diagnoses")):
        for entry in _mappings(found.get("evidence")):
            yield _string(entry.get("text")) or ""
    for excerpt in _mappings(document.get("excerpts")):
        yield from _strings(excerpt.get("lines"))
    for moment in _mappings(document.get("timeline")):
        yield _string(moment.get("text")) or ""


def _first(pattern: re.Pattern[str], texts: Iterable[str]) -> str | None:
    return next((match[1] for text in texts if (match := pattern.search(text))), None)


def _backend(document: Mapping[str, Any]) -> str | None:
    names = [_string(symptom.get("signature")) or "" for symptom in _mappings(document.get("symptoms"))]
    software = _mapping(_mapping(document.get("job")).get("software"))
    if software.get("nccl") or any(name.startswith("nccl.") for name in names):
        return "nccl"
    if any(name.startswith("gloo.") for name in names):
        return "gloo"
    return "nccl" if document.get("collective") else None


def _proven(entry: Mapping[str, Any]) -> bool:
    """Tell whether the log, and no experiment, proves a cause: by evidence that decides, or by an error number."""
    lines = (_string(line.get("text")) or "" for line in _mappings(entry.get("evidence")))
    cause = _string(entry.get("cause")) or ""
    return any(proves(line, cause) for line in lines) or any(
        item.get("weight") == "decisive"
        and item.get("id") != EVIDENCE_ID
        and item.get("explained_by") is None
        and isinstance(odds := item.get("log_odds"), (int, float))
        and odds > 0
        for item in _mappings(entry.get("contributions"))
    )


def _accused_gpu(culprit: Mapping[str, Any], ranks: Mapping[int, Mapping[str, Any]]) -> AccusedGpu | None:
    """Return the GPU that a culprit is, or that its rank had; the address of a GPU is in the words that say why."""
    rank = _whole(culprit.get("rank"), MOST_RANKS, 0)
    about = ranks.get(rank, {}) if rank is not None else {}
    bus = pci_address(culprit.get("gpu")) or pci_address(_first(_GPU_ADDRESS, [_string(culprit.get("why")) or ""]))
    known = (culprit.get("gpu"), about.get("gpu"), about.get("local_rank"))
    index = next((number for value in known if (number := _whole(value, 1023, 0)) is not None), None)
    if bus is None and index is None:
        return None
    return AccusedGpu(_name(culprit.get("host")) or _name(about.get("host")), index, bus)


def _suspects(document: Mapping[str, Any]) -> tuple[SuspectedCause, ...]:
    found = []
    listed = _mappings(_mapping(document.get("job")).get("ranks"))
    table = {rank: entry for entry in listed if (rank := _whole(entry.get("rank"), MOST_RANKS, 0)) is not None}
    for entry in _mappings(document.get("diagnoses")):
        cause = _name(entry.get("cause"))
        if cause is None:
            continue
        culprits = _mappings(entry.get("culprits"))
        ranks = tuple(sorted(set(_ranks([culprit.get("rank") for culprit in culprits]))))
        hosts = tuple(dict.fromkeys(_names([culprit.get("host") for culprit in culprits])))
        texts = [_string(line.get("text")) or "" for line in _mappings(entry.get("evidence"))]
        variables = tuple(dict.fromkeys(name for text in texts for name in _VARIABLE.findall(text)))
        confidence = entry.get("confidence")
        sure = float(confidence) if isinstance(confidence, (int, float)) else 0.0
        gpus = tuple(dict.fromkeys(filter(None, (_accused_gpu(culprit, table) for culprit in culprits))))
        status = _name(entry.get("status")) or "possible"
        found.append(SuspectedCause(cause, status, sure, ranks, hosts, variables, gpus, _proven(entry)))
    return tuple(found)


def _uneven(collective: Mapping[str, Any]) -> bool:
    """Tell whether ranks had shares of different sizes, as far as one rank's numbers of elements show it.

    torch logs such an all_gather or reduce_scatter of lists with NumelIn=2^64-1 (ProcessGroupNCCL.cpp).
    """
    op = (_string(collective.get("op")) or "").upper()
    given, taken = (_whole(collective.get(name), UNKNOWN_NUMEL, 0) for name in ("numel_in", "numel_out"))
    if op.startswith("ALLTOALL"):
        return given is not None and taken is not None and given != taken
    return op in ("ALLGATHER", "REDUCE_SCATTER") and given == UNKNOWN_NUMEL


def ask(document: Mapping[str, Any], trusted: bool = False) -> Question:
    """Read a report document; missing and invalid fields stay empty. ``trusted``: as for ``variables.of_log``."""
    collective, job = _mapping(document.get("collective")), _mapping(document.get("job"))
    texts = list(_texts(document))
    timeout = _whole(collective.get("timeout_ms"), MOST_MILLISECONDS)
    hosts = {name: host for host in _mappings(job.get("hosts")) if (name := _name(host.get("name")))}
    repeated = variables.of_log(_mapping(job.get("env")), trusted)
    return Question(
        suspects=_suspects(document),
        op=_OPS.get((_string(collective.get("op")) or "").upper()),
        numel=_whole(collective.get("numel_in"), UNKNOWN_NUMEL - 1),
        dtype=_name(collective.get("dtype")),
        world=_whole(collective.get("world_size"), MOST_RANKS) or _whole(job.get("world_size"), MOST_RANKS),
        timeout=timeout / 1000 if timeout else None,
        hosts=tuple(hosts),
        addresses={name: _names(host.get("addresses")) for name, host in hosts.items()},
        ranks_of={name: _ranks(host.get("ranks")) for name, host in hosts.items()},
        env=repeated.env,
        left_out=repeated.left_out,
        versions={name: str(value)[:LONGEST_NAME] for name, value in _mapping(job.get("software")).items()},
        backend=_backend(document),
        port=_whole(_first(_PORT, texts), 65535, 1024),  # lower ones are not for users
        master=_first(_MASTER, texts),
        ray_address=_first(_RAY_ADDRESS, [_string(job.get("ray_address")) or ""]) or _first(_RAY, texts),
        root=_whole(collective.get("root"), MOST_RANKS, 0) or 0,
        uneven=_uneven(collective),
    )
