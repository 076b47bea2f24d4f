"""The blanks of a command (HOST, GPU_INDEX, PEER_ADDRESS ..) filled with what the log names beyond doubt.

A command is there to be copied into a shell, and names come from an untrusted log: only plain names are put in, and
where several would do the blank stays.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit import Culprit
from nccl_triage.lazy_regex import lazily

_BLANK = lazily(r"(?<![\w${])(?P<name>HOST|NODE|GPU_INDEX|PEER_ADDRESS|LOG)(?![\w=])")
_PLAIN = lazily(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,120}[A-Za-z0-9])?")


def values(case: Case, culprits: Sequence[Culprit]) -> dict[str, str]:
    """Return blank -> value for those that the log decides."""
    hosts = {culprit.host for culprit in culprits if culprit.host}
    gpus = {culprit.gpu for culprit in culprits if culprit.gpu is not None}
    found = {"PEER_ADDRESS": case.value("network.target") or _only_peer(case)}
    if len(hosts) == 1:
        found["HOST"] = found["NODE"] = hosts.pop()
    if len(gpus) == 1 and len(culprits) == 1:
        found["GPU_INDEX"] = gpus.pop()
    known = {name: str(value) for name, value in found.items() if value is not None and _PLAIN.fullmatch(str(value))}
    sources = list(case.observations.sources)
    if len(sources) == 1 and not sources[0].startswith(("-", "<")):  # neither standard input nor an option
        known["LOG"] = shlex.quote(sources[0])
    return known


def _only_peer(case: Case) -> str | None:
    """Return the peer that the faults name, where all of them name the same."""
    peers = {event.fields["peer"] for event in case.events if event.role == "root" and event.fields.get("peer")}
    return peers.pop() if len(peers) == 1 else None


def fill(command: str, known: dict[str, str]) -> str:
    """Return the command with the known blanks filled; the others stay as they are."""
    return _BLANK.sub(lambda match: known.get(match["name"], match[0]), command) if known else command
