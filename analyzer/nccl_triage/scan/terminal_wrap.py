"""Text pasted from a terminal is broken at the terminal's width: look at neighbouring lines joined.

Where all lines are cut at one column, wherever that falls, they are put together before anything is read (``whole``).
What a mailer broke between words is only looked at: lines that end near the source's usual break are joined with their
successors, with and without a blank, and only signatures whose literals neither line has alone are tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from nccl_triage.engine.schema import Signature
from nccl_triage.scan.prefilter import Prefilter, candidates

#: Widths at which terminals and mailers break lines.
MIN_WIDTH, MAX_WIDTH = 60, 220
#: Batches longer than this are no paste.
MAX_LINES = 1500
#: Neighbouring lines joined at most.
MAX_PARTS = 4
#: Joins that may tell nothing, of lines that begin alike and of all: then the lines are whole.
MAX_VAIN_ALIKE, MAX_VAIN = 3, 100
#: Characters by which lines begin alike.
_BEGINNING = 16
#: Lines of a log that is put together at most.
MAX_CUT_LINES = 20_000
_FOLDED = str.maketrans("123456789", "000000000")
_NO_NUMBERS = str.maketrans("", "", "0123456789.+-")

#: Reads a joined text by some signatures; its first argument is the index of the first line. Returns whether that told something.
ReadJoined = Callable[[int, str, Sequence[Signature]], bool]
#: Tells whether a line begins with a prefix.
HasPrefix = Callable[[str], bool]


#: Lines that are cut at one column, and the share of them that may go on with what lines begin with.
_FEWEST_CUT, _ALIKE = 3, 0.25
#: Characters by which it is told whether lines begin alike, and different ones that a line has which only parts others.
_START, _RULE = 5, 8
#: Stands between the columns of a table, whose rows may be as wide as the terminal.
_GAP = " " * 3


def whole(lines: Sequence[str]) -> list[range] | None:
    """Return the ranges of lines that were one before a terminal cut them at its width; None where it did not."""
    width = max(map(len, lines), default=0)
    if not MIN_WIDTH <= width <= MAX_WIDTH or len(lines) > MAX_CUT_LINES:
        return None
    full = [len(line) == width and len(set(line)) > _RULE and _GAP not in line.strip() for line in lines]
    starts = {_shape(line) for number, line in enumerate(lines) if not (number and full[number - 1])}
    rests = [number for number in range(1, len(lines)) if full[number - 1]]
    cut = [number for number in rests if _shape(lines[number]) not in starts]
    if len({lines[number] for number in cut}) < _FEWEST_CUT or len(cut) < (1 - _ALIKE) * len(rests):
        return None
    begins = sorted(set(range(len(lines))).difference(cut))
    return [range(*part) for part in pairwise((*begins, len(lines)))]


def _shape(line: str) -> str:
    return line[:_START].translate(_FOLDED)


def _break_width(lines: Sequence[str]) -> int | None:
    """Return the width at which the lines were broken, or None when they were not."""
    lengths = Counter(len(line) for line in lines if MIN_WIDTH <= len(line) <= MAX_WIDTH)
    if not lengths:
        return None
    longest = max(len(line) for line in lines)
    if longest > MAX_WIDTH:
        return None
    near = sum(n for length, n in lengths.items() if length >= longest - 14)
    return longest if near >= 2 else None


def _continues(line: str, has_prefix: HasPrefix) -> bool:
    """Tell whether a line can be the rest of the line before it; the break may fall before a blank, not an indent."""
    return bool(line) and not line.startswith(("  ", "\t", "Traceback", "#")) and not has_prefix(line)


def read_joined(lines: Sequence[str], prefilter: Prefilter, has_prefix: HasPrefix, read: ReadJoined) -> None:
    """Give ``read`` the lines that may have been broken, joined.

    Where lines that begin alike gave nothing a few times, and where nothing did many times, no more are joined.
    """
    if len(lines) > MAX_LINES:
        return
    width = _break_width(lines)
    if width is None:
        return
    vain: Counter[tuple[str, str]] = Counter()
    continues: dict[str, bool] = {}

    def goes_on(line: str, beginning: str) -> bool:
        if beginning not in continues:
            continues[beginning] = _continues(line, has_prefix)
        return continues[beginning]

    index = left = 0
    while index < len(lines) - 1 and left < MAX_VAIN:
        if not width - 14 <= len(lines[index]) <= width:
            index += 1
            continue
        alike = (_beginning(lines[index]), _beginning(lines[index + 1]))
        if vain[alike] >= MAX_VAIN_ALIKE or not goes_on(lines[index + 1], alike[1]):
            index += 1
            continue
        parts = [lines[index]]
        while (
            len(parts) < MAX_PARTS
            and index + len(parts) < len(lines)
            and len(parts[-1]) >= width - 14
            and goes_on(lines[index + len(parts)], _beginning(lines[index + len(parts)]))
        ):
            parts.append(lines[index + len(parts)])
        alone = {s.id for found in candidates(prefilter, parts).values() for s in found}
        told = False
        for joined in ("".join(parts), " ".join(parts)):
            signatures = candidates(prefilter, [joined]).get(0, ())
            # A literal may be whole in one part while the pattern needs both: try those too.
            fresh = [s for s in signatures if s.id not in alone] or signatures
            if fresh:
                told = read(index, joined, signatures) or told
        vain[alike] += not told
        left += not told
        index += len(parts)


def _beginning(line: str) -> str:
    return line[:_BEGINNING].translate(_NO_NUMBERS)
