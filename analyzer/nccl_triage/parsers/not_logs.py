"""Texts that are no logs although they speak of failures: source code of Python, LaTeX, and pages that explain something.

Only a text that is short enough to be read as a whole is judged. A page with a longer quotation of a log in a fence is
what people paste for help, and that log is diagnosed.
"""

from __future__ import annotations

from collections.abc import Sequence

from nccl_triage.lazy_regex import lazily

PYTHON, LATEX, PAGE = "python", "latex", "page"
#: Lines that a text must have at least, and the share of them that must look like code.
FEWEST, CODE = 8, 0.7
#: Lines at which is looked before all are.
SOME = 200
#: Kinds of definitions that code has at least.
_KINDS = 2
#: Lines of a fence that quotes a log; headings that a page has at least, and the share of prose.
QUOTATION, HEADINGS = 4, 2
#: Lines of code that a log does not hold, of which two kinds are asked.
_DEFINES = (
    lazily(r"^(?:async )?def \w{1,200}\("),
    lazily(r"^class \w{1,200}(?:\([^\n]{0,400}\))?:$"),
    lazily(r"^(?:import [\w.]{1,200}(?: as \w{1,200})?|from [\w.]{1,200} import [\w.*, (]{1,400})$"),
)
_CODE = lazily(
    r"^(?:(?:async )?def \w+\(|class \w+|import [\w.]|from [\w.]+ import |(?:return|raise|yield|assert|del|global|await)\b"
    r"|(?:if|elif|while|for|with|except)\b[^\n]{0,300}: {0,2}(?:#|$)|(?:else|try|finally):|@\w|#|\"\"\"|'''|[)\]}]"
    r"|[\w.\[\]\"', ]{1,120} ?(?::[^=\n]{1,80})?[-+*/|&]?= ?\S|[\w.]{1,120}\(|[furb]{0,2}[\"']|\w{1,200},$|\w{1,200}=|(?:pass|continue|break)$)"
)
_HEADING = lazily(r"#{1,6} \S")
_FENCE = lazily(r"\s{0,3}(?:```|~~~)")
_LATEX = ("\\documentclass", "\\begin{document}")


def kind_of(texts: Sequence[str]) -> str | None:
    """Return what a whole text is, if it is no log."""
    lines = [line for text in texts if (line := text.strip())]
    if any(line.startswith(_LATEX) for line in lines[:SOME]):
        return LATEX
    if len(lines) < FEWEST:
        return None
    if _HEADING.match(lines[0]) is not None and _is_page(texts):
        return PAGE
    # Most logs show in their first lines that they are no code.
    return PYTHON if _CODE.match(lines[0]) is not None and _is_code(lines[:SOME]) and _is_code(lines) else None


def _is_code(lines: Sequence[str]) -> bool:
    defines = sum(any(pattern.match(line) is not None for line in lines) for pattern in _DEFINES)
    return defines >= _KINDS and sum(_CODE.match(line) is not None for line in lines) >= CODE * len(lines)


def _is_page(texts: Sequence[str]) -> bool:
    """Tell whether a text explains something under headings and quotes no more than single lines of a log."""
    outside, longest = _fences(texts)
    headings = [number for number, text in enumerate(outside) if _HEADING.match(text) is not None]
    apart = [n for n in headings if (n == 0 or not outside[n - 1].strip()) and not outside[n].endswith(":")]
    prose = sum(text.rstrip().endswith((".", ":", "。", "：")) for text in outside)
    return len(apart) >= HEADINGS and prose >= HEADINGS and longest < QUOTATION


def _fences(texts: Sequence[str]) -> tuple[list[str], int]:
    """Return the lines outside of fences, and the number of lines of the longest fence."""
    outside: list[str] = []
    inside, length, longest = False, 0, 0
    for text in texts:
        if _FENCE.match(text) is not None:
            inside, length = not inside, 0
            outside.append("")
        elif inside:
            length += bool(text.strip())
            longest = max(longest, length)
        else:
            outside.append(text)
    return outside, longest
