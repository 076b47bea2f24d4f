"""The JSON of ``nccl-triage doctor`` as a line a fact, each a record that names its host.

A check that is not ok is one line, and so is every value that should be that of all other hosts: which differ is found
among the hosts of all documents together. Times are left out: facts hold for a host, not for a moment of the job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from nccl_triage.observations.store import SourceInfo
from nccl_triage.renderings import documents
from nccl_triage.renderings.form import Rendering

#: Documents of thousands of hosts; what is larger is none of ours.
MAX_SIZE = 256 << 20
#: What such a document calls itself, and characters kept of a value.
_KIND, _LONGEST = "nccl-triage-doctor", 600
_MARK = b'"nccl-triage-doctor"'


def _recognises(name: str, sample: bytes) -> bool:
    # Keys are sorted: what says the kind may stand behind the facts, the differences and the hosts stand first.
    start = sample.lstrip()[:200]
    return start.startswith(b"{") and (_MARK in sample or start[1:].lstrip().startswith(b'"differences"'))


def render(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the lines of a document, None for what is none."""
    document = documents.load(data)
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        return None
    hosts = documents.rows(document.get("hosts"))
    # No word of the heading is one that people filter logs for: all other lines share one.
    heading = json.dumps({"message": f"facts of {len(hosts)} hosts, seen at {_word(document.get('time'))}"})
    lines = [heading, *(line for host in hosts for line in _host(host))]
    return b"".join(line.encode("utf-8", "replace") + b"\n" for line in lines)


def _host(host: Mapping[str, Any]) -> Iterator[str]:
    name = _word(host.get("host"))
    facts = host.get("facts")
    for address in _addresses(facts if isinstance(facts, dict) else {}):
        yield _line(name, f"fact=address value={address}")
    for check in documents.rows(host.get("checks")):
        if check.get("state") != "ok":
            subject = f" subject={_word(check.get('subject'))}" if check.get("subject") else ""
            head = f"check={_word(check.get('id'))} state={_word(check.get('state'))}{subject}"
            yield _line(name, f"{head} says: {_text(check.get('says'))}")
    comparable = host.get("comparable")
    for fact, value in sorted(comparable.items()) if isinstance(comparable, dict) else ():
        yield _line(name, f"fact={_word(fact)} value={_text(value)}")


def _addresses(facts: Mapping[str, Any]) -> Iterator[str]:
    network = facts.get("network")
    for entry in documents.rows(network.get("interfaces")) if isinstance(network, dict) else ():
        if not entry.get("loopback") and isinstance(entry.get("address"), str):
            yield _word(entry["address"])


def _line(host: str, said: str) -> str:
    return json.dumps({"host": host, "message": f"nccl-triage doctor: host={host} {said}"}, ensure_ascii=False)


def _text(value: Any) -> str:
    """Return a text in one line."""
    return " ".join(str(value).split())[:_LONGEST]


def _word(value: Any) -> str:
    """Return a text as one word."""
    return "_".join(str(value).split())[:_LONGEST] or "-"


RENDERING = Rendering("doctor", MAX_SIZE, _recognises, render)
