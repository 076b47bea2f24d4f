"""Fill the placeholders of rule texts and of commands with what the log shows.

Rule texts hold ``{fact:NAME}``, ``{f:FIELD}``, ``{rank}``, ``{host}``, ``{count}`` and ``{meaning}``; commands also hold
words in capitals such as HOST, GPU_INDEX and PEER_ADDRESS. A command is there to be copied into a shell, and names come
from an untrusted log: only plain names are put in, and a word stays where several names would do.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from nccl_triage.diagnosis import software
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit_base import Culprit
from nccl_triage.engine.schema import PLACEHOLDER
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event

_UNKNOWN = {"en": "unknown", "zh": "未知"}


def _show(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)


def fill(text: str, case: Case, events: Sequence[Event], language: str) -> str:
    """Return the text with its placeholders replaced by what the log shows."""
    if "{" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        kind, name = match["kind"], match["name"]
        value: Any = None
        if kind == "fact:":
            value = case.value(name)
        elif kind == "version:":
            found = software.versions(case).get(name)
            value = found[0][0] if found else None
        elif kind == "env:":
            found = software.environment(case).get(name)
            value = found[0][0] if found else None
        elif kind == "f:":
            value = next((e.fields[name] for e in events if name in e.fields), None)
        elif name == "rank":
            value = next((r for e in events if (r := case.rank(e)) is not None), None)
        elif name == "host":
            value = next((h for e in events if (h := case.host(e)) is not None), None)
        elif name == "meaning":
            value = next((known.meaning for e in events if (known := case.rules.signatures.get(e.signature))), None)
        elif name == "count":
            value = len(events)
        return _UNKNOWN[language] if value is None or value == [] else _show(value)

    return PLACEHOLDER.sub(replace, text)


def fill_command(command: str, case: Case) -> str:
    """Return a command with its placeholders filled by single quoted shell words, so that text from a log is never run."""
    return PLACEHOLDER.sub(lambda match: shlex.quote(fill(match[0], case, [], "en")), command)


def fill_both(text: dict[str, str], case: Case, events: Sequence[Event] = ()) -> dict[str, str]:
    """Return the text in every language, filled."""
    return {language: fill(value, case, events, language) for language, value in text.items()}


_COMMAND_WORD = lazily(r"(?<![\w${])(?P<name>HOST|NODE|GPU_INDEX|PEER_ADDRESS|LOG)(?![\w=])")
_PLAIN = lazily(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,120}[A-Za-z0-9])?")


def command_words(case: Case, culprits: Sequence[Culprit]) -> dict[str, str]:
    """Return the words that the log decides, with their values."""
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


def fill_words(command: str, known: dict[str, str]) -> str:
    """Return the command with the known words filled in; the others stay."""
    return _COMMAND_WORD.sub(lambda match: known.get(match["name"], match[0]), command) if known else command
