"""A regular expression of a rule: shipped ones are vetted, those of users can be stopped."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from nccl_triage.engine.nodes import Node


class Patience:
    """How long the patterns of users may search in all; each set of rules that is loaded begins anew.

    Searches that take no time to speak of count for nothing. Without a bound, a pattern that needs its whole time on
    every line would hold a long log up for hours, and a signal with it.
    """

    #: Seconds of processor from which on a search counts; what slow ones may take of each pattern, and of all.
    SLOW, OF_ONE, OF_ALL = 0.001, 1.0, 5.0

    def __init__(self) -> None:
        self._spent = 0.0
        self._of: dict[str, float] = {}
        #: The patterns that are given up.
        self.stopped: set[str] = set()

    def allows(self, source: str) -> bool:
        """Tell whether a pattern may go on searching."""
        if self._spent >= self.OF_ALL:
            self.stopped.add(source)
        return source not in self.stopped

    def spend(self, source: str, seconds: float) -> None:
        """Take the time of a search into account."""
        if seconds < self.SLOW:
            return
        self._spent += seconds
        self._of[source] = self._of.get(source, 0.0) + seconds
        if self._of[source] >= self.OF_ONE:
            self.stopped.add(source)


#: Characters of a user's pattern at most: what it takes to compile grows with them.
MAX_SOURCE = 10_000


class Pattern:
    """A regular expression that is compiled on first use: a run needs few of the many.

    Shipped patterns are vetted and use ``re``; those of users use ``regex``, whose searches can be stopped.
    """

    __slots__ = ("_compiled", "source", "user")

    #: Seconds that one user-written pattern may spend on one text, and what all of them may spend.
    USER_TIMEOUT = 0.05
    patience: ClassVar[Patience] = Patience()

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
        patience = self.patience
        if not patience.allows(self.source):
            return None
        started = time.thread_time()
        try:
            return self.compiled.search(text, timeout=self.USER_TIMEOUT)
        except TimeoutError:
            return None
        finally:
            patience.spend(self.source, time.thread_time() - started)

    @property
    def stopped(self) -> bool:
        """Whether a user's pattern was given up: it took too long too often."""
        return self.user and self.source in self.patience.stopped

    def __reduce__(self) -> tuple[Any, ...]:
        return (Pattern, (self.source, self.user))


def pattern_of(node: Node, user: bool) -> Pattern:
    """Return the pattern that a node of a rule holds; raises RuleError for a user's one that cannot be used."""
    pattern = Pattern(node.text().strip("\n"), user)
    if user:
        import regex

        if len(pattern.source) > MAX_SOURCE:
            raise node.fail("a pattern has {limit} characters at most", limit=MAX_SOURCE)
        for compile_ in (re.compile, regex.compile):
            try:
                compile_(pattern.source)
            except (re.error, regex.error, RecursionError, OverflowError) as error:
                raise node.fail("not a valid regular expression: {error}", error=error) from None
    return pattern
