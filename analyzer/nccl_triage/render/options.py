"""How a reader wants to see a document; every output format takes the same options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """The reader's wishes; a format ignores those that do not concern it."""

    lang: Literal["en", "zh"] = "en"
    #: Colours of a terminal.
    color: bool = False
    #: Columns of the terminal; None where nothing may be folded.
    width: int | None = None
    #: 0: what decides; 1 and more: every contribution to the scores.
    verbose: int = 0
