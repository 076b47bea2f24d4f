"""JSON documents of tools as lines: torchelastic's error.json, ``dcgmi diag -j``, ``nccl-triage doctor``.

They are read without trust in their form.

"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from nccl_triage.observations.store import SourceInfo
from nccl_triage.tool_reports import ToolReport


def load(data: bytes) -> Any:
    """Return what a document holds; None if it is no JSON.

    json, not orjson: Python writes lone surrogates for undecodable bytes, which orjson refuses.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def rows(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings of a list; none if it is no list."""
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


#: The file holds one traceback; something larger is another file of that name.
_MAX_ERROR = 4 << 20


def _traceback_of(document: object) -> str | None:
    if not isinstance(document, Mapping):
        return None
    message = document.get("message")
    if isinstance(message, str):
        return message
    if not isinstance(message, Mapping):
        return None
    extra = message.get("extraInfo")
    for candidate in (
        extra.get("py_callstack") if isinstance(extra, Mapping) else None,
        message.get("message"),
    ):
        if isinstance(candidate, str) and candidate.strip():
            return candidate
    return None


def _is_error_json(name: str, sample: bytes) -> bool:
    return name == "error.json"


def render_torch_error(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the traceback (or, without one, the message) of an error file as lines; None for another document."""
    text = _traceback_of(load(data))
    return None if text is None else text.rstrip("\n").encode("utf-8", "replace") + b"\n"


_TORCH_ERROR = ToolReport("torch-error", _MAX_ERROR, _is_error_json, render_torch_error)


_MAX_DIAG = 8 << 20
_DIAG_KEYS = ("DCGM GPU Diagnostic", "DCGM Diagnostic")
_DIAG_MARKS = tuple(f'"{key}"'.encode() for key in _DIAG_KEYS)
#: Characters of a warning, and results, that are told at most.
_MAX_WARNING, _MAX_RESULTS = 400, 20_000


def _is_dcgm_diag(name: str, sample: bytes) -> bool:
    return sample.lstrip()[:1] == b"{" and any(mark in sample for mark in _DIAG_MARKS)


def _flat(value: object) -> str:
    """Return texts, and lists and mappings of them, as one line."""
    if isinstance(value, Mapping):
        return _flat(value.get("warning") or value.get("message") or list(value.values()))
    if isinstance(value, list):
        return "; ".join(filter(None, (_flat(item) for item in value[:8])))
    return " ".join(str(value).split()) if value is not None else ""


def _who(result: Mapping[str, Any]) -> str:
    for name in ("gpu_id", "gpu_ids", "entity_id"):
        if result.get(name) is not None:
            group = str(result.get("entity_group") or "GPU").lower()
            return f" {group}={_flat(result[name])[:80]}"
    return ""


def _results(document: Mapping[str, Any]) -> Iterator[str]:
    for category in rows(document.get("test_categories")):
        for test in rows(category.get("tests")):
            for result in rows(test.get("results")):
                warning = _flat(result.get("warnings"))[:_MAX_WARNING]
                told = f" warnings={warning}" if warning else ""
                yield f"dcgm diag: test={_flat(test.get('name'))[:60]}{_who(result)} status={_flat(result.get('status'))[:20]}{told}"


def render_dcgm_diag(data: bytes, info: SourceInfo) -> bytes | None:
    """Return one line a result; None for another document."""
    whole = load(data)
    inner = next((whole[key] for key in _DIAG_KEYS if key in whole), None) if isinstance(whole, Mapping) else None
    if not isinstance(inner, Mapping):
        return None
    lines = [line for _, line in zip(range(_MAX_RESULTS), _results(inner), strict=False)]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


_DCGM_DIAG = ToolReport("dcgm-diag", _MAX_DIAG, _is_dcgm_diag, render_dcgm_diag)


#: Documents of thousands of hosts; what is larger is none of ours.
_MAX_DOCTOR = 256 << 20
#: What such a document calls itself, and characters kept of a value.
_DOCTOR_KIND, _MAX_VALUE = "nccl-triage-doctor", 600
_DOCTOR_MARK = b'"nccl-triage-doctor"'


def _is_doctor(name: str, sample: bytes) -> bool:
    # Keys are sorted: what says the kind may stand behind the facts, the differences and the hosts stand first.
    start = sample.lstrip()[:200]
    return start.startswith(b"{") and (_DOCTOR_MARK in sample or start[1:].lstrip().startswith(b'"differences"'))


def render_doctor(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the lines of a document, None for what is none."""
    document = load(data)
    if not isinstance(document, dict) or document.get("kind") != _DOCTOR_KIND:
        return None
    hosts = rows(document.get("hosts"))
    # No word of the heading is one that people filter logs for: all other lines share one.
    heading = json.dumps({"message": f"facts of {len(hosts)} hosts, seen at {_word(document.get('time'))}"})
    lines = [heading, *(line for host in hosts for line in _host(host))]
    return b"".join(line.encode("utf-8", "replace") + b"\n" for line in lines)


def _host(host: Mapping[str, Any]) -> Iterator[str]:
    name = _word(host.get("host"))
    facts = host.get("facts")
    for address in _addresses(facts if isinstance(facts, dict) else {}):
        yield _line(name, f"fact=address value={address}")
    for check in rows(host.get("checks")):
        if check.get("state") != "ok":
            subject = f" subject={_word(check.get('subject'))}" if check.get("subject") else ""
            head = f"check={_word(check.get('id'))} state={_word(check.get('state'))}{subject}"
            yield _line(name, f"{head} says: {_text(check.get('says'))}")
    comparable = host.get("comparable")
    for fact, value in sorted(comparable.items()) if isinstance(comparable, dict) else ():
        yield _line(name, f"fact={_word(fact)} value={_text(value)}")


def _addresses(facts: Mapping[str, Any]) -> Iterator[str]:
    network = facts.get("network")
    for entry in rows(network.get("interfaces")) if isinstance(network, dict) else ():
        if not entry.get("loopback") and isinstance(entry.get("address"), str):
            yield _word(entry["address"])


def _line(host: str, said: str) -> str:
    return json.dumps({"host": host, "message": f"nccl-triage doctor: host={host} {said}"}, ensure_ascii=False)


def _text(value: Any) -> str:
    """Return a text in one line."""
    return " ".join(str(value).split())[:_MAX_VALUE]


def _word(value: Any) -> str:
    """Return a text as one word."""
    return "_".join(str(value).split())[:_MAX_VALUE] or "-"


_DOCTOR = ToolReport("doctor", _MAX_DOCTOR, _is_doctor, render_doctor)

REPORTS = (_DCGM_DIAG, _DOCTOR, _TORCH_ERROR)
