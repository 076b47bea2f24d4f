"""The manifest of ``nccl-triage hang`` as lines: which process is which rank, what the kernel says of it, which rank has none.

It is read without trust in its form: the folder may have come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nccl_triage.observations.store import SourceInfo
from nccl_triage.tool_reports import ToolReport
from nccl_triage.tool_reports.json_reports import load, rows

MAX_SIZE = 256 << 20
_KIND, _HEAD = "nccl-triage-hang", "nccl-triage hang:"
#: Characters kept of a value.
_MAX_VALUE = 300


def _recognises(name: str, sample: bytes) -> bool:
    # Keys are sorted: the hosts come first, and what says the kind may be behind them.
    start = sample.lstrip()[:200]
    return name == "hang.json" and start.startswith(b"{") and b'"hosts"' in start


def render(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the lines of a manifest, None for another document."""
    document = load(data)
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        return None
    hosts = rows(document.get("hosts"))
    # No word of the heading is one that people filter logs for: all other lines share one.
    lines = [f"seen at {_word(document.get('time'))}", *(line for host in hosts for line in _host(host))]
    if document.get("advanced") is True:
        lines.append(f"{_HEAD} the job went on between the two samples")
    return b"".join(line.encode("utf-8", "replace") + b"\n" for line in lines)


def _host(host: Mapping[str, Any]) -> Iterator[str]:
    name = _word(host.get("host"))
    for one in rows(host.get("ranks")):
        keys = ("rank", "local_rank", "world_size")
        told = [f"{key}={number}" for key in keys if (number := _whole(one.get(key))) is not None]
        samples = rows(one.get("samples"))
        last = samples[-1] if samples else {}
        if last.get("gone") is True:
            state = "gone"
        else:
            state = f"{_word(last.get('state'))} wchan={_place(last)} gpu={'no' if last.get('gpu') is False else 'yes'}"
            state += _processor(samples[-2:])
        pid = _whole(one.get("pid"))
        numbers = "".join(f"{word} " for word in told)
        yield f"{_HEAD} host={name} pid={pid} {numbers}state={state} runs: {_text(one.get('command'))}"
    missing = host.get("without_process")
    codes = host.get("exit_codes")
    for rank in missing if isinstance(missing, list) else ():
        if _whole(rank) is not None:
            code = codes.get(str(rank)) if isinstance(codes, dict) else None
            ended = f", status={code}" if type(code) is int and abs(code) < 256 else ""
            yield f"{_HEAD} rank {rank} has no process left on {name}{ended}"


def _place(sample: Mapping[str, Any]) -> str:
    """Return where the kernel has a process wait: its function, or the number of the system call where that is hidden."""
    call = str(sample.get("syscall") or "").partition(" ")[0]
    return _word(sample.get("wchan") or (f"syscall_{call}" if call.isdecimal() else None))


def _processor(samples: Sequence[Mapping[str, Any]]) -> str:
    """Return which share of a processor a process took between two samples."""
    told = [(one.get("time"), one.get("cpu_seconds")) for one in samples]
    if len(told) < 2 or not all(isinstance(value, (int, float)) for pair in told for value in pair):
        return ""
    (before, used), (after, more) = told
    passed = after - before  # type: ignore[operator]
    return f" cpu={min(max((more - used) / passed, 0.0), 1e3):.2f}" if passed > 0 else ""  # type: ignore[operator]


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def _text(value: object) -> str:
    return " ".join(str(value).split())[:_MAX_VALUE]


def _word(value: object) -> str:
    return "_".join(str(value).split())[:_MAX_VALUE] if value else "-"


REPORTS = (ToolReport("hang", MAX_SIZE, _recognises, render),)
