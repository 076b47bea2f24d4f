"""Assemble torchelastic's failure report: one event per failed worker.

Format: ``torch/distributed/elastic/multiprocessing/errors/__init__.py`` (``ChildFailedError.format_msg``), all
releases; fields come as ``  rank      : 11 (local_rank: 3)`` below ``[n]:`` and ``Root Cause (first observed failure):``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.kinds import Produced
from nccl_triage.parsers import times
from nccl_triage.parsers.stateful import PeeledLine, StreamKey

_FIELD = lazily(r"^\s{0,6}(?P<key>time|host|rank|exitcode|error_file|traceback)\s*: (?P<value>.*)$")
_INDEX = lazily(r"^\s{0,4}\[\d+\]:\s*$")
_RANK = lazily(r"(?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,7})\)")
_EXIT = lazily(r"(?P<code>-?\d{1,9})\s*\(pid: (?P<pid>\d{1,18})\)(?:\s+\((?P<signal>SIG\w+)\))?")
#: Lines between two of one report.
_APART = 400


@dataclass(slots=True)
class _Report:
    source: str
    context: Context
    root: bool = False
    fields: dict[str, str] = field(default_factory=dict)
    line: int = 0
    end_line: int = 0
    last_line: int = 0


#: Signature id of an entry of the report.
REPORT = "torchelastic.report"


class ElasticReportParser:
    """See the module; one instance per source."""

    PRODUCES: ClassVar[dict[str, Produced]] = {
        REPORT: Produced(
            "process.exit",
            "One worker of torchelastic's failure report: rank, host, exit code, whether it was "
            "the first failure that this node's agent observed.",
            ("root", "exitcode"),
            ("pid", "signal", "rank", "local_rank", "host", "traceback"),
        )
    }
    OPENERS: ClassVar[tuple[str, ...]] = (
        "Root Cause (first observed failure)",
        "exitcode  : ",
        "Failures:",
        "(local_rank: ",
    )
    KEEP_BY: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._open: dict[StreamKey, _Report] = {}

    def is_open(self) -> bool:
        """See ``StatefulParser``."""
        return bool(self._open)

    def feed(self, line: PeeledLine) -> list[Event]:
        """See ``StatefulParser``."""
        key = line.key()
        text = line.text
        report = self._open.get(key)
        if "Root Cause (first observed failure)" in text or text.strip() == "Failures:":
            done = self._flush(report)
            self._open[key] = _Report(
                line.source, line.context.copy(), root="Root Cause" in text, last_line=line.number
            )
            return done
        found = _FIELD.match(text)
        if report is None:
            if found is None or found["key"] not in ("rank", "exitcode", "time"):
                return []
            report = self._open[key] = _Report(line.source, line.context.copy(), last_line=line.number)
        if line.number - report.last_line > _APART:
            return [*self._flush(self._open.pop(key)), *self.feed(line)]
        if text.startswith("======"):
            self._open.pop(key, None)
            return self._flush(report)
        report.last_line = line.number
        if _INDEX.match(text) or (found is not None and found["key"] in report.fields):
            done = self._flush(report)
            self._open[key] = report = _Report(
                line.source, line.context.copy(), root=report.root, last_line=line.number
            )
            if found is None:
                return done
            self._take(report, found, line.number)
            return done
        if found is not None:
            self._take(report, found, line.number)
        return []

    def give_up(self, number: int) -> list[Event]:
        """See ``StatefulParser``."""
        over = [key for key, report in self._open.items() if number - report.last_line > _APART]
        return [event for key in over for event in self._flush(self._open.pop(key))]

    def finish(self) -> list[Event]:
        """See ``StatefulParser``."""
        events = [event for report in self._open.values() for event in self._flush(report)]
        self._open.clear()
        return events

    @staticmethod
    def _take(report: _Report, found: re.Match[str], number: int) -> None:
        report.fields[found["key"]] = found["value"].strip()
        report.end_line = number
        if found["key"] in ("rank", "exitcode") and (report.line == 0 or found["key"] == "exitcode"):
            report.line = number

    @staticmethod
    def _flush(report: _Report | None) -> list[Event]:
        if report is None or "exitcode" not in report.fields:
            return []
        raw, context = report.fields, report.context.copy()
        fields = {"root": "1" if report.root else "0"}
        exit_found = _EXIT.search(raw["exitcode"])
        if exit_found is None:
            code = re.match(r"-?\d+", raw["exitcode"])
            if code is None:
                return []
            fields["exitcode"] = code[0]
        else:
            fields["exitcode"] = exit_found["code"]
            fields["pid"] = exit_found["pid"]
            context.pid = int(exit_found["pid"])
            if exit_found["signal"]:
                fields["signal"] = exit_found["signal"]
        rank = _RANK.search(raw.get("rank", ""))
        if rank is not None:
            context.rank, context.local_rank = int(rank["rank"]), int(rank["local"])
            fields["rank"], fields["local_rank"] = rank["rank"], rank["local"]
        else:
            context.rank = context.local_rank = None
        host = raw.get("host")
        if host and host != "localhost":
            context.host = context.host or host
            fields["host"] = host
        if raw.get("time"):
            failed = times.from_stamp(raw["time"])
            if context.clock is None:
                context.time = failed
            else:
                context.printed = failed  # by the program's clock, where a collector's stands in front
        if raw.get("traceback"):
            fields["traceback"] = raw["traceback"][:500]
        return [
            Event(
                signature=REPORT,
                source=report.source,
                line=report.line or report.end_line,
                end_line=report.end_line,
                text=f"exitcode: {raw['exitcode']} rank: {raw.get('rank', '?')}",
                context=context,
                role="cascade",
                fields=fields,
            )
        ]
