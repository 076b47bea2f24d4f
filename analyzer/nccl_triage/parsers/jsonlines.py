"""Unpack one JSON object a line: docker json-file, journald, Ray events and structured application logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

try:
    from orjson import loads
except ImportError:  # a node of a cluster that has Python only
    from json import loads  # type: ignore[assignment]

from nccl_triage.numbers import whole
from nccl_triage.observations.event import Context
from nccl_triage.parsers import times
from nccl_triage.parsers.context_fields import set_place, set_time

#: Names of the message of a record, and of its time.
MESSAGES = (
    "msg",
    "message",
    "log",
    "MESSAGE",
    "text",
    "event",
    "textPayload",
    "@message",
    "body",
    "line",
    "_raw",
    "stringValue",
)
TIMES = ("ts", "time", "timestamp", "@timestamp", "asctime", "_time", "date", "datetime")
_LEVEL = ("level", "levelname", "severity", "lvl", "PRIORITY")
#: What holds the record itself in exports of log stores: Google Cloud, Datadog, Elasticsearch, Splunk, OpenTelemetry.
_NESTED = ("jsonPayload", "attributes", "_source", "fields", "record", "result", "data", "body")
#: What names the job, and the labels by which Kubernetes does: those of its own jobs, of Kubeflow, JobSet, Ray and Volcano.
_JOB = ("job_id", "jobid", "slurm_job_id", "SLURM_JOB_ID", "job_name")
_JOB_LABELS = (
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "ray.io/cluster",
    "volcano.sh/job-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
_EXCEPTION = ("exc_info", "exc_text", "exception", "stack_trace", "traceback", "error")
#: Objects larger than this are data, not log records.
MAX_OBJECT = 1 << 20


#: Characters of the name of a job.
_MOST_JOB = 80
#: Digits of a time since the epoch, in nanoseconds at most.
_MOST_DIGITS = 20


def _first(record: Any, names: tuple[str, ...]) -> Any:
    for name in names if isinstance(record, dict) else ():
        if name in record:
            return record[name]
    return None


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return whole(value) if isinstance(value, str) else None


def _time(value: object) -> float | None:
    if isinstance(value, str):
        if not (value.isdecimal() and len(value) <= _MOST_DIGITS):
            return times.from_stamp(value)
        value = int(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
        # Micro- and milliseconds since the epoch are told by their size.
        for scale in (1e9, 1e6, 1e3):
            if seconds > 1e9 * scale:
                return seconds / scale
        return seconds if seconds > 1e8 else None
    return None


def peel_json(text: str, context: Context) -> list[str] | None:
    """Return the lines packed in a JSON record and fill the context, or None when it is no log record."""
    found = _parsed(text)
    if found is None:
        return None
    record, message = found
    label = record.get("label")
    if isinstance(label, str):
        message = f"{label} {message}"
    _fill_time(record, context)
    _fill_process(record, context)
    _fill_program(record, context)
    lines = message.rstrip("\n").split("\n")
    trace = _first(record, _EXCEPTION)
    if isinstance(trace, str) and trace and trace != message:
        lines.extend(trace.rstrip("\n").split("\n"))
    return lines


def time_of(record: dict[str, Any]) -> float | None:
    """Return when a record was written, in seconds since the epoch."""
    time = _time(_first(record, TIMES))
    if time is None and (stamp := _integer(record.get("__REALTIME_TIMESTAMP"))) is not None:
        time = stamp / 1e6
    return time


def split(record: dict[str, Any], message: str) -> Iterator[dict[str, Any]]:
    """Yield a record for each line of a message; what it says of an exception stays with the last one."""
    rest = {name: value for name, value in record.items() if name not in MESSAGES}
    *before, last = message.rstrip("\n").split("\n")
    alone = {name: value for name, value in rest.items() if name not in _EXCEPTION}
    yield from ({MESSAGES[0]: line, **alone} for line in before)
    yield {MESSAGES[0]: last, **rest}


def _parsed(text: str) -> tuple[dict[str, Any], str] | None:
    if not text.rstrip().endswith("}") or len(text) > MAX_OBJECT:
        return None
    try:
        return joined(loads(text))
    except (ValueError, RecursionError):
        return None


def joined(record: object) -> tuple[dict[str, Any], str] | None:
    """Return a log record, joined with the one that it holds, and its message; None for what is none."""
    if not isinstance(record, dict):
        return None
    message = _first(record, MESSAGES)
    if message is None or isinstance(message, dict):
        nested = (held for name in _NESTED if isinstance(held := record.get(name), dict))
        inner: dict[str, Any] = next((held for held in nested if _first(held, MESSAGES) is not None), {})
        record, message = {**record, **inner}, _first(inner, MESSAGES)
    if isinstance(message, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in message):
        message = bytes(message).decode("utf-8", "replace")  # journald's form of unprintable messages
    return (record, message) if isinstance(message, str) else None


def _fill_time(record: dict[str, Any], context: Context) -> None:
    set_time(context, time_of(record))


def _fill_process(record: dict[str, Any], context: Context) -> None:
    """Take rank, place and pid of the process that wrote the message."""
    for name in ("rank", "global_rank"):
        if (rank := _integer(record.get(name))) is not None:
            context.rank = rank
    if (rank := _integer(record.get("local_rank"))) is not None:
        context.local_rank = rank
    # The pod is what its processes take for their host.
    host = _first(record.get("kubernetes"), ("pod_name", "pod", "host"))
    host = host or _first(record, ("_HOSTNAME", "hostname", "host_name", "host", "node"))
    host = _first(host, ("name", "hostname")) or host
    set_place(context, host if isinstance(host, str) else None)
    labels = _first(record.get("kubernetes"), ("labels",))
    job = _first(record, _JOB) or _first(labels, _JOB_LABELS)
    if isinstance(job, (str, int)) and not isinstance(job, bool):
        context.job = str(job)[:_MOST_JOB]
    if (pid := _integer(_first(record, ("process", "pid")))) is not None:
        context.pid = pid
    if (pid := _integer(record.get("_PID"))) is not None:
        context.writer = pid


def _fill_program(record: dict[str, Any], context: Context) -> None:
    """Take level and name of the program or logger."""
    level = _first(record, _LEVEL)
    if isinstance(level, str):
        context.level = level.upper()
    program = _first(record, ("SYSLOG_IDENTIFIER", "logger", "name"))
    if isinstance(program, str):
        context.program = program
        if isinstance(record.get("SYSLOG_IDENTIFIER"), str):
            context.service = program
