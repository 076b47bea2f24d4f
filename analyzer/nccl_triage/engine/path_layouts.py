"""Naming schemes of logs, ``rules/layouts``: what the path of a log says of who wrote it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from nccl_triage.engine.pattern import Pattern

#: What a path may say: groups of patterns with these names set it. ``stream2`` is ``stream`` in another place.
NUMBERS = ("rank", "local_rank", "pid", "attempt")
FIELDS = (*NUMBERS, "host", "stream", "job")
#: Stands for any digit in ``needs``.
DIGIT = "0-9"
#: When a match counts (``ingest.layout_conditions``), and the groups that the condition reads besides fields.
CONDITIONS = {
    "siblings-are-ranks": "the folder has a file for each of several ranks",
    "alone-or-ranks": "no other file of the folder shows that the number counts something else",
    "speaks-for-itself": "the name says nothing more, or the folder has a file for each of several ranks",
    "host-has-number": "the name of the host has a number",
}
READ_BY = {"speaks-for-itself": ("before", "after")}


class PathSample(NamedTuple):
    """A path, the names of the files of its folder, and what must be read from them."""

    path: str
    gives: dict[str, str]
    beside: tuple[str, ...] = ()


class NotSample(NamedTuple):
    """A path that must not be read so, and the names of the files of its folder."""

    path: str
    beside: tuple[str, ...] = ()


class LayoutRule(NamedTuple):
    """A naming scheme: ``pattern`` is searched for in the last components of a path, whatever the case.

    ``needs`` is text in lower case without which it cannot match, or ``DIGIT``: most names need few of the patterns.
    ``when`` is a condition that may ask the other files of the folder. A detail, which has no ``layout``, adds to what any
    layout says.
    """

    id: str
    meaning: str
    where: str
    pattern: Pattern
    layout: str | None = None
    source: str | None = None
    needs: str = ""
    when: str | None = None
    user: bool = False
    match_samples: tuple[PathSample, ...] = ()
    not_samples: tuple[NotSample, ...] = ()


@dataclass(frozen=True, slots=True)
class LayoutRules:
    """The layouts, of which the first that fits counts; the details, which may all count; and the parts of patterns."""

    rows: dict[str, LayoutRule] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
