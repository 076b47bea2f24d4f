"""A regular expression of a rule: shipped ones are vetted, those of users can be stopped."""

from __future__ import annotations

import re
from typing import Any


class Pattern:
    """A regular expression that is compiled on first use: a run needs few of the many.

    Shipped patterns are vetted and use ``re``; those of users use ``regex``, whose searches can be stopped.
    """

    __slots__ = ("_compiled", "source", "user")

    #: Seconds that one user-written pattern may spend on one text.
    USER_TIMEOUT = 0.05

    def __init__(self, source: str, user: bool = False) -> None:
        self.source = source
        self.user = user
        self._compiled: Any = None

    @property
    def compiled(self) -> Any:
        """The compiled expression; raises ``re.error`` or ``regex.error`` when it is not valid."""
        if self._compiled is None:
            if self.user:
                import regex

                self._compiled = regex.compile(self.source)
            else:
                self._compiled = re.compile(self.source)
        return self._compiled

    def search(self, text: str) -> Any:
        """Return the first match in a text, or None; a user's pattern that takes too long matches nothing."""
        if not self.user:
            return self.compiled.search(text)
        try:
            return self.compiled.search(text, timeout=self.USER_TIMEOUT)
        except TimeoutError:
            return None

    def __reduce__(self) -> tuple[Any, ...]:
        return (Pattern, (self.source, self.user))
