"""Fill the placeholders in texts and commands of rules with values from the log.

Texts contain ``{fact:NAME}``, ``{f:FIELD}``, ``{rank}``, ``{host}``, ``{count}`` and ``{meaning}``. Commands also contain
words in capitals such as HOST, GPU_INDEX and PEER_ADDRESS. Users copy commands into a shell, and the log is untrusted, so
only plain names replace these words. A word remains if several names fit.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit_base import Culprit
from nccl_triage.diagnosis.facts import software
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
    """Return a text with its placeholders filled in one language."""
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
    """Return a command with its placeholders filled by quoted shell words, so that the shell never runs text of a log."""
    return PLACEHOLDER.sub(lambda match: shlex.quote(fill(match[0], case, [], "en")), command)


def fill_both(text: dict[str, str], case: Case, events: Sequence[Event] = ()) -> dict[str, str]:
    """Return a text with its placeholders filled in every language."""
    return {language: fill(value, case, events, language) for language, value in text.items()}


_COMMAND_WORD = lazily(r"(?<![\w${])(?P<name>HOST|NODE|GPU_INDEX|PEER_ADDRESS|LOG)(?![\w=])")
_PLAIN = lazily(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,120}[A-Za-z0-9])?")


def command_words(case: Case, culprits: Sequence[Culprit]) -> dict[str, str]:
    """Return the capital words whose values the log tells, with these values."""
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
    """Return the peer of the root events, if all of them name the same one."""
    peers = {event.fields["peer"] for event in case.events if event.role == "root" and event.fields.get("peer")}
    return peers.pop() if len(peers) == 1 else None


def fill_words(command: str, known: dict[str, str]) -> str:
    """Return a command with the known capital words replaced."""
    return _COMMAND_WORD.sub(lambda match: known.get(match["name"], match[0]), command) if known else command
