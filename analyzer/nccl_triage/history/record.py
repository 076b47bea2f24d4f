"""Makes the incident that is kept from a report document: what happened to whom, and none of its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_triage._version import __version__
from nccl_triage.history.incidents import Input, JobIdentity, KeptIncident, KeptSuspect
from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import whole
from nccl_triage.parsers import times

#: What is kept of one incident at most: logs, hosts, culprits, versions, characters of a text.
_LOGS, _HOSTS, _CULPRITS, _VERSIONS, _TEXT = 64, 4096, 16, 24, 400
#: Seconds by which the clock of a log may be ahead of ours: zones differ.
_AHEAD = 86400.0
#: How the driver names a GPU: ``NVRM: Xid (PCI:0000:3b:00): 79, ...``.
_PCI = lazily(r"\bPCI:(?:[0-9a-f]{4,8}:)?(?P<bus>[0-9a-f]{2}:[0-9a-f]{2})\b", re.IGNORECASE)


def incident(
    document: Mapping[str, Any],
    now: float,
    marks: Mapping[str, Sequence[str]] | None = None,
    identity: JobIdentity | None = None,
) -> KeptIncident:
    """Return what is kept of a document that was made ``now``; ``marks`` are those of its inputs by path."""
    known = identity or JobIdentity()
    best = (document.get("diagnoses") or [None])[0] if document.get("verdict") == "diagnosed" else None
    job, inputs = document.get("job") or {}, document.get("inputs") or []
    moment = _moment(document, now)
    hosts = [text for host in job.get("hosts") or [] if (text := _text(host.get("name")))]
    software = sorted((job.get("software") or {}).items()) if document.get("verdict") != "healthy" else []
    return KeptIncident(
        verdict=str(document.get("verdict")),
        happened=now if moment is None else moment,
        recorded=now,
        dated=moment is not None,
        cause=_text(best.get("cause")) if best else None,
        family=_text(best.get("family")) if best else None,
        status=_text(best.get("status")) if best else None,
        confidence=float(best.get("confidence") or 0.0) if best else None,
        # Of a cause its title: a headline quotes lines of the log, and none of them is kept.
        headline=_text(best.get("title") if best else document.get("headline")) or "",
        headline_zh=_text(best.get("title_zh") if best else document.get("headline_zh")) or "",
        world_size=_number(job.get("world_size")),
        launcher=_text(job.get("launcher")),
        hosts=tuple(hosts[:_HOSTS]),
        host_count=len(hosts),
        software={str(name)[:40]: str(value)[:80] for name, value in software[:_VERSIONS] if value is not None},
        tool=__version__,
        job=_text(known.name),
        job_id=_text(known.id),
        command=known.command,
        bytes=sum(int(one.get("bytes") or 0) for one in inputs),
        lines=sum(int(one.get("lines") or 0) for one in inputs),
        culprits=tuple(_culprits(best, hosts))[:_CULPRITS] if best else (),
        inputs=tuple(_input(one, marks or {}) for one in inputs[:_LOGS]),
    )


def _text(value: object) -> str | None:
    """Return a text that can be stored, None for nothing."""
    return str(value)[:_TEXT].encode("utf-8", "replace").decode() if value else None


def _number(value: object) -> int | None:
    """Return a number that a column can hold."""
    return value if isinstance(value, int) and abs(value) < 1 << 62 else None


def _input(one: Mapping[str, Any], marks: Mapping[str, Sequence[str]]) -> Input:
    path = str(one.get("path"))
    kept = tuple(marks.get(path, ()))
    # Who reads it later stands in another folder; <stdin> and the paths of other hosts stay as they are.
    local = not path.startswith("<") and ":/" not in path
    return Input(
        _text(str(Path(path).absolute()) if local else path) or "",
        int(one.get("bytes") or 0),
        int(one.get("lines") or 0),
        kept,
    )


def _culprits(best: Mapping[str, Any], hosts: Sequence[str]) -> Iterator[KeptSuspect]:
    for culprit in best.get("culprits") or []:
        host = culprit.get("host") or culprit.get("address") or (hosts[0] if len(hosts) == 1 else None)
        yield KeptSuspect(
            host=_text(host),
            rank=_number(culprit.get("rank")),
            gpu=_number(culprit.get("gpu")),
            address=_text(culprit.get("address")),
            pid=_number(culprit.get("pid")),
            pci=_pci(best, host),
        )


def _pci(best: Mapping[str, Any], host: object) -> str | None:
    """Return the one GPU that the driver's lines of a host name."""
    lines = [
        str(item.get("text"))
        for item in best.get("evidence") or []
        if str(item.get("signature")).startswith("nvidia-driver.") and item.get("host") in (None, host)
    ]
    found = {match["bus"].lower() for line in lines for match in _PCI.finditer(line)}
    return found.pop() if len(found) == 1 else None


def _moment(document: Mapping[str, Any], now: float) -> float | None:
    """Return when it happened by the log's own clock, None where that is not known or cannot be."""
    story = document.get("incident") or {}
    stamps = [story.get("started"), (story.get("first_fault") or {}).get("time")]
    stamps += [moment.get("time") for moment in reversed(document.get("timeline") or [])]
    for stamp in stamps:
        moment = times.from_stamp(str(stamp)) if stamp and whole(str(stamp)[:4]) is not None else None
        if moment is not None and times.has_year(moment):
            return moment if moment <= now + _AHEAD else None
    return None
