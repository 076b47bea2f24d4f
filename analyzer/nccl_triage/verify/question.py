"""What a report document asks of the verifier: the collective, the world, the hosts, the variables of the job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.verify.worker.ops import OPERATIONS, UNKNOWN_NUMEL

_PORT = re.compile(r"(?:master_port|MASTER_PORT|port|\[::\]|0\.0\.0\.0)[\"']?[ =:]{1,3}(\d{2,5})\b")
_MASTER = re.compile(r"(?:master_addr(?:ess)?|MASTER_ADDR)[\"']?[ =:]{1,3}([\w.-]{3,80})")
_VARIABLE = re.compile(r"\b(?:NCCL|GLOO)_[A-Z0-9_]{2,40}\b")
#: Variables of the job that an experiment repeats.
_ENV = ("NCCL_", "GLOO_", "TORCH_NCCL_")
#: Of these, what would only make the experiment talk, dump or wait differently.
_NOT_REPEATED = re.compile(r"NCCL_DEBUG|_DUMP|_TIMEOUT|TRACE_BUFFER|NCCL_HOSTID|NCCL_COMM_ID|DESYNC|BLOCKING_WAIT")


@dataclass(frozen=True, slots=True)
class Suspect:
    """A cause of the document with the ranks and hosts that it blames."""

    cause: str
    status: str
    confidence: float
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """What is known of the failure, None or empty where the log did not tell."""

    suspects: tuple[Suspect, ...]
    op: str | None = None
    numel: int | None = None
    dtype: str | None = None
    world: int | None = None
    timeout: float | None = None
    hosts: tuple[str, ...] = ()
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranks_of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    backend: str | None = None
    port: int | None = None
    master: str | None = None


def _texts(document: Mapping[str, Any]) -> Iterator[str]:
    for found in document.get("diagnoses", []):
        for entry in found.get("evidence", []):
            yield entry["text"]
    for excerpt in document.get("excerpts", []):
        yield from excerpt.get("lines", [])
    for moment in document.get("timeline", []):
        yield moment["text"]


def _first(pattern: re.Pattern[str], texts: Iterable[str]) -> str | None:
    return next((match[1] for text in texts if (match := pattern.search(text))), None)


def _env(document: Mapping[str, Any]) -> dict[str, str]:
    kept = {}
    for name, value in document.get("job", {}).get("env", {}).items():
        # Ranks that disagree: the first value is as good as any, the difference is named in the report.
        single = value[0] if isinstance(value, list) and value else value
        if name.startswith(_ENV) and not _NOT_REPEATED.search(name) and isinstance(single, str):
            kept[name] = single
    return kept


def _backend(document: Mapping[str, Any]) -> str | None:
    names = [symptom["signature"] for symptom in document.get("symptoms", [])]
    if document.get("job", {}).get("software", {}).get("nccl") or any(name.startswith("nccl.") for name in names):
        return "nccl"
    if any(name.startswith("gloo.") for name in names):
        return "gloo"
    return "nccl" if document.get("collective") else None


def _suspects(document: Mapping[str, Any]) -> tuple[Suspect, ...]:
    found = []
    for entry in document.get("diagnoses", []):
        culprits = entry.get("culprits", [])
        ranks = tuple(sorted({c["rank"] for c in culprits if c.get("rank") is not None}))
        hosts = tuple(dict.fromkeys(c["host"] for c in culprits if c.get("host")))
        named = [name for line in entry.get("evidence", []) for name in _VARIABLE.findall(line["text"])]
        variables = tuple(dict.fromkeys(named))
        found.append(Suspect(entry["cause"], entry["status"], entry["confidence"], ranks, hosts, variables))
    return tuple(found)


def ask(document: Mapping[str, Any]) -> Question:
    """Read a report document; every field that it lacks stays empty."""
    collective = document.get("collective") or {}
    job = document.get("job", {})
    texts = list(_texts(document))
    op = collective.get("op")
    numel = collective.get("numel_in")
    port = _first(_PORT, texts)
    hosts = [host for host in job.get("hosts", []) if host.get("name")]
    return Question(
        suspects=_suspects(document),
        op=op if op in OPERATIONS else None,
        numel=int(numel) if numel is not None and 0 < int(numel) < UNKNOWN_NUMEL else None,
        dtype=collective.get("dtype"),
        world=collective.get("world_size") or job.get("world_size"),
        timeout=(collective.get("timeout_ms") or 0) / 1000 or None,
        hosts=tuple(host["name"] for host in hosts),
        addresses={host["name"]: tuple(host.get("addresses", ())) for host in hosts},
        ranks_of={host["name"]: tuple(host.get("ranks", ())) for host in hosts},
        env=_env(document),
        versions={name: str(value) for name, value in job.get("software", {}).items()},
        backend=_backend(document),
        port=int(port) if port and 0 < int(port) < 65536 else None,
        master=_first(_MASTER, texts),
    )
