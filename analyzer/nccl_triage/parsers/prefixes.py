"""The prefixes of ``rules/prefixes`` in the form in which they are tried: by the first character of a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nccl_triage.engine.line_prefixes import Prefix, PrefixRules
from nccl_triage.engine.pattern import Pattern
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Context
from nccl_triage.parsers.context_fields import SETTERS
from nccl_triage.parsers.learned_prefix import BeginningMatcher, CopiedForm
from nccl_triage.parsers.line_readers import LINE_READERS


def matcher(pattern: Pattern) -> BeginningMatcher:
    """Return what matches a pattern: that of a user is limited in time."""
    return pattern if pattern.user else lazily(pattern.source)


class LinePrefix:
    """A prefix with a pattern: takes what its groups say into the context of a line."""

    __slots__ = ("_gives", "_sets", "id", "pattern")

    def __init__(self, rule: Prefix, pattern: Pattern) -> None:
        self.id = rule.id
        self.pattern = matcher(pattern)
        self._sets = tuple((group, SETTERS[name]) for group, name in rule.sets.items())
        self._gives = tuple((SETTERS[name], text) for name, text in rule.gives.items())

    def take(self, match: re.Match[str], context: Context) -> None:
        """Fill the context of a line that begins with the prefix."""
        for group, set_field in self._sets:
            text = match[group]
            if text:
                set_field(context, text)
        for set_field, text in self._gives:
            set_field(context, text)
        if context.clock is None and context.time is not None:
            context.clock = self.id


class TextLikePrefix(LinePrefix):
    """A prefix that looks like text: believed only where a source uses it."""

    __slots__ = ("_not_speakers", "behind", "believed", "first", "inside", "named", "speaker")

    def __init__(self, rule: Prefix, pattern: Pattern) -> None:
        super().__init__(rule, pattern)
        self.believed, self.inside = rule.believed, rule.inside
        self.behind, self.first = rule.behind, rule.first
        self.speaker: str = rule.speaker or ""
        self.named = rule.named
        self._not_speakers = None if rule.not_speakers is None else matcher(rule.not_speakers)

    def matches(self, lines: Iterable[str]) -> list[re.Match[str]]:
        """Return the matches of the lines that begin so, from any speaker."""
        return [found for line in lines if (found := self.pattern.match(line)) is not None]

    def speakers(self, lines: Iterable[str]) -> list[str]:
        """Return who speaks in the lines that begin so, line by line."""
        return [found[self.speaker] or "" for found in self.matches(lines)]

    def may_speak(self, name: str) -> bool:
        """Tell whether a word may be the name of a speaker."""
        return self._not_speakers is None or self._not_speakers.match(name) is None


class PrefixTable:
    """All prefixes: those that are certain by their first character, those that look like text, readers and copied forms."""

    def __init__(self, rules: PrefixRules) -> None:
        # A user's own prefix comes first: it is there because the shipped ones misread a line, or do not read it.
        rows = sorted(rules.rows.values(), key=lambda rule: not rule.user)
        self.readers = {
            first: (rule.id, LINE_READERS[rule.reader])
            for rule in reversed(rows)
            if rule.reader is not None
            for first in rule.starts or ""
        }
        patterned = [(rule, rule.pattern) for rule in rows if rule.pattern is not None]
        self.text_like = tuple(TextLikePrefix(rule, pattern) for rule, pattern in patterned if rule.looks_like_text)
        self.copied = tuple(
            CopiedForm(rule.id, matcher(pattern), rule.copied, _counter(rule), rule.cells)
            for rule, pattern in patterned
            if rule.copied is not None
        )
        certain = [
            (rule.starts, LinePrefix(rule, pattern))
            for rule, pattern in patterned
            if not rule.looks_like_text and rule.copied is None
        ]
        firsts = {first for starts, _ in certain for first in starts or ""}
        self.certain = {
            first: tuple(row for starts, row in certain if not starts or first in starts) for first in firsts
        }
        #: Those that are tried whatever a text begins with.
        self.anywhere = tuple(row for starts, row in certain if not starts)
        self._chosen: dict[frozenset[str], tuple[TextLikePrefix, ...]] = {}

    def chosen(self, believed: frozenset[str]) -> Sequence[TextLikePrefix]:
        """Return the prefixes that look like text and are believed, in the order in which they are tried."""
        found = self._chosen.get(believed)
        if found is None:
            if len(self._chosen) >= _MAX_CHOICES:
                self._chosen.clear()
            found = self._chosen[believed] = tuple(row for row in self.text_like if row.id in believed)
        return found

    def speaker_of(self, line: str) -> str:
        """Return the name or number of who speaks with which a line may begin, and what is around it; "" without one."""
        for row in self.text_like:
            found = row.pattern.match(line)
            if found is not None and row.may_speak(found[row.speaker] or ""):
                return found[0]
        return ""


#: Sets of believed prefixes that are remembered.
_MAX_CHOICES = 64


def _counter(rule: Prefix) -> str | None:
    """Return the group that counts lines."""
    return next((group for group, name in rule.sets.items() if name == "line-number"), None)
