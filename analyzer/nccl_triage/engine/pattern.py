"""Regular expressions of rules. Shipped ones are reviewed; searches of users' ones are limited in time."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, ClassVar

from nccl_triage import lazy_regex

if TYPE_CHECKING:
    from nccl_triage.engine.nodes import Node


class SearchBudget:
    """The time that patterns of users may spend searching; each set of rules that is loaded starts from zero.

    Fast searches are not counted. Without a limit, a pattern that uses its full time on every line would delay the
    diagnosis of a long log for hours, and the handling of a signal with it.
    """

    #: Processor seconds from which a search counts; limits of the sum of these for one pattern, and for all.
    SLOW, OF_ONE, OF_ALL = 0.001, 1.0, 5.0

    def __init__(self) -> None:
        self._spent = 0.0
        self._of: dict[str, float] = {}
        #: The patterns that are no longer searched for.
        self.stopped: set[str] = set()

    def allows(self, source: str) -> bool:
        """Tell whether a pattern may still be searched for."""
        if self._spent >= self.OF_ALL:
            self.stopped.add(source)
        return source not in self.stopped

    def spend(self, source: str, seconds: float) -> None:
        """Add the time of a search."""
        if seconds < self.SLOW:
            return
        self._spent += seconds
        self._of[source] = self._of.get(source, 0.0) + seconds
        if self._of[source] >= self.OF_ONE:
            self.stopped.add(source)


#: Limit of the characters of a user's pattern: the time to compile it grows with them.
MAX_SOURCE = 10_000


class Pattern:
    """A regular expression that is compiled on first use, since a run needs only some of them.

    Shipped patterns are reviewed and use ``re``. Those of users use ``regex``, whose searches can be stopped.
    """

    __slots__ = ("_compiled", "source", "user")

    #: Seconds that a pattern of a user may spend on one text.
    USER_TIMEOUT = 0.05
    budget: ClassVar[SearchBudget] = SearchBudget()

    def __init__(self, source: str, user: bool = False) -> None:
        self.source = source
        self.user = user
        self._compiled: Any = None

    @property
    def compiled(self) -> Any:
        """The compiled expression; raises ``re.error`` or ``regex.error`` if it is not valid."""
        if self._compiled is None:
            if self.user:
                import regex

                self._compiled = regex.compile(self.source)
            else:
                self._compiled = lazy_regex.code.compiled(self.source)
        return self._compiled

    def search(self, text: str) -> Any:
        """Return the first match in a text, or None; a user's pattern that takes too long does not match."""
        return self._limited("search", text) if self.user else self.compiled.search(text)

    def match(self, text: str) -> Any:
        """Return the match at the beginning of a text, or None; a user's pattern that takes too long does not match."""
        return self._limited("match", text) if self.user else self.compiled.match(text)

    def _limited(self, method: str, text: str) -> Any:
        budget = self.budget
        if not budget.allows(self.source):
            return None
        started = time.thread_time()
        try:
            return getattr(self.compiled, method)(text, timeout=self.USER_TIMEOUT)
        except TimeoutError:
            return None
        finally:
            budget.spend(self.source, time.thread_time() - started)

    @property
    def stopped(self) -> bool:
        """Whether a user's pattern is no longer searched for, since it took too long too often."""
        return self.user and self.source in self.budget.stopped

    def __reduce__(self) -> tuple[Any, ...]:
        return (Pattern, (self.source, self.user))


def pattern_of(node: Node, user: bool) -> Pattern:
    """Return the pattern in a node; raises RuleError for one of a user that cannot be used."""
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
