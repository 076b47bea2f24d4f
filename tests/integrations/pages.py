"""The commands that the pages show."""

from __future__ import annotations

import re

from .conftest import EXAMPLES


def block(page: str, part: str, language: str = "bash") -> str:
    """Return the one code block of a page that holds a text."""
    text = (EXAMPLES / page).read_text(encoding="utf-8")
    found = [
        body for body in re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if part in body
    ]
    assert len(found) == 1, f"{len(found)} blocks of {page} hold {part!r}"
    return found[0]
