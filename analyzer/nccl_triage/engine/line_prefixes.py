"""Prefixes that launchers, collectors and loggers put before a message: ``rules/prefixes``.

A prefix has a pattern, which is tried at the beginning of a line, and says which fields of the line's context its groups
set. Some prefixes look like ordinary text (``3: ``, ``node1: ``): these are believed only where the first lines of a
source show that it uses them. The words that a prefix may use are listed here; what they do is code in ``parsers``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from nccl_triage.engine.pattern import Pattern

#: What a group of a prefix may set in the context of a line (``parsers.context_fields``). "Unless known": an earlier
#: prefix of the line, further out, keeps its value; otherwise the inner prefix wins.
FIELDS = {
    "time": "a date and a time of day: 2025-06-03 14:14:31,348, 06/03/2025 14:00:00 or Jun  3 14:14:31",
    "time-without-year": "month, day and time of day: 1206 18:44:12.7, 12-06 18:44:12 or 12/06 18:44:12",
    "level": "the level of a log record",
    "rank": "a global rank; a negative number is none",
    "rank-unless-known": "a global rank, unless known",
    "group-rank": "a rank within a group of processes",
    "task": "the number of a task of a launcher, which is a rank if the ranks are its tasks",
    "local-rank": "a rank on its host",
    "world-size": "the number of ranks",
    "host": "the host that a process or its launcher says it is on, unless known",
    "place": "the pod, container or host that a collector found the line at",
    "address": "an address of the process, unless known",
    "ray-node": "the node of a Ray worker: its address or name, in place of the host of the driver",
    "launcher-node": "the node whose output a launcher passes on: its name, or its address unless known",
    "inner-node": "the node behind that of a launcher: its name or its address",
    "pid": "the id of the process that prints",
    "writer": "the id of the process by which a collector knows the writer",
    "actor": "the actor or daemon that prints",
    "ray-actor": "the name of an actor or task of Ray, which may hold its rank",
    "vllm-process": "the name of a process of vLLM, which may hold its rank",
    "sglang-ranks": "the parallel ranks of SGLang: TP0, DP1 TP3",
    "program": "the program, module or source file that prints",
    "program-unless-known": "the program, unless known",
    "service": "the daemon or unit that a syslog names as the writer",
    "stream": "stdout or stderr",
    "lines-alike": "how many lines like this one it stands for, itself included",
    "line-number": "the number of the line, which must rise; it says nothing of the process",
}  # fmt: skip
#: Fields whose groups hold digits only, so that they are whole numbers.
NUMBERS = frozenset(
    (
        "rank",
        "rank-unless-known",
        "group-rank",
        "task",
        "local-rank",
        "world-size",
        "pid",
        "writer",
        "lines-alike",
        "line-number",
    )
)
#: When a prefix that looks like text is believed, by the first lines of a source (``parsers.believed``).
CONDITIONS = {
    "speakers-come-again": "most lines begin so, and the same speakers come again",
    "numbers-come-again": "most lines begin so, their numbers do not rise, and the same ones come again",
    "numbers-rise": "most lines begin so, and each has a larger number than the line before",
    "hosts-come-again": "some names come again, and two fifths of the different lines begin with one of these; a single word must stand before seven tenths",
    "hosts-behind-times": "nearly all lines begin so with a few names, and most have no syslog header behind them",
    "two-thirds": "two thirds of the lines begin so",
    "several-speakers": "most lines begin so, with several speakers",
    "every-line": "every line begins so, with several speakers",
    "numbered-names": "nearly all lines begin so, with names that have a number",
}
#: When a form that copies of a log have is taken off (``parsers.learned_prefix``).
COPIES = {
    "surely": "nearly all lines begin so: nothing else does",
    "surely-unless-spaced": "nearly all lines begin so, and not each has a blank behind it",
    "if-it-hides": "more lines are recognised without it",
}
#: What reads a whole line where a pattern cannot (``parsers.line_readers``).
READERS = {"json-record": "a JSON object that is a log record"}


class PrefixSample(NamedTuple):
    """The first lines of a source, of which the last one is read: its message, context and packed lines."""

    lines: tuple[str, ...]
    text: str
    context: dict[str, str]
    extra: tuple[str, ...] = ()


class Prefix(NamedTuple):
    """A prefix: ``sets`` maps groups of the pattern to ``FIELDS``, ``gives`` fields to fixed values.

    It is tried on texts that begin with one of the characters ``starts``, if there are any. ``reader`` reads the line in
    place of a pattern. ``believed`` and ``inside`` are conditions for what looks like text: at the beginning of lines and
    behind other prefixes. ``speaker`` is the group that says who prints, ``not_speakers`` what is never one; with ``named``
    only names count by which the condition was fulfilled. It stands ``behind`` another prefix, or ``first`` of those
    that look like text. ``copied`` says when it is what copying a log has added; with ``cells`` it is the cells of a table
    before the last one, whose quotes are doubled.
    """

    id: str
    meaning: str
    where: str
    pattern: Pattern | None = None
    source: str | None = None
    starts: str | None = None
    sets: dict[str, str] = {}
    gives: dict[str, str] = {}
    reader: str | None = None
    believed: str | None = None
    inside: str | None = None
    speaker: str | None = None
    not_speakers: Pattern | None = None
    named: bool = False
    first: bool = False
    behind: str | None = None
    copied: str | None = None
    cells: bool = False
    user: bool = False
    match_samples: tuple[PrefixSample, ...] = ()
    not_samples: tuple[tuple[str, ...], ...] = ()

    @property
    def looks_like_text(self) -> bool:
        """Whether it is believed only where a source uses it."""
        return self.believed is not None or self.inside is not None


@dataclass(frozen=True, slots=True)
class PrefixRules:
    """All prefixes in the order in which they are tried, and the parts that their patterns share."""

    rows: dict[str, Prefix] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
