"""The finding in one sentence, told with the names and numbers of the log.

A cause has templates (``headlines`` in its file). The first one whose condition holds and whose placeholders all have a
value is used. ``{f:FIELD}`` are fields of one line of the evidence, ``{rank}``, ``{host}``, ``{gpu}``, ``{error}``,
``{frame}`` and ``{line}`` are told by that same line; ``{who}`` is the culprit, and ``{fact:NAME}``, ``{version:NAME}`` and
``{env:NAME}`` are those of the case. Without a template that fits, the title is followed by the strongest line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.diagnosis.culprit_base import Culprit
from nccl_triage.diagnosis.findings import Candidate
from nccl_triage.diagnosis.placeholders import fill
from nccl_triage.engine.schema import PLACEHOLDER, Headline
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event

#: Characters of a value, and of a line that is quoted.
VALUE, QUOTE = 120, 110
#: Placeholders that a line of the evidence fills.
OF_LINE = ("rank", "host", "gpu", "error", "frame", "line")
#: Folders of code that is not the user's.
_LIBRARY = lazily(r"/(?:site|dist)-packages/|/lib/python\d|^<frozen ")
_FRAME = lazily(r"(?P<file>.+):(?P<line>\d+) (?P<function>\S+)$")


def cut(text: str, most: int = VALUE) -> str:
    """Return a text on one line, shortened to a number of characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1].rstrip() + "…"


def who(culprits: Sequence[Culprit], language: str) -> str:
    """Return the culprits in words: ``rank 2 on gpu-a``; an empty text without any."""
    ranks = sorted({one.rank for one in culprits if one.rank is not None})
    hosts = list(dict.fromkeys(one.host or one.address for one in culprits if one.host or one.address))
    if ranks:
        word = ("rank" if len(ranks) == 1 else "ranks") if language == "en" else "rank"
        shown = ", ".join(map(str, ranks[:4])) + (", …" if len(ranks) > 4 else "")
        where = (f" on {hosts[0]}" if language == "en" else f"（{hosts[0]}）") if len(hosts) == 1 else ""
        return f"{word} {shown}{where}"
    pids = [f"pid {one.pid}" for one in culprits if one.pid is not None and not hosts]
    return ", ".join([*(str(host) for host in hosts[:3]), *pids[:3]])


def finding(best: Candidate, case: Case) -> dict[str, str] | None:
    """Return what was found in a sentence without its end, in every language; None if no template fits."""
    conditions = Conditions(case)
    for headline in best.weighed.cause.headlines:
        if headline.when is not None and not conditions.holds(headline.when)[0]:
            continue
        found = _filled(headline, best, case)
        if found is not None:
            return found
    return None


def strongest_line(best: Candidate, case: Case) -> str | None:
    """Return the strongest line of the evidence, shortened; an exception with its type and the user's frame."""
    for event in _events(best, ()):
        if event.text and event.kind != "step":
            told = _error(event)
            return cut(event.text if told is None else told, QUOTE)
    return None


def _filled(headline: Headline, best: Candidate, case: Case) -> dict[str, str] | None:
    names = {
        (match["kind"] or "", match["name"]) for text in headline.text.values() for match in PLACEHOLDER.finditer(text)
    }
    fields = {name for kind, name in names if kind == "f:" or (not kind and name in OF_LINE)}
    events: Iterator[Event | None] = _events(best, headline.of, case) if fields else iter((None,))
    for event in events:
        found = {language: _fill(text, language, event, best, case) for language, text in headline.text.items()}
        if all(found.values()):
            return {language: text for language, text in found.items() if text}
    return None


def _events(best: Candidate, of: Sequence[str], case: Case | None = None) -> Iterator[Event]:
    """Yield the lines whose values a headline may tell: those of the evidence, the strongest first, or those of a kind."""
    if of and case is not None:
        yield from case.of(*of)
        return
    for item in best.weighed.rule_items:
        if item.explained_by is None:
            yield from item.events


def _fill(text: str, language: str, event: Event | None, best: Candidate, case: Case) -> str | None:
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        told = _value(match[0], match["kind"] or "", match["name"], language, event, best, case)
        missing = missing or not told
        return cut(told or "")

    filled = PLACEHOLDER.sub(value, text)
    return None if missing else filled


def _value(
    whole: str, kind: str, name: str, language: str, event: Event | None, best: Candidate, case: Case
) -> str | None:
    if kind == "fact:":
        told = case.value(name)
        return fill(whole, case, (), language) if told is not None and told not in ([], "", [-1]) else None
    if kind in ("version:", "env:"):
        told = fill(whole, case, (), language)
        return None if told == fill("{f:-}", case, (), language) else told
    if name == "who":
        return who(best.culprits, language)
    if event is None:
        return None
    if kind == "f:":
        return event.fields.get(name)
    return _of_line(name, event, case)


def _of_line(name: str, event: Event, case: Case) -> str | None:
    if name == "rank":
        rank = case.rank(event)
        return None if rank is None else str(rank)
    if name == "host":
        return case.host(event)
    if name == "gpu":
        return None if event.context.gpu is None else str(event.context.gpu)
    if name == "error":
        return _error(event)
    if name == "frame":
        return _frame(event)
    return cut(event.text, QUOTE) if name == "line" else None


def _error(event: Event) -> str | None:
    """Return an exception as Python prints it: its type and its message."""
    kind = event.fields.get("type") or event.fields.get("name")
    if not kind or event.kind != "exception":
        return None
    message = (event.fields.get("message") or event.fields.get("why") or "").strip().partition("\n")[0].rstrip(". ")
    kind = kind.rpartition(".")[2]
    return cut(f"{kind}: {message}" if message else kind)


def _frame(event: Event) -> str | None:
    """Return the innermost frame of the user's own code: ``calls.py:73, look_up``."""
    for line in reversed(event.fields.get("user_frames", "").splitlines()):
        found = _FRAME.match(line)
        if found is not None and _LIBRARY.search(found["file"]) is None:
            name = found["file"].rpartition("/")[2]
            function = "" if found["function"] == "<module>" else f", {found['function']}"
            return f"{name}:{found['line']}{function}"
    return None
