"""Lines that sound like errors although no signature knows them; the classifier reads them.

The words are those that an engineer greps for. One line for each template is kept, so that a storm costs no memory.
"""

from __future__ import annotations

import re

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.kinds import Produced
from nccl_triage.parsers.templates import template

#: Signature id of such a line.
SALIENT = "line.salient"
PRODUCES = {
    SALIENT: Produced(
        "salient",
        "A line that sounds like trouble and that no signature knows; its template is in the field.",
        ("template",),
    )
}
#: What the prefilter looks for: one of these stands in every salient line.
LITERALS = (
    "rror", "ERROR", "WARN", "ailed", "ailure", "FAIL", "xception", "EXCEPTION", "atal", "FATAL", "efused", "enied",
    "nable to", "annot ", "an't ", "ould not", "nvalid", "orrupt", "imed out", "timeout", "bort", "illed", "ismatch",
    "nreachable", "reset by", "o such", "not support", "nsupported", "xceed", "nsufficient", "xhausted", "oo many",
    "verflow", " died", " dead", "nexpected", "not found", "must be", "does not match", "out of ", "unhealthy",
)  # fmt: skip
#: Templates kept of one source; a log that has more shows nothing new in the rest.
MAX_TEMPLATES = 400

_NOT = lazily(
    r"^(?:\s|frame #|File \"|raise |return |self\.|@|def |class |import |from \S+ import|[\^~]+$|\{?['\"]|\d+: 0x)"
    r"|^(?:[\w.]+/)+[\w.-]+\.py:\d+: \w*(?:Deprecation|Future)Warning"
)
_WORDS = lazily("|".join(map(re.escape, LITERALS)))


def sounds(message: str) -> bool:
    """Tell whether a message sounds like trouble."""
    return _NOT.search(message) is None and _WORDS.search(message) is not None


class UnknownErrors:
    """The templates of such lines of one source."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    @property
    def full(self) -> bool:
        """Whether there are so many that no further line is kept."""
        return len(self._known) >= MAX_TEMPLATES

    def fresh(self, message: str) -> str | None:
        """Return the template of a message that is salient and new, or None."""
        if self.full or not sounds(message):
            return None
        folded = template(message)
        if folded in self._known or len(folded) < 8:
            return None
        self._known.add(folded)
        return folded
