"""Fill the placeholders of rule texts: ``{fact:NAME}``, ``{f:FIELD}``, ``{rank}``, ``{host}``, ``{count}``, ``{meaning}``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from nccl_triage.diagnosis import software
from nccl_triage.diagnosis.case import Case
from nccl_triage.engine.placeholders import PLACEHOLDER
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
    """Return a command with its placeholders filled by single shell words: what a log says must not run."""
    return PLACEHOLDER.sub(lambda match: shlex.quote(fill(match[0], case, [], "en")), command)


def fill_both(text: dict[str, str], case: Case, events: Sequence[Event] = ()) -> dict[str, str]:
    """Return the text in every language, filled."""
    return {language: fill(value, case, events, language) for language, value in text.items()}
