"""What viewers, browsers and word processors do to lines is undone; other lines stay as they are."""

from __future__ import annotations

import html

import pytest

from nccl_triage.ingest.typesetting import undone

LINE = '[rank3]: RuntimeError: it\'s "broken" <at> a & b'


@pytest.mark.parametrize(
    "text",
    [
        LINE.replace(" ", "\u00a0"),
        LINE.replace("broken", "\x1b[01;31m\x1b[Kbro\x1b[m\x1b[Kken"),
        LINE.replace("it's", "it\u2019s").replace('"broken"', "\u201cbroken\u201d"),
        html.escape(LINE),
        html.escape(LINE, quote=False).replace(" ", "&nbsp;"),
        LINE.replace("Runtime", "Run\u200btime"),
    ],
)
def test_a_line_is_what_its_program_wrote(text: str) -> None:
    assert undone(f"{text}\n{LINE}\n".encode()).decode() == f"{LINE}\n{LINE}\n"


@pytest.mark.parametrize(
    "text",
    [
        "a && b; c &amp",
        "http://h/?a=1&lt=2",
        "\x1b[2A bar",
        "损失 2.1 █▌ é – … ‰",
        "a&#10;b",
        "&unknown;",
        "│ a │ table │",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert undone(f"{text}\n".encode()) == f"{text}\n".encode()


def _pane(lines: list[str], left: str = "│", right: str = "│") -> bytes:
    return "".join(f"{left}{line:60}{right}\n" for line in lines).encode()


LINES = ["Traceback (most recent call last):", '  File "a.py", line 3', *(f"[rank0]: step {n}" for n in range(8))]


@pytest.mark.parametrize(("left", "right"), [("│", "│"), (" " * 20 + "│", ""), ("", "│ 12:00"), ("top │", "│")])
def test_the_pane_of_the_log_is_read(left: str, right: str) -> None:
    assert undone(_pane(LINES, left, right)).decode().splitlines() == LINES


def test_a_box_in_a_log_stays() -> None:
    log = _pane(LINES) + "".join(f"[rank0]: step {n}\n" for n in range(40)).encode()
    assert undone(log) == log
