"""Text as Markdown: plain words in which nothing is markup, code spans, fenced blocks and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nccl_triage.lazy_regex import lazily
from nccl_triage.render.words import visible

_MAX_LINE = 1000
_MAX_ROWS = 40
#: Besides markup itself: what begins a heading, a list or a rule, and the addresses that trackers make links of.
_MARKUP = lazily(
    r"[\\`*_\[\]<>|~&{}!$]|^(?:[-+=:]|#+(?=\s|$)|\d+(?=[.)](?:\s|$)))|(?i:(?<=www)\.|(?<=http):|(?<=https):|(?<=ftp):)"
)
#: Issue trackers turn these into mentions, references and addresses even when escaped; as code they stay inert.
_REFERENCE = lazily(r"@(?=\w)|(?<!\w)#(?=\w)|#(?=\d)")


def plain(text: object) -> str:
    """Return the text as one line of Markdown in which nothing is markup."""
    escaped = _MARKUP.sub(lambda m: m[0] + "\\" if m[0][0].isdigit() else "\\" + m[0], visible(text).strip())
    return _REFERENCE.sub(lambda m: f"`{m[0]}`", escaped)


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def code(text: object) -> str:
    """Return the text as a code span, whatever backticks it holds."""
    shown = visible(text, _MAX_LINE) or " "
    ticks = "`" * (_longest_run(shown) + 1)
    room = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{ticks}{room}{shown}{room}{ticks}"


def fence(lines: Iterable[str], language: str = "text") -> list[str]:
    """Return the lines as a code block, its fence longer than any run of backticks inside."""
    shown = [visible(line, _MAX_LINE) for text in lines for line in text.rstrip("\r\n").split("\n")]
    ticks = "`" * max(3, max(map(_longest_run, shown), default=0) + 1)
    return [ticks + language, *shown, ticks]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table; the cells are Markdown already, and only their bars are escaped."""
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for row in rows[:_MAX_ROWS]:
        lines.append("| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) or " " for cell in row) + " |")
    if len(rows) > _MAX_ROWS:
        lines.append(f"| .. {_MAX_ROWS} / {len(rows)} |" + " |" * (len(heads) - 1))
    return lines
