"""The work of one call, in a process of its own: a request as JSON on standard input, the result as JSON on standard output.

A call ends in time whatever the log is: when its seconds are over, reading stops and what was read is diagnosed; a
process that still does not end then is ended by the alarm. The history is only read, and nothing is run.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nccl_triage import errors
from nccl_triage.stopping import ReadingStop

#: Seconds for the rest once reading was stopped.
GRACE = 10
Request = dict[str, Any]


def _diagnose(request: Request, stop: ReadingStop) -> dict[str, Any]:
    """Return the document of logs, or of a report.json; ``read`` says whether the logs were read now."""
    from nccl_triage.cli.render import read_if_report

    paths = list(request["paths"])
    if len(paths) == 1 and paths[0].endswith(".json") and Path(paths[0]).is_file():
        found = read_if_report(Path(paths[0]))
        if found is not None:
            return {"document": found, "read": False}
    return {"document": _document(request, paths, stop), "read": True}


def _document(request: Request, paths: list[str], stop: ReadingStop, text: str | None = None) -> dict[str, Any]:
    from nccl_triage.api import diagnose
    from nccl_triage.execution.engines import LocalEngine
    from nccl_triage.history.memory import Memory

    history = request.get("history")
    memory = Memory(Path(history) if history else None, writes=False)
    stdin = io.BytesIO(f"{text}\n".encode("utf-8", "replace")) if text is not None else None
    engine = LocalEngine(None if text is None else 1, stdin, stop=stop)
    document = diagnose(paths, rules_dirs=_rules(request), engine=engine, further=[memory.recall]).to_dict()
    if stop.asked is not None and not any(entry["bytes"] for entry in document["inputs"]):
        os._exit(errors.EXIT_BUG)  # nothing was read in time
    return document


def _rules(request: Request) -> tuple[Path, ...]:
    return tuple(map(Path, request.get("rules") or ()))


def _excerpt(request: Request, stop: ReadingStop) -> dict[str, Any]:
    """Return the lines around one line of a log, as they were numbered for the diagnosis."""
    from nccl_triage.ingest import context_lines
    from nccl_triage.ingest.sources import find_sources

    sources, _ = find_sources([request["path"]], None, names=None)
    for source in sources:
        for found in context_lines.read(source, [request["line"]], request["around"]):
            return {"excerpt": found}
    return {"excerpt": None}


def _explain(request: Request, stop: ReadingStop) -> dict[str, Any]:
    from nccl_triage.engine import load
    from nccl_triage.knowledge import answer
    from nccl_triage.render import explanation
    from nccl_triage.render.explanation_pages import page

    found = answer.entries(request["query"], load.load(_rules(request)))
    return {"page": explanation.render(found, "text", request["lang"], page, None, False).decode()}


def _similar(request: Request, stop: ReadingStop) -> dict[str, Any]:
    document = _document({**request, "history": None}, ["-"], stop, request["text"])
    return {"verdict": document["verdict"], "similar": document.get("similar", [])}


def _plan(request: Request, stop: ReadingStop) -> dict[str, Any]:
    from nccl_triage.engine import load
    from nccl_triage.verify.api import Settings
    from nccl_triage.verify.job_plan import record_of

    rules = load.load(_rules(request))
    return {"plan": record_of(request["document"], rules, Settings(paths=tuple(request["paths"])))}


def _why(request: Request, stop: ReadingStop) -> dict[str, Any]:
    """Return the decisions behind the verdict of logs, or with ``path`` and ``line`` the way of that line."""
    from nccl_triage.api import diagnose, trace_line
    from nccl_triage.execution.engines import LocalEngine

    diagnosis = diagnose(request["paths"], rules_dirs=_rules(request), engine=LocalEngine(None, stop=stop))
    if request["line"] is None:
        return {"why": diagnosis.to_dict(similar=False, traced=True)["trace"]}
    return {"why": trace_line(diagnosis, request["paths"], request["path"], request["line"])}


WORK: dict[str, Callable[[Request, ReadingStop], dict[str, Any]]] = {
    "diagnose": _diagnose, "excerpt": _excerpt, "explain": _explain, "similar": _similar, "plan": _plan,
    "why": _why,
}  # fmt: skip


def main() -> None:
    """Carry out the request, and answer an error of the user as one."""
    import orjson

    from nccl_triage import gc_tuning

    gc_tuning.collect_rarely()
    request = orjson.loads(sys.stdin.buffer.read())
    stop = ReadingStop()

    def time_is_up(number: int, frame: object) -> None:
        if stop.asked is not None:
            os._exit(errors.EXIT_BUG)
        signal.alarm(GRACE)
        stop.ask(number)

    signal.signal(signal.SIGALRM, time_is_up)
    signal.setitimer(signal.ITIMER_REAL, request["seconds"])
    try:
        result = WORK[request["do"]](request, stop)
    except errors.TriageError as error:
        result = {"error": "; ".join(error.lines("en"))}
    signal.alarm(0)
    sys.stdout.buffer.write(orjson.dumps(result, option=orjson.OPT_NON_STR_KEYS))
