"""Dumps of PyTorch's flight recorder (``nccl_trace_rank_3`` and whatever else they are called) as lines.

A dump is recognised by its content; only the rank is nowhere but in its name. What is compared across ranks goes into
``info.recorder`` while the lines are made, so that no dump is read twice.
"""

from __future__ import annotations

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.recorder_table import MAX_RANK
from nccl_triage.observations.store import SourceInfo
from nccl_triage.tool_reports import ToolReport

#: 20,000 entries with deep stacks are a tenth of it.
MAX_SIZE = 256 << 20
_ENDING = r"(?:\.(?:json|pkl|pickle|bin|dump|trace))?$"
_RANK = lazily(rf"rank[._-]?(\d{{1,5}})(?!\d)(?!.*rank[._-]?\d)|(?<!\d)(\d{{1,5}}){_ENDING}")
_NAME = lazily(rf"(?:rank|trace|flight|dump)[^/]*?\d{{1,5}}{_ENDING}")
_PICKLE = lazily(rb"(?s)\x80[\x02-\x05].{0,200}?(?:version|entries|pg_config|pg_status|comm_lib_version)")
_JSON = lazily(rb'\s*\{\s*"(?:comm_lib_version|entries|pg_config|pg_status|version|nccl_version)"\s*:')
_FIELDS = (b"pg_config", b"pg_status", b"profiling_name", b"collective_seq_id", b"record_id")


def rank_in(name: str) -> int | None:
    """Return the rank in a file's name: the number behind the last ``rank``, else the one at the end."""
    found = _RANK.search(name)
    number = int(found[1] or found[2]) if found is not None else None
    return number if number is not None and number <= MAX_RANK else None


def _recognises(name: str, sample: bytes) -> bool:
    if _PICKLE.match(sample) is not None or _JSON.match(sample) is not None:
        return any(field in sample for field in _FIELDS)
    return False


def render(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the lines of a dump; None for what is none."""
    # A verdict without dumps need not wait for what reads them.
    from nccl_triage.recorder.dump import TableBuilder, read
    from nccl_triage.recorder.lines import Writer
    from nccl_triage.recorder.unpickle import NotPlainError

    try:
        dump = read(data)
    except NotPlainError as error:
        if data.startswith(b"\x80"):
            info.problems.append(f"not a flight recorder dump that can be read safely: {error}")
        return None
    info.problems.extend(problem for problem in dump.problems if problem not in info.problems)
    rank = rank_in(info.path.rsplit("/", 1)[-1])
    if rank is None:
        rank = info.rank
    if rank is None:
        info.problems.append(
            "the name of this flight recorder dump does not end in a rank; it was not compared with others"
        )
        rank = -1
    else:
        info.rank = rank
    writer = Writer(dump, max(rank, 0))
    lines = list(writer.headers())
    filling = TableBuilder(dump, rank, info.path, lines[0]) if rank >= 0 else None
    for part, text in writer.broken():
        lines.append(text)
        if filling is not None:
            filling.note(part, len(lines), text)
    for entry in dump.entries:
        text = writer.record(entry)
        lines.append(text)
        if filling is not None:
            filling.add(entry, len(lines), text)
    if filling is not None:
        info.recorder = filling.finish()
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _wants(name: str) -> bool:
    return _NAME.search(name) is not None


REPORTS = (ToolReport("flight-recorder", MAX_SIZE, _recognises, render, is_text=False, wants=_wants),)
