"""What browsers, terminals and people do to the lines of a log that they copy: none of it changes what happened."""

from __future__ import annotations

import html
import random
import re
from collections.abc import Callable, Iterator

from corpus.relations.collectors import prefixes, way

_WORDS = re.compile(r"(?<=\w) (?=\w)")
_SAID = re.compile(r"(?i)error|failed|fault|timeout|exception|warn|killed")
_QUOTED = re.compile(r"(?<!\w)(['\"])([^'\"\n]{0,400}?)\1(?!\w)")
_ANSI = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_TYPESET = {"'": ("‘", "’"), '"': ("“", "”")}
#: The prefix of a launcher that numbers its tasks.
_LABEL = "srun"


def _rewritten(name: str, rewrite: Callable[[str, random.Random], str]) -> None:
    @way(name)
    def _carry(lines: list[str], chance: random.Random) -> Iterator[str]:
        return (rewrite(line, chance) for line in lines)


def _coloured(line: str, chance: random.Random) -> str:
    """Set some words in colour, as loggers do that mark what is important, in the middle of a phrase too."""
    return " ".join(
        f"\x1b[{chance.choice((1, 31, 33, 36))}m{word}\x1b[0m" if word and chance.random() < 0.3 else word
        for word in line.split(" ")
    )


def _smart(line: str, chance: random.Random) -> str:
    """Set quotes as word processors and chats do; what is left is an apostrophe."""
    return _QUOTED.sub(lambda found: found[2].join(_TYPESET[found[1]]), line).replace("'", "’")


_rewritten("no-break spaces", lambda line, chance: line.replace(" ", "\u00a0"))
_rewritten("no-break spaces for some", lambda line, chance: _WORDS.sub(lambda _: chance.choice(" \u00a0"), line))
_rewritten("colours in the middle of phrases", _coloured)
_rewritten("grep --color of every line", lambda line, chance: _SAID.sub("\x1b[01;31m\x1b[K\\g<0>\x1b[m\x1b[K", line))
_rewritten("smart quotes", _smart)
_rewritten("escaped for HTML", lambda line, chance: html.escape(line))
_rewritten("escaped for HTML, with no-break spaces", lambda line, chance: html.escape(line).replace("  ", "&nbsp; "))


def _labelled(name: str, per_task: int) -> None:
    @way(name)
    def _carry(lines: list[str], chance: random.Random) -> Iterator[str]:
        """Number what the tasks print, each of which starts some of the ranks; no launcher does so twice."""
        profile, task = prefixes().sniff(lines[:400]), 0
        for line in lines:
            rank = prefixes().peel(line, profile).context.rank
            task = task if rank is None else rank // per_task
            yield line if _LABEL in profile.believed else f"{task}: {line}"


for _name, _per_task in (("srun -l of one task", 1 << 20), ("srun -l of several tasks", 2)):
    _labelled(_name, _per_task)


@way("every line twice")
def _doubled(lines: list[str], chance: random.Random) -> Iterator[str]:
    """Two handlers of one logger print to the same stream."""
    return (line for line in lines for _ in range(2))


def _wrapped(width: int) -> None:
    @way(f"wrapped at {width} columns")
    def _carry(lines: list[str], chance: random.Random) -> Iterator[str]:
        for line in (_ANSI.sub("", line) for line in lines):  # what is copied of a terminal has no colours
            yield from (line[at : at + width] for at in range(0, max(1, len(line)), width))


for _width in (80, 120):
    _wrapped(_width)


@way("a pane of tmux, borders at both sides")
def _framed(lines: list[str], chance: random.Random) -> Iterator[str]:
    width = max(map(len, lines), default=0)
    return (f"│{line:{width}}│" for line in lines)


@way("a pane of tmux at the right of an empty one")
def _right(lines: list[str], chance: random.Random) -> Iterator[str]:
    return (f"{'':40}│{line}" for line in lines)


@way("a pane of tmux at the left of another")
def _left(lines: list[str], chance: random.Random) -> Iterator[str]:
    width = max(map(len, lines), default=0)
    return (
        f"{line:{width}}│{'top - load average: 0.0' if not number % 50 else ''}" for number, line in enumerate(lines)
    )
