"""Fill the placeholders in texts and commands of rules with values from the log.

Texts contain ``{fact:NAME}``, ``{f:FIELD}`` (of the evidence), ``{f:SIGNATURE.FIELD}`` (of any line), ``{rank}``,
``{host}``, ``{count}`` and ``{meaning}``. A part of a text in square brackets is left out if a placeholder in it has no
value; elsewhere such a placeholder becomes "unknown". Commands also contain words in capitals such as HOST, GPU_INDEX and PEER_ADDRESS. Users copy commands into a shell, and the log is untrusted, so
only plain names replace these words. A word remains if several names fit.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit_base import Culprit
from nccl_triage.diagnosis.facts import software
from nccl_triage.diagnosis.scheduler_names import node_of_pod, scheduler_name
from nccl_triage.engine.schema import PLACEHOLDER, text_parts
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.redaction.secrets import mask_text
from nccl_triage.story import addresses
from nccl_triage.story.exceptions import tracebacks

_UNKNOWN = {"en": "unknown", "zh": "未知"}
#: Characters of a line that are masked before it is cut, and that are told in a sentence.
_MASKED, _LONGEST_LINE = 4_000, 200


def _show(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)


def _field(event: Event, name: str) -> str | None:
    """Return a field of a line; ``text`` is its message, unless its signature captures a field of that name."""
    if name == "text" and name not in event.fields:
        return mask_text(event.text.strip().partition("\n")[0][:_MASKED])[:_LONGEST_LINE]
    return event.fields.get(name)


def _value(match: re.Match[str], case: Case, events: Sequence[Event]) -> Any:
    """Return what a placeholder stands for, None if nothing in the log tells."""
    kind, name = match["kind"], match["name"]
    if kind == "fact:":
        value = case.value(name)
        return None if value == [] else value
    if kind == "version:":
        found = software.versions(case).get(name)
        return found[0][0] if found else None
    if kind == "env:":
        found = software.environment(case).get(name)
        return found[0][0] if found else None
    if kind == "f:":
        signature, _, name = name.rpartition(".")
        told = case.of(signature) if signature else events
        return next((value for e in told if (value := _field(e, name)) is not None), None)
    if name == "rank":
        return next((r for e in events if (r := case.rank(e)) is not None), None)
    if name == "host":
        return next((h for e in events if (h := case.host(e)) is not None), None)
    if name == "meaning":
        return next((known.meaning for e in events if (known := case.rules.signatures.get(e.signature))), None)
    return len(events) if name == "count" else None


#: A placeholder, and the plural of "rank" before it, which only several ranks keep.
_WITH_PLURAL = lazily(rf"(?:(?<=\b[Rr]ank)(?P<plural>s) )?(?:{PLACEHOLDER.pattern})")


def fill(text: str, case: Case, events: Sequence[Event], language: str) -> str:
    """Return a text with its placeholders filled in one language."""
    if "{" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        value = _value(match, case, events)
        shown = _UNKNOWN[language] if value is None else _show(value)
        return shown if match["plural"] is None else f"{'' if shown.isdigit() else 's'} {shown}"

    kept = (part for part, optional in text_parts(text) if not optional or _has_values(part, case, events))
    return "".join(_WITH_PLURAL.sub(replace, part) for part in kept)


def tells(text: str, case: Case, events: Sequence[Event]) -> bool:
    """Tell whether the log has a value for every placeholder that a text cannot leave out."""
    return all(optional or _has_values(part, case, events) for part, optional in text_parts(text))


def _has_values(text: str, case: Case, events: Sequence[Event]) -> bool:
    return all(_value(match, case, events) is not None for match in PLACEHOLDER.finditer(text))


def fill_command(command: str, case: Case, events: Sequence[Event] = ()) -> str | None:
    """Return a command with its placeholders filled by quoted shell words, or None if one of them has no value.

    The shell never runs text of a log.
    """
    if not _has_values(command, case, events):
        return None
    return PLACEHOLDER.sub(lambda match: shlex.quote(_show(_value(match, case, events))), command)


def fill_both(text: dict[str, str], case: Case, events: Sequence[Event] = ()) -> dict[str, str]:
    """Return a text with its placeholders filled in every language."""
    return {language: fill(value, case, events, language) for language, value in text.items()}


#: Words in capitals that stand for names of this job: those that ``command_words`` looks for come first.
_COMMAND_WORD = lazily(
    r"(?<![\w${/.-])(?P<name>HOST|NODE|GPU_INDEX|PEER_ADDRESS|LOGS?|PID|JOBID|INTERFACE|MASTER_ADDR|MASTER_PORT|DEVICE|POD"
    r"|SCRIPT)"
    r"(?![\w=])"
)
_PLAIN = lazily(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,120}[A-Za-z0-9])?")
#: The outermost frame of a program's own script.
_SCRIPT = lazily(r"(?P<path>[\w./-]{1,200}\.py):\d+ <module>")


def command_words(case: Case, culprits: Sequence[Culprit], events: Sequence[Event] = ()) -> dict[str, str]:
    """Return the capital words whose values the log tells, with these values; ``events`` are those of the evidence."""
    host = _only(culprit.host for culprit in culprits)
    named = host if host is not None and addresses.parse(host) is None else None  # schedulers know hosts by name
    in_pods = "kubernetes" in software.platform(case)  # where a process takes its pod for its host
    found: dict[str, Any] = {
        "PEER_ADDRESS": case.value("network.target") or _of_roots(case, "peer") or _peer(events),
        "HOST": host,
        "NODE": None if named is None else node_of_pod(case, named) if in_pods else scheduler_name(case, named),
        "PID": _only(culprit.pid for culprit in culprits),
        "GPU_INDEX": _pci_address(case) or (culprits[0].gpu if len(culprits) == 1 else None),
        "INTERFACE": _of_roots(case, "interface", "iface", "ifname"),
        "DEVICE": _of_roots(case, "device", "hca"),
    }
    variables = software.environment(case)
    for word, names in _OF_VARIABLES.items():
        values = {value for name in names for value, _ in variables.get(name, ())}
        found[word] = values.pop() if len(values) == 1 else None
    if found["POD"] is None and in_pods:
        found["POD"] = named
    if found["JOBID"] is None:  # Slurm numbers its steps after the job: "4711.0"
        steps = (event.fields.get("stepid") for event in case.of("slurm.*"))
        found["JOBID"] = _only(step.partition(".")[0] for step in steps if step is not None)
    known = {name: str(value) for name, value in found.items() if value is not None and _PLAIN.fullmatch(str(value))}
    matches = (_SCRIPT.match(event.fields["user_frames"]) for event in tracebacks(case))
    script = _only(match["path"] for match in matches if match is not None)
    return known | _inputs(case) | ({} if script is None or script.startswith("-") else {"SCRIPT": script})


#: Word -> the variables that hold its value.
_OF_VARIABLES = {
    "JOBID": ("SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "LSB_JOBID"),
    "MASTER_ADDR": ("MASTER_ADDR",),
    "MASTER_PORT": ("MASTER_PORT",),
    "POD": ("POD_NAME",),
}
#: So many files are named one by one.
_FILES = 3


def _inputs(case: Case) -> dict[str, str]:
    """Return the paths of the input: the only file, and all files or the folder that holds them."""
    paths = sorted(case.observations.sources)
    if not paths or any(path.startswith(("-", "<")) for path in paths):
        return {}  # standard input, or what may be taken for an option
    one = {"LOG": shlex.quote(paths[0])} if len(paths) == 1 else {}
    if len(paths) <= _FILES:
        return {**one, "LOGS": " ".join(map(shlex.quote, paths))}
    if len({Path(path).is_absolute() for path in paths}) > 1:
        return {}
    folder = os.path.commonpath(map(os.path.dirname, paths))
    return {"LOGS": shlex.quote(folder)} if folder not in ("", "/") else {}


def _pci_address(case: Case) -> str | None:
    """Return the address of the GPU that the NVIDIA driver reports, as nvidia-smi takes it in place of an index.

    An index of a process may be another one's for nvidia-smi, which does not look at CUDA_VISIBLE_DEVICES.
    """
    reports = [
        event
        for event in case.events
        # An SXid has the address of a switch.
        if event.role == "root" and event.signature.startswith("nvidia-driver.") and "sxid" not in event.fields
    ]
    broken = [event for event in reports if event.fields.get("code_kind") == "hardware"]
    address = _only(event.fields.get("bdf") for event in broken or reports)
    return None if address is None else address if "." in address else f"{address}.0"


def _only(values: Iterable[Any]) -> Any:
    """Return the value, if there is exactly one."""
    found = {value for value in values if value is not None and value != ""}
    return found.pop() if len(found) == 1 else None


def _peer(events: Sequence[Event]) -> str | None:
    """Return the address of the first peer that the events name."""
    found = (event.fields["peer"] for event in events if "peer" in event.fields)
    return next((peer for peer in found if addresses.parse(peer) is not None), None)


def _of_roots(case: Case, *names: str) -> str | None:
    """Return the field of the root events, if all of them that have it agree."""
    found = _only(event.fields.get(name) for event in case.events if event.role == "root" for name in names)
    return None if found is None else str(found)


def open_words(command: str) -> list[str]:
    """Return the words of a command that stand for names, which nothing has told yet."""
    return list(dict.fromkeys(match["name"] for match in _COMMAND_WORD.finditer(command)))


def fill_words(command: str, known: dict[str, str]) -> str:
    """Return a command with the known capital words replaced."""
    return _COMMAND_WORD.sub(lambda match: known.get(match["name"], match[0]), command) if known else command
