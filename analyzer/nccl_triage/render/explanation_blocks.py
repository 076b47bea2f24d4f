"""What a page of ``explain`` is made of."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["title", "head", "para", "group", "field", "item", "sub", "command", "sample", "table"]


class Block(NamedTuple):
    """One piece of a page.

    A ``group`` stands above items; ``field`` and ``sub`` are ``label: text``, an ``item`` carries its label in brackets, a ``table`` has ``heads`` and
    ``rows`` whose last cell may be long.
    """

    kind: Kind
    text: str = ""
    label: str = ""
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
