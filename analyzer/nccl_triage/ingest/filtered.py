"""Recognise input that went through grep before it came to us."""

from __future__ import annotations

from nccl_triage.patterns import lazily

#: What people filter logs for; a word that all lines of an ordinary log share (a host, a rank, "INFO") is no
#: sign.
TOKENS = (
    "nccl", "error", "warn", "fail", "exception", "timeout", "timed out", "watchdog",
    "cuda", "xid", "kill", "abort", "traceback", "socket", "connect", "gloo", "processgroup", "oom",
)  # fmt: skip
#: Fewer lines share a word by chance.
MIN_LINES = 3
# A traceback frame, its source line, a C++ frame: lines that belong to the one above and never hold its word.
_CONTINUATION = lazily(
    r"^(?:\[rank\d+\]: ?|\([^)\n]{0,200}?pid=\d{1,18}[^)\n]{0,200}\) ?)?(?:\s{2,}\S|frame #\d+|Traceback \(most recent)"
)


def looks_filtered(sample_lines: list[str]) -> bool:
    """Tell whether every line holds the same searched-for word and none continues another.

    ``grep NCCL train.log | nccl-triage`` throws away what decides most cases: tracebacks, the first error of
    another program, the lines of the rank that failed. The diagnosis is still made, but the user should be
    told what kind of evidence cannot be there. A file that one program wrote (``NCCL_DEBUG_FILE``) has its
    word in every line by nature: do not ask for sources whose layout says so.
    """
    lines = [line for line in sample_lines if line != "--"]
    if len(lines) < MIN_LINES or any(_CONTINUATION.match(line) for line in lines):
        return False
    lowered = [line.lower() for line in lines]
    return any(all(token in line for line in lowered) for token in TOKENS)
