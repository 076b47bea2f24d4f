"""A problem of a rule, and the problems that any pattern can have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """One thing wrong with a rule; ``where`` is file:line."""

    severity: Severity
    where: str
    rule: str
    message: str
    snippet: str | None = None

    def show(self) -> str:
        """Return the finding as text of one to three lines."""
        text = f"{self.where}: {self.severity}: {self.rule}: {self.message}"
        return f"{text}\n    {self.snippet}" if self.snippet else text


#: What is wrong with a pattern that repeats a group which repeats inside.
EXPLODES = "a repeated group repeats inside: this can take exponential time"


def repeats_inside(source: str) -> str | None:
    """Return what is wrong with a pattern that repeats a group which repeats inside, or None."""
    if re.search(r"\((?:\?:|\?P<\w+>)?[^()]*[+*][^()]*\)[+*]", re.sub(r"\\.|\[[^\]]*\]", "x", source)):
        return EXPLODES
    return None
