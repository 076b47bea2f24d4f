"""The JSON of NCCL's RAS (``ncclras -f json``, ``-m`` too) as the lines of its text report.

The JSON is raw data and leaves the conclusions to its reader; the text names outliers. Here they are worked out as NCCL
does for the text, for every rank outside the largest group, so that one set of signatures knows both. Ranks are those
of the communicator. Source: NCCL ``src/ras/client_support.cc`` (2.28.7 and later for the JSON, 2.29 for monitoring).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.store import SourceInfo
from nccl_triage.tool_reports import ToolReport
from nccl_triage.tool_reports.json_reports import rows

#: A communicator of 100,000 ranks takes 50 MB.
MAX_SIZE = 128 << 20
#: Lists and tables of one document, outliers named of one kind, and characters of a text.
MAX_CONTAINERS, MAX_NAMED, MAX_TEXT = 4_000_000, 64, 100
_STATUS = lazily(rb'\s*\{\s*"nccl_version"\s*:[^{}\[]{0,400}"communicators"')
_MONITOR = lazily(rb'(?s)[^{]{0,400}\{\s*"timestamp"\s*:\s*"[^"]{0,40}",\s*"group"\s*:\s*"(?:LIFECYCLE|TRACE)"')
#: NCCL 2.28.9 leaves a comma out before the state of a rank that is missing (ray/train's reader mends it as well).
_NO_COMMA = lazily(r'(?<=[\d"}\]el])(?=[ \t\r]{0,8}\n[ \t]{0,80}")')
#: Texts of ``ncclResult_t`` as the report has them (``ncclErrorToString``); 0 is success, 7 in progress.
_ERRORS = {
    1: "Unhandled CUDA error", 2: "System error", 3: "Internal error", 4: "Invalid argument", 5: "Invalid usage",
    6: "Remote process error",
}  # fmt: skip


def _recognises(name: str, sample: bytes) -> bool:
    return _STATUS.match(sample) is not None or _MONITOR.match(sample) is not None


def _text(value: object) -> str:
    return "".join(char if char.isprintable() else "?" for char in str(value)[:MAX_TEXT])


def _whole(value: object, otherwise: int = -1) -> int:
    return value if type(value) is int and abs(value) < 1 << 63 else otherwise


def _part(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = row.get(name)
    return found if isinstance(found, Mapping) else {}


def _place(row: Mapping[str, Any]) -> str:
    device, nvml = _whole(row.get("cuda_dev")), _whole(row.get("nvml_dev"))
    gpu = f"{device}" if device == nvml else f"{device} (NVML {nvml})"
    return f"GPU {gpu} managed by process {_whole(row.get('pid'))} on node {_text(row.get('host'))}"


def _state(row: Mapping[str, Any]) -> str:
    status = _part(row, "status")
    if status.get("abort_flag") is True:
        return "ABORT"
    if status.get("finalize_called") is True or status.get("destroy_flag") is True:
        return "FINALIZE"
    return "RUNNING" if _whole(status.get("init_state")) == 0 else "INIT"


def _counts(ranks: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield which ranks launched fewer or more operations of a kind than the most."""
    kinds = dict.fromkeys(kind for row in ranks for kind in _part(row, "collective_counts"))
    for kind in list(kinds)[:32]:
        numbers = [(_whole(_part(row, "collective_counts").get(kind), 0), row) for row in ranks]
        groups = Counter(number for number, _ in numbers)
        if len(groups) < 2:
            continue
        yield f"  Communicator ranks have different {_text(kind)} operation counts"
        common = max(groups, key=lambda number: (groups[number], number))
        for number, count in sorted(groups.items(), key=lambda pair: (-pair[1], -pair[0])):
            what = f"launched up to operation {number}" if number > 0 else "not launched any operations"
            if count > 1:
                yield f"  {count} ranks have {what}"
            if number != common:
                odd = [row for value, row in numbers if value == number][:MAX_NAMED]
                yield from (f"  Rank {_whole(row.get('rank'))} has {what} -- {_place(row)}" for row in odd)


def _states(ranks: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield which ranks are in another state than the most."""
    groups = Counter(_state(row) for row in ranks)
    if len(groups) < 2:
        return
    yield "  Communicator ranks have different status"
    common = groups.most_common(1)[0][0]
    for row in [row for row in ranks if _state(row) != common][:MAX_NAMED]:
        yield f"  Rank {_whole(row.get('rank'))} has status {_state(row)} -- {_place(row)}"


def _errors(ranks: list[Mapping[str, Any]]) -> Iterator[str]:
    for field in ("init_state", "async_error"):
        found = [(row, _whole(_part(row, "status").get(field), 0)) for row in ranks]
        for row, error in [pair for pair in found if pair[1] not in (0, 7)][:MAX_NAMED]:
            yield f"  Rank {_whole(row.get('rank'))} reported {_ERRORS.get(error, 'Unexpected error')} -- {_place(row)}"


def _missing(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the ranks that gave no answer: their processes are dead, stuck, or no members any more."""
    silent = [row for row in rows if _part(row, "status").get("unresponsive") is True]
    if silent:
        yield f"  Missing communicator data from {len(silent)} rank{'s' if len(silent) > 1 else ''}"
        yield from (f"  Rank {_whole(row.get('rank'))} -- {_place(row)}" for row in silent[:MAX_NAMED])
    dead = [row for row in rows if _part(row, "status").get("considered_dead") is True]
    if dead:
        yield f"  {len(dead)} job process{'es are' if len(dead) > 1 else ' is'} considered dead (unreachable via the RAS network)"
        for row in dead[:MAX_NAMED]:
            gpu = _whole(row.get("cuda_dev"))
            yield f"  Process {_whole(row.get('pid'))} on node {_text(row.get('host'))} managing GPU {gpu}"


def _status(document: Mapping[str, Any]) -> Iterator[str]:
    stamp = _text(document.get("timestamp"))
    yield f"{stamp} NCCL RAS status, NCCL version {_text(document.get('nccl_version'))}"
    for index, comm in enumerate(rows(document.get("communicators"))):
        ranks, missing = rows(comm.get("ranks")), rows(comm.get("missing_ranks"))
        found = [*_missing(missing), *_errors(ranks), *_states(ranks), *_counts(ranks)]
        size = _whole(comm.get("size"))
        yield f"#{index} ({_text(comm.get('hash'))}) {size} ranks, {len(ranks)} answered{'' if found else ': OK'}"
        yield from found
    timeouts = _whole(_part(document, "ras").get("timeouts_count"), 0)
    if timeouts > 0:
        yield f"  Encountered {timeouts} communication timeouts while gathering communicator data"


def _event(document: Mapping[str, Any]) -> str:
    peer = _part(document, "peer")
    devices = ",".join(map(_text, peer.get("cuda_devs") or [])) if isinstance(peer.get("cuda_devs"), list) else ""
    who = (
        f" Process {_whole(peer.get('pid'))} on node {_text(peer.get('host'))} managing GPU {devices}"
        if "pid" in peer
        else ""
    )
    return f"[{_text(document.get('timestamp'))}] {_text(document.get('event'))}:{who} {_text(document.get('details'))}".rstrip()


def _documents(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects that stand one after another; what stands between them is none of ours."""
    text = _NO_COMMA.sub(",", text)
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return  # cut off, or no JSON after all
        if isinstance(found, Mapping):
            yield found
        at = text.find("{", end)


def render(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the report as lines; None for another document."""
    if data.count(b"[") + data.count(b"{") > MAX_CONTAINERS:
        return None
    lines: list[str] = []
    for document in _documents(data.decode("utf-8", "replace")):
        if "communicators" in document:
            lines += _status(document)
        elif "event" in document:
            lines.append(_event(document))
    return ("\n".join(lines) + "\n").encode("utf-8", "replace") if lines else None


REPORTS = (ToolReport("nccl-ras", MAX_SIZE, _recognises, render),)
