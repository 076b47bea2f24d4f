"""An explanation as text, Markdown or JSON.

``explanation_pages`` makes blocks of the data; here they become lines. Text is folded where a terminal shows it, never
in a pipe; log lines and commands are never folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from nccl_triage.render.explanation_blocks import Block
from nccl_triage.render.markdown_text import code, plain, table
from nccl_triage.render.terminal import fold
from nccl_triage.render.words import Lang, columns, cut, prompt, visible

Data = dict[str, Any]


def _folded(text: str, width: int | None, indent: int, hang: int) -> list[str]:
    line = " " * indent + visible(text)
    if width is None:
        return [line]
    return fold(line, max(20, width), indent + hang) or [""]


class _Text:
    """Blocks as lines of a terminal or a pipe."""

    def __init__(self, width: int | None, color: bool) -> None:
        self.width, self.color = width, color
        self.lines: list[str] = []

    def style(self, text: str, **how: Any) -> str:
        return click.style(text, **how) if self.color and text else text

    def add(self, block: Block) -> None:
        getattr(self, f"_{block.kind}")(block)

    def _title(self, block: Block) -> None:
        self.lines += [self.style(line, bold=True) for line in _folded(block.text, self.width, 0, 2)]

    def _head(self, block: Block) -> None:
        self.lines += ["", self.style(visible(block.text), bold=True)]

    def _para(self, block: Block) -> None:
        self.lines += _folded(block.text, self.width, 2, 0)

    def _group(self, block: Block) -> None:
        self.lines.append(f"  {visible(block.text)}:")

    def _field(self, block: Block) -> None:
        self.lines += _folded(f"{block.label}: {block.text}", self.width, 2, 2)

    def _item(self, block: Block) -> None:
        label = f"[{block.label}] " if block.label else ""
        self.lines += _folded(f"- {label}{block.text}", self.width, 2, 2)

    def _sub(self, block: Block) -> None:
        self.lines += _folded(f"{block.label}: {block.text}" if block.label else block.text, self.width, 6, 2)

    def _command(self, block: Block) -> None:
        for line in block.text.splitlines():
            self.lines.append(f"      {prompt(line)}{self.style(visible(line), fg='green')}")

    def _sample(self, block: Block) -> None:
        label = f"{block.label}: " if block.label else ""
        line = f"      {label}{visible(block.text)}"
        self.lines.append(cut(line, self.width) if self.width else line)

    def _table(self, block: Block) -> None:
        rows = [[visible(cell) for cell in row] for row in block.rows]
        wide = [max((columns(row[at]) for row in rows), default=0) for at in range(len(block.heads) - 1)]
        for row in rows:
            cells = [f"{cell}{' ' * (width - columns(cell))}" for cell, width in zip(row, wide, strict=False)]
            line = "  " + "  ".join([*cells, row[-1]])
            hang = 4 + (wide[0] if wide else 0)
            self.lines += fold(line, self.width, hang) if self.width else [line.rstrip()]


class _Markdown:
    """Blocks as Markdown."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, block: Block) -> None:
        getattr(self, f"_{block.kind}")(block)

    def _title(self, block: Block) -> None:
        self.lines += [*([""] if self.lines else []), f"## {plain(block.text)}", ""]

    def _head(self, block: Block) -> None:
        self.lines += ["", f"### {plain(block.text)}", ""]

    def _para(self, block: Block) -> None:
        self.lines += [plain(block.text), ""]

    def _group(self, block: Block) -> None:
        self.lines += ["", f"**{plain(block.text)}**", ""]

    def _field(self, block: Block) -> None:
        self.lines.append(f"- {plain(block.label)}: {plain(block.text)}")

    def _item(self, block: Block) -> None:
        label = f"**{plain(block.label)}** " if block.label else ""
        self.lines.append(f"- {label}{plain(block.text)}")

    def _sub(self, block: Block) -> None:
        label = f"{plain(block.label)}: " if block.label else ""
        self.lines.append(f"  - {label}{plain(block.text)}")

    def _command(self, block: Block) -> None:
        self.lines += [f"  - {code(line)}" for line in block.text.splitlines()]

    def _sample(self, block: Block) -> None:
        label = f"{plain(block.label)}: " if block.label else ""
        self.lines.append(f"  - {label}{code(block.text)}")

    def _table(self, block: Block) -> None:
        rows = [[code(row[0]), *(plain(cell) for cell in row[1:])] for row in block.rows]
        self.lines += [*table([plain(head) for head in block.heads], rows), ""]


def text(blocks: Iterable[Block], width: int | None = None, color: bool = False) -> str:
    """Return the blocks as lines, folded to ``width`` columns where one is given."""
    page = _Text(width, color)
    for block in blocks:
        page.add(block)
    return "\n".join(page.lines).strip("\n") + "\n"


def markdown(blocks: Iterable[Block]) -> str:
    """Return the blocks as Markdown."""
    page = _Markdown()
    for block in blocks:
        page.add(block)
    lines = [line for at, line in enumerate(page.lines) if line or (at and page.lines[at - 1])]
    return "\n".join(lines).strip("\n") + "\n"


def json(data: list[Data]) -> bytes:
    """Return the data themselves: one object, with a list, for whatever was asked."""
    import orjson

    document = {"schema_version": 1, "entries": data}
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def render(
    data: list[Data],
    format: str,
    lang: Lang,
    pages: Callable[[Data, Lang], list[Block]],
    width: int | None,
    color: bool,
) -> bytes:
    """Return entries in a format: text, markdown or json."""
    if format == "json":
        return json(data)
    blocks: list[Block] = []
    for at, entry in enumerate(data):
        if at and format == "text":
            blocks.append(Block("head", ""))
        blocks += pages(entry, lang)
    found = markdown(blocks) if format == "markdown" else text(blocks, width, color)
    return found.encode("utf-8", "replace")
