"""The process that diagnoses the logs of a failed rank: ``reporting.py`` starts it and waits for it.

It outlives a rank that its launcher kills meanwhile, and ends by itself at the deadline.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

#: Seconds for ranks that fail at the same time, and for what a launcher has yet to copy into the logs.
SETTLE = 0.5
#: Seconds by which the clock of a file server may be behind, and for which the launcher may have written before the rank began.
_SLACK = 60.0


def main() -> None:
    """Write the report that the first argument describes, and print a summary."""
    order: dict[str, Any] = json.loads(sys.argv[1])
    _be_modest(order["deadline"])
    time.sleep(SETTLE)
    from nccl_triage import messages

    lang = messages.locale_language()
    text = Path(order["text"])
    try:
        summary = _write(order, text, lang)
    except Exception as error:
        told = messages.fill("no diagnosis: {why}", {"why": f"{type(error).__name__}: {error}"}, lang)
        summary = f"nccl-triage: {' '.join(told.split())}\n"
        _replace(text, f"{order['line']}\n{summary}".encode())
    with contextlib.suppress(OSError):
        sys.stdout.write(summary)
        sys.stdout.flush()


def _be_modest(deadline: int) -> None:
    """Take the processor and the memory only if nobody else needs them, and no longer than until the deadline."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})  # the job may have blocked it
    signal.alarm(deadline)
    with contextlib.suppress(OSError):
        os.nice(10)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _write(order: dict[str, Any], text: Path, lang: Any) -> str:
    from nccl_triage import messages
    from nccl_triage.api import diagnose
    from nccl_triage.redaction.document import redact
    from nccl_triage.render import json_output, phrases, render

    document = diagnose(_paths(order), since=order["since"] - _SLACK).to_dict(similar=True)
    if order["redact"]:
        document = redact(json.loads(json_output.render(document)))
    page = Path(order["page"])
    _replace(page, render(document, "html", lang=lang, verbose=0))
    verdict = render(document, "text", lang=lang, color=False, width=None, verbose=0)
    _replace(text, f"{order['line']}\n".encode() + verdict)
    headline = " ".join(phrases.headline(document, lang).split())
    told = messages.fill("report written to {path}", {"path": page}, lang)
    return f"nccl-triage: {headline}\nnccl-triage: {told}\n"


def _paths(order: dict[str, Any]) -> list[str]:
    """Return what is to be read: the logs, and the tracebacks that lie beside a log in one file."""
    logs = Path(order["logs"])
    if logs.is_dir():
        return [order["logs"], *order["further"]]
    beside = [str(path) for path in logs.parent.glob("nccl-triage-*.log") if path.stat().st_mtime >= order["since"]]
    return [*([order["logs"]] if logs.exists() else []), *order["further"], *beside]


def _replace(path: Path, data: bytes) -> None:
    from nccl_triage import files

    files.replace(path, data)
