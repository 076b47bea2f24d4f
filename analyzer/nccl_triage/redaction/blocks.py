"""Private keys that are printed over several lines, each of them perhaps behind the prefix of a rank."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nccl_triage.lazy_regex import lazily

#: The row of the table that masks a key on one line.
KIND = "private-key"
_MARK = f"[secret:{KIND}]"
_EDGE = r"-----{} (?:[A-Z0-9]{{1,12}} ){{0,3}}PRIVATE KEY(?: BLOCK)?-----"
_BEGIN, _END = re.compile(_EDGE.format("BEGIN")), re.compile(_EDGE.format("END"))
#: A line of the body stands after the prefix of a line; the last one may be short, and the line of END shows that it is one.
_BODY = lazily(r"(?:^|[\s\]:|>)])((?=[a-z]{0,39}[A-Z0-9+/=])[A-Za-z0-9+/=]{16,})\s*$")
_LAST = lazily(r"(?:^|[\s\]:|>)])([A-Za-z0-9+/=]{4,})\s*$")
_HEADER = lazily(r"(?:Proc-Type|DEK-Info|Comment|Version): ?.{1,80}$")
#: Lines of a key of 16,384 bits.
_MOST = 220


def is_edge(line: str) -> bool:
    """Tell whether a key begins or ends in a line."""
    return "PRIVATE KEY" in line and bool(_BEGIN.search(line) or _END.search(line))


def mask_lines(lines: Sequence[str]) -> list[str]:
    """Return as many lines, with the bodies of private keys masked: after a BEGIN, before an END that has no BEGIN."""
    made = list(lines)
    for index, line in enumerate(lines):
        begin = next(reversed(list(_BEGIN.finditer(line))), None)
        if begin is not None and not _END.search(line, begin.end()):
            _mask_body(made, range(index + 1, min(len(lines), index + _MOST)))
            made[index] = line[: begin.start()] + _MARK
        end = _END.search(line)
        if end is not None and not _BEGIN.search(line, 0, end.start()):
            _mask_body(made, range(index - 1, max(-1, index - _MOST), -1))
            made[index] = made[index].replace(end[0], _MARK)
    return made


def _mask_body(lines: list[str], places: range) -> None:
    for place in places:
        line = lines[place]
        last = place + 1 < len(lines) and _MARK not in line and _END.search(lines[place + 1])
        match = (_LAST if last else _BODY).search(line)
        if match is not None:
            lines[place] = line[: match.start(1)] + _MARK
        elif not _HEADER.search(line):
            return
