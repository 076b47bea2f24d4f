"""A terminal as SVG: what a real run printed, with its colours, on a background that follows the reader's theme."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from nccl_triage.render.words import columns

#: Pixels of a column, of a line, and around the text.
_COLUMN, _LINE, _EDGE = 7.8, 18, 16
_BAR = 34
_CODES = {"1": "b", "31": "r", "32": "g", "33": "y"}
_STYLE = (
    "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono',monospace;fill:#1f2328;white-space:pre}"
    ".w{fill:#f6f8fa;stroke:#d1d9e0}.d{fill:#afb8c1}.c{fill:#59636e}.b{font-weight:700}.r{fill:#b3261e}.g{fill:#116329}"
    ".y{fill:#7d4e00}.k{font-size:15px}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.w{fill:#151b23;stroke:#3d444d}.d{fill:#656c76}"
    ".c{fill:#9198a1}.r{fill:#ff8a80}.g{fill:#7ee787}.y{fill:#e3b341}}"
)
_ESCAPE = re.compile(r"\x1b\[([\d;]*)m")


def _runs(line: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a line, each with the classes of its colours."""
    classes: list[str] = []
    for number, part in enumerate(_ESCAPE.split(line)):
        if number % 2:
            codes = part.split(";")
            classes = [] if codes in ([""], ["0"]) else [*classes, *(_CODES[code] for code in codes if code in _CODES)]
        elif part:
            yield part, " ".join(classes)


def _pieces(text: str) -> Iterator[str]:
    """Cut a text where narrow characters meet wide ones, so that each piece has letters of one width."""
    yield from re.findall(
        r"[\u2e80-\u9fff\uff00-\uffef\u3000-\u303f]+|[^\u2e80-\u9fff\uff00-\uffef\u3000-\u303f]+", text
    )


def terminal(command: str, output: str, title: str) -> str:
    """Return the picture of a command and its output."""
    lines = [f"\x1b[1m$ {command}\x1b[0m", *output.rstrip("\n").split("\n")]
    width = _EDGE * 2 + max(columns(_ESCAPE.sub("", line)) for line in lines) * _COLUMN
    height = _BAR + len(lines) * _LINE + _EDGE
    shown = []
    for number, line in enumerate(lines):
        x, y = float(_EDGE), _BAR + _LINE * number + 13
        for text, classes in _runs(line):
            for piece in _pieces(text):
                wide = columns(piece) * _COLUMN
                if piece.strip():
                    names = f"{classes} k".strip() if wide > len(piece) * _COLUMN else classes
                    mark = f' class="{names}"' if names else ""
                    shown.append(
                        f'<text x="{x:.1f}" y="{y}"{mark} textLength="{wide:.1f}" '
                        f'xml:space="preserve">{escape(piece, quote=False)}</text>'
                    )
                x += wide
    dots = "".join(f'<circle class="d" cx="{18 + 16 * number}" cy="17" r="5"/>' for number in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'height="{height}" role="img" aria-labelledby="t">\n<title id="t">{escape(title, quote=False)}</title>\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect class="w" x=".5" y=".5" width="{width - 1:.1f}" height="{height - 1}" rx="8"/>{dots}\n'
        + "\n".join(shown)
        + "\n</svg>\n"
    )
