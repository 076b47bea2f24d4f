"""Places of logs as links of the terminal, and ``--open``: real processes on a pseudo-terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from nccl_triage.cli import links
from nccl_triage.render.text_page import TextPage, hyperlink
from tests.cli.processes import ROOT, environment, run, run_on_terminal

LOG = ROOT / "corpus" / "written" / "logs" / "S001-openrlhf-broadcast-two-networks.log"
LINK = re.compile(r"\x1b]8;;([^\x1b]*)\x1b\\([^\x1b]*)\x1b]8;;\x1b\\")
HOST = os.uname().nodename
#: No terminal of the person who runs the tests.
PLAIN = dict.fromkeys(("TERM_PROGRAM", "KITTY_WINDOW_ID", "VTE_VERSION", "WT_SESSION", "KONSOLE_VERSION", "DOMTERM", "TMUX", "STY", "VSCODE_IPC_HOOK_CLI", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "NO_COLOR"), "")  # fmt: skip


def shown(*words: str, columns: int = 100, **env: str) -> str:
    return run_on_terminal(*words, columns=columns, env={**PLAIN, "TERM": "xterm-256color", **env})


def test_a_place_in_a_log_is_a_link_to_its_line() -> None:
    text = shown(str(LOG), TERM="xterm-kitty")
    found = LINK.findall(text)
    assert found
    for target, label in found:
        assert target == f"file://{HOST}{LOG}#{label.rpartition(':')[2]}"
    assert LINK.findall(shown(str(LOG), TERM="xterm-kitty", NO_COLOR="1")) == found, "colours are another matter"


@pytest.mark.parametrize("verbose", [(), ("-v",)])
@pytest.mark.parametrize("columns", [40, 60, 100])
def test_links_change_no_line(verbose: tuple[str, ...], columns: int) -> None:
    plain = shown(str(LOG), *verbose, columns=columns)
    linked = shown(str(LOG), *verbose, columns=columns, TERM="xterm-kitty")
    assert "\x1b]8" not in plain
    assert LINK.search(linked)
    assert LINK.sub(r"\2", linked) == plain


def test_no_links_in_a_pipe_a_file_or_with_color_never(tmp_path: Path) -> None:
    env = {**environment(), "FORCE_HYPERLINK": "1", "TERM": "xterm-kitty"}
    piped = subprocess.run([sys.executable, "-m", "nccl_triage", str(LOG)], env=env, capture_output=True, check=True)
    assert b"\x1b]8" not in piped.stdout
    assert "\x1b]8" not in shown(str(LOG), "--color", "never", FORCE_HYPERLINK="1")
    shown(str(LOG), "-o", str(tmp_path / "verdict.txt"), FORCE_HYPERLINK="1")
    assert "\x1b]8" not in (tmp_path / "verdict.txt").read_text()


def test_a_hostile_name_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    plain, evil = tmp_path / "a b#c%2.log", tmp_path / "x\x1b]8;;http:evil\x07y.log"
    for path in (plain, evil):
        path.write_bytes(LOG.read_bytes())
    found = LINK.findall(shown(str(plain), "-v", FORCE_HYPERLINK="1", TERM="wezterm"))
    assert {target for target, _ in found} >= {f"file://{HOST}{tmp_path}/a%20b%23c%252.log#7"}
    assert "http:evil" in shown(str(evil), "-v", FORCE_HYPERLINK="1")
    assert "\x1b]8" not in shown(str(evil), "-v", FORCE_HYPERLINK="1")


def test_what_is_no_file_here_is_no_link(tmp_path: Path) -> None:
    assert "\x1b]8" not in shown(str(LOG), "--redact", "-v", FORCE_HYPERLINK="1")
    report = tmp_path / "report.json"
    copy = tmp_path / "gone.log"
    copy.write_bytes(LOG.read_bytes())
    assert run(str(copy), "--format", "json", "-o", str(report)).returncode == 0
    copy.unlink()
    assert "\x1b]8" not in shown("render", str(report), FORCE_HYPERLINK="1")
    assert links.address("<stdin>", 1, "h") is None
    assert links.address("nul\0", 1, "h") is None


KITTY = {"TERM": "xterm-kitty"}
TMUX = {"TERM": "tmux-256color", "TMUX": "/tmp/x", "KITTY_WINDOW_ID": "1"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"TERM": "xterm-256color"}, False),
        (KITTY, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "6800"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "4999"}, False),
        ({"KONSOLE_VERSION": "220400"}, True),
        ({"KONSOLE_VERSION": "nonsense"}, False),
        ({"WT_SESSION": "x"}, True),
        ({"DOMTERM": "version=2"}, True),
        ({"TERM_PROGRAM": "iTerm.app"}, True),
        ({"TERM_PROGRAM": "ghostty"}, True),
        ({"TERM_PROGRAM": "Apple_Terminal"}, False),
        ({"TERM_PROGRAM": "vscode"}, True),
        ({"TERM_PROGRAM": "vscode", "VSCODE_IPC_HOOK_CLI": "/tmp/x.sock"}, False),
        ({**KITTY, "TERM": "dumb", "KITTY_WINDOW_ID": "1"}, False),
        ({**KITTY, "STY": "1.x"}, False),
        (TMUX, False),
        ({**TMUX, "TERM_PROGRAM": "tmux", "TERM_PROGRAM_VERSION": "3.3a"}, False),
        ({**TMUX, "TERM_PROGRAM": "tmux", "TERM_PROGRAM_VERSION": "3.4"}, True),
        ({**KITTY, "FORCE_HYPERLINK": "0"}, False),
        ({"TERM": "dumb", "FORCE_HYPERLINK": "1"}, True),
        ({"FORCE_HYPERLINK": ""}, True),
        ({**KITTY, "NO_COLOR": "1"}, True),
    ],
)
def test_which_terminals_show_links(variables: Mapping[str, str], expected: bool) -> None:
    assert links.shows_links(variables) is expected


@pytest.mark.parametrize(
    ("variables", "end"),
    [
        ({"TERM_PROGRAM": "vscode"}, f"file://{LOG}#7"),
        ({"VTE_VERSION": "7600"}, f"file://{HOST}{LOG}"),
        ({"TERM_PROGRAM": "iTerm.app"}, f"file://{HOST}{LOG}#7"),
    ],
)
def test_the_address_is_one_that_the_terminal_understands(variables: dict[str, str], end: str) -> None:
    assert end in {target for target, _ in LINK.findall(shown(str(LOG), "-v", columns=100, **variables))}


def test_a_page_makes_no_link_that_could_end_early() -> None:
    assert hyperlink("text", "file:///a\x1b\\b") == "text"
    assert hyperlink("text", "file:///ä") == "text"
    page = TextPage(False, None, "en", lambda path, line: f"file:///{path}#{line}")
    page.place("  ", "a.log:1", "a.log", 1)
    page.lines.append("another line")
    assert page.finished() == ["another line"]


@pytest.fixture
def opened(tmp_path: Path) -> Path:
    """A browser that writes down what it is given."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$#" "$@" > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/opened\n')
    browser.chmod(0o755)
    return tmp_path / "opened"


def _address(opened: Path) -> str:
    deadline = time.monotonic() + 30
    while not opened.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    count, address = opened.read_text().splitlines()
    assert count == "1"
    opened.unlink()
    return address


def test_open_opens_the_report(tmp_path: Path, opened: Path) -> None:
    env = {**environment(), **PLAIN, "BROWSER": str(opened.with_name("browser")), "TMPDIR": str(tmp_path)}
    program = [sys.executable, "-m", "nccl_triage"]
    report = tmp_path / "my $(touch x) report.html"
    run_it = {"env": env, "cwd": tmp_path, "capture_output": True, "text": True, "check": True}
    subprocess.run([*program, str(LOG), "--verify", "never", "--report", str(report), "--open"], **run_it)  # type: ignore[call-overload]
    assert _address(opened) == report.as_uri()
    done = subprocess.run([*program, str(LOG), "--verify", "never", "--open"], **run_it)  # type: ignore[call-overload]
    made = Path(_address(opened).removeprefix("file://"))
    assert made.parent.parent == tmp_path
    assert made.parent.stat().st_mode & 0o077 == 0
    assert "network-unreachable-subnet" in made.read_text()
    assert f"report written to {made}" in done.stderr
    assert "root cause: network-unreachable-subnet" in done.stdout
    subprocess.run([*program, str(LOG), "--format", "json", "-o", "r.json"], **run_it)  # type: ignore[call-overload]
    subprocess.run([*program, "render", "r.json", "-o", "page.html", "--open"], **run_it)  # type: ignore[call-overload]
    assert _address(opened) == (tmp_path / "page.html").as_uri()
    assert not (tmp_path / "x").exists()


def test_without_a_display_open_says_where_the_report_is(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    words = [str(LOG), "--verify", "never", "--report", str(report), "--open"]
    env = {**environment(), **PLAIN, "SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}
    done = subprocess.run(
        [sys.executable, "-m", "nccl_triage", *words], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert f"nccl-triage: there is no display here; open {report} in a browser\n" in done.stderr


def test_open_leaves_nothing_where_there_is_nothing_to_read(tmp_path: Path) -> None:
    env = {**environment(), **PLAIN, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "nccl_triage", str(tmp_path / "none"), "--open"]
    assert subprocess.run(words, env=env, capture_output=True, check=False).returncode == 2
    assert list(tmp_path.iterdir()) == []
