"""Whether the terminal makes links of places in logs, and the addresses that it understands.

What terminals do, by their documentation and trackers: OSC 8 asks for the host in a ``file:`` address, since the text may
come over ssh. kitty, WezTerm, iTerm2 and VS Code take a number behind ``#`` as a line; GLib's openers, behind VTE, are
not known to. VS Code takes the host for a folder (microsoft/vscode#163545) and opens no such link of a remote window
(#211443), where it finds PATH:LINE by itself. tmux passes links on since 3.4, screen does not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO
from urllib.parse import quote

from nccl_triage.cli import base

if TYPE_CHECKING:
    from nccl_triage.render.text_page import Link

#: Programs (TERM_PROGRAM) and terminals (TERM) with links.
_PROGRAMS = frozenset({"ghostty", "iTerm.app", "vscode", "WarpTerminal", "WezTerm"})
_TERMINALS = ("alacritty", "foot", "wezterm", "xterm-ghostty", "xterm-kitty")
#: The first version with links, as a number.
_VERSIONS = {"VTE_VERSION": 5000, "KONSOLE_VERSION": 201200}
#: The first version of tmux that passes them on.
_TMUX = (3, 4)


def for_terminal(stream: TextIO | None = None) -> Link | None:
    """Return what makes addresses for the terminal on a stream (standard output), None where it shows no links."""
    stream = stream if stream is not None else sys.stdout
    if not stream.isatty() or base.remembered("color", "auto") == "never" or not shows_links(os.environ):
        return None
    code = os.environ.get("TERM_PROGRAM") == "vscode"
    host = "" if code else os.uname().nodename
    numbers = code or _takes_lines(os.environ)

    def link(path: str, line: int) -> str | None:
        return address(path, line if numbers else 0, host)

    return link


def shows_links(environment: Mapping[str, str]) -> bool:
    """Tell whether a terminal with these variables shows links; FORCE_HYPERLINK decides before anything else."""
    forced = environment.get("FORCE_HYPERLINK")
    if forced is not None:
        return forced != "0"
    if environment.get("TERM") == "dumb" or environment.get("STY"):
        return False
    program = environment.get("TERM_PROGRAM", "")
    if environment.get("TMUX"):
        return program == "tmux" and _version(environment.get("TERM_PROGRAM_VERSION", "")) >= _TMUX
    if program == "vscode":
        return not environment.get("VSCODE_IPC_HOOK_CLI")
    return (
        program in _PROGRAMS
        or environment.get("TERM", "").startswith(_TERMINALS)
        or any(environment.get(name) for name in ("DOMTERM", "KITTY_WINDOW_ID", "WT_SESSION"))
        or any(_version(environment.get(name, "")) >= (least,) for name, least in _VERSIONS.items())
    )


def address(path: str, line: int, host: str) -> str | None:
    """Return the address of a file, of a line from 1 on; None for what is no file here, such as ``<stdin>``."""
    try:
        file = Path(path).absolute()
        if not file.is_file():
            return None
    except (OSError, ValueError):
        return None
    place = f"file://{quote(host, safe='')}{quote(os.fsencode(file))}"
    return f"{place}#{line}" if line > 0 else place


def _takes_lines(environment: Mapping[str, str]) -> bool:
    return (
        environment.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm")
        or bool(environment.get("KITTY_WINDOW_ID"))
        or environment.get("TERM", "").startswith(("xterm-kitty", "wezterm"))
    )


def _version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version such as ``3.4a`` or ``6800``."""
    found = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
    return tuple(found)
