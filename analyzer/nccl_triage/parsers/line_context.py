"""What the headers inside a message say of who printed it and when: each fills fields of the line's context.

Prefixes (``prefixes``) are taken off a line. Headers of the programs whose lines are diagnosed stay in the message: those of
NCCL (``src/debug.cc``, 2.5 to 2.30), c10 (PyTorch ``c10/util/Logging.cpp``), process groups
(``torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp``, 2.1 to 2.15) and Gloo.
"""

from __future__ import annotations

import re

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Context
from nccl_triage.parsers import times
from nccl_triage.parsers.context_fields import set_time

_NCCL = lazily(
    r"(?:^|(?<=[\s>\]]))(?:\[(?P<ts>\d{4}-\d\d-\d\d[ T][\d:.]+)\] )?(?!\d\d?:\d\d:\d\d )(?P<host>[A-Za-z0-9_.%-]{0,255}):(?P<pid>\d{1,18}):(?P<tid>\d{1,18})"
    r" (?:\[(?P<dev>-?\d{1,7})\] )?(?=.{0,300}?(?:NCCL )?(?P<level>INFO|WARN|TRACE|CALL|ERROR) )"
)
_C10 = lazily(r"\[(?P<level>[IWEFVD])(?P<mmdd>\d{3,4}) (?P<time>\d\d:\d\d:\d\d\.\d+) (?P<file>[\w./-]+):\d+\] ")
_C10_OLD = lazily(r"\[(?P<level>[FEWIV]) (?P<file>[\w./-]+\.(?:cpp|hpp|h|cc)):\d+\] ")
_EMBEDDED_RANK = lazily(r"\[rank(?P<rank>\d{1,6})\]:")
_GROUP = lazily(r"\[PG [^\]\n]{0,160}?Rank (?P<rank>\d{1,7})\]")
_WORK_RANK = lazily(r"(?:^|\] |: )\[Rank (?P<rank>\d{1,7})\](?: |(?=\[ProcessGroup))")
#: A pair of a logfmt record; in a message of another form a job may be any.
_JOB = lazily(r"(?:^|(?<=\s))job_?id=\"?(?P<job>[A-Za-z0-9][\w.-]{0,80})")
_PLAIN_RANK = lazily(
    r"(?:^|[\s,(])(?:global[ _])?rank[ =:]{1,2}(?P<rank>\d{1,6})\b(?!\s*(?:successfully|is running|[./]\d))",
    re.IGNORECASE,
)


def read_headers(text: str, context: Context) -> None:
    """Fill the context from the headers inside the message, keeping what the wrappers said."""
    if "[rank" in text and context.rank is None:
        # Two writers on one stream: a progress bar glued in front of `[rank5]:[E602 ...`.
        embedded = _EMBEDDED_RANK.search(text)
        if embedded:
            context.rank = int(embedded["rank"])
    if "id=" in text and context.job is None and (found := _JOB.search(text)):
        context.job = found["job"]
    if ("NCCL" in text or " WARN " in text or " INFO " in text) and (found := _NCCL.search(text)):
        context.host = context.host or found["host"] or None
        context.pid = int(found["pid"])
        context.tid = int(found["tid"])
        if found["dev"] is not None:
            context.gpu = int(found["dev"])
        context.level = context.level or found["level"]
        context.program = "nccl"
        if found["ts"]:
            set_time(context, times.from_stamp(found["ts"]))
    if found := _C10.search(text):
        context.level = found["level"]
        context.program = found["file"]
        set_time(context, times.from_month_day(found["mmdd"], found["time"]))
    elif found := _C10_OLD.search(text):
        context.level = found["level"]
        context.program = found["file"]
    if ("[PG " in text and (found := _GROUP.search(text))) or ("[Rank " in text and (found := _WORK_RANK.search(text))):
        context.group_rank, context.labelled = int(found["rank"]), False


def plain_rank(text: str) -> int | None:
    """Return the rank that a training script's own line names (``rank=3``, ``rank: 2``), or None."""
    found = _PLAIN_RANK.search(text)
    return int(found["rank"]) if found else None
