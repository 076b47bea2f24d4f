"""The finding in one sentence, told with the names and numbers of the log.

A cause has templates (``headlines`` in its file). The first one whose condition holds and whose placeholders all have a
value is used. ``{f:FIELD}`` are fields of one line of the evidence, ``{rank}``, ``{device}``, ``{message}`` and the others
of ``line_values`` are told by that same line; ``{who}`` is the culprit, and ``{fact:NAME}``, ``{version:NAME}`` and
``{env:NAME}`` are those of the case. A part in square brackets is left out if a placeholder in it has no value. Without a
template that fits, the title is followed by the strongest line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.diagnosis.culprit_base import Culprit
from nccl_triage.diagnosis.facts import software
from nccl_triage.diagnosis.findings import Candidate
from nccl_triage.diagnosis.placeholders import fill
from nccl_triage.document.line_values import (
    OF_CULPRIT,
    OF_LINE,
    QUOTE,
    cut,
    exception,
    listed,
    message,
    of_line,
    on_host,
    process_on,
    spaced,
)
from nccl_triage.engine.schema import PLACEHOLDER, Headline, text_parts
from nccl_triage.observations.event import Event


def who(culprits: Sequence[Culprit], language: str) -> str:
    """Return the culprits in words: ``rank 2 on gpu-a``; an empty text without any."""
    ranks = sorted({one.rank for one in culprits if one.rank is not None})
    hosts = list(dict.fromkeys(one.host or one.address for one in culprits if one.host or one.address))
    if ranks:
        word = ("rank" if len(ranks) == 1 else "ranks") if language == "en" else "rank"
        shown = ", ".join(map(str, ranks[:4])) + (", …" if len(ranks) > 4 else "")
        return f"{word} {shown}{on_host(hosts[0] if len(hosts) == 1 else None, language)}"
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
    for event in _events(best, case):
        if event.text and event.kind != "step":
            told = exception(event)
            return message(event.text) if told is None else cut(told, QUOTE)
    return None


def _filled(headline: Headline, best: Candidate, case: Case) -> dict[str, str] | None:
    names = {
        (match["kind"] or "", match["name"]) for text in headline.text.values() for match in PLACEHOLDER.finditer(text)
    }
    fields = {name for kind, name in names if kind == "f:" or (not kind and name in OF_LINE)}
    events: Iterator[Event | None] = (
        _events(best, case, headline.of, anywhere=headline.anywhere) if fields or headline.of else iter((None,))
    )
    if ("", "who") in names and any(not kind and name in OF_CULPRIT for kind, name in names):
        events = (event for event in events if event is not None and _is_of(event, best.culprits, case))
    for event in events:
        found = {language: _fill(text, language, event, best, case) for language, text in headline.text.items()}
        if all(found.values()):
            return {language: spaced(text, language) for language, text in found.items() if text}
    return None


def _is_of(event: Event, culprits: Sequence[Culprit], case: Case) -> bool:
    """Return whether a line may tell of a culprit: it names no other rank or host."""
    rank, host = case.rank(event), case.host(event)
    ranks = {one.rank for one in culprits if one.rank is not None}
    hosts = {one.host for one in culprits if one.host is not None}
    return (rank is None or not ranks or rank in ranks) and (host is None or not hosts or host in hosts)


def _events(best: Candidate, case: Case, of: Sequence[str] = (), anywhere: bool = False) -> Iterator[Event]:
    """Yield the lines whose values a headline may tell: the evidence, the strongest first; with ``of``, those of a kind."""
    evidence = [event for item in best.weighed.rule_items if item.explained_by is None for event in item.events]
    if not of:
        yield from evidence
        return
    wanted = case.of(*of)
    yield from (event for event in evidence if event in wanted)
    if anywhere:
        yield from wanted


def _fill(text: str, language: str, event: Event | None, best: Candidate, case: Case) -> str | None:
    def filled(part: str) -> str | None:
        missing = False

        def value(match: re.Match[str]) -> str:
            nonlocal missing
            told = _value(match[0], match["kind"] or "", match["name"], language, event, best, case)
            missing = missing or not told
            return cut(told or "")

        whole = PLACEHOLDER.sub(value, part)
        return None if missing else whole

    # Optional parts are filled apart, so that brackets in a value of the log mean nothing.
    told = [filled(part) if not optional else filled(part) or "" for part, optional in text_parts(text)]
    return None if None in told else "".join(part for part in told if part)


def _value(
    whole: str, kind: str, name: str, language: str, event: Event | None, best: Candidate, case: Case
) -> str | None:
    if kind == "fact:":
        told = case.value(name)
        if isinstance(told, list) and told and all(isinstance(one, str) for one in told):
            return listed(told, language)
        return fill(whole, case, (), language) if told is not None and told not in ([], "", [-1]) else None
    if kind in ("version:", "env:"):
        known = software.versions(case) if kind == "version:" else software.environment(case)
        return known[name][0][0] if known.get(name) else None
    if name == "who":
        hosts = {one.host or one.address for one in best.culprits}
        return _acting(who(best.culprits, language), hosts, best, language)
    if event is None:
        return None
    if kind == "f:":
        return event.fields.get(name, "").strip().rstrip(".,;")
    found = of_line(name, event, case, language)
    return _acting(found, {case.host(event)}, best, language) if name == "process" else found


#: Families of causes where a process acts: it raises, crashes, or calls. Elsewhere a host fails or is not reached.
_OF_PROCESSES = ("application", "collective", "host")


def _acting(told: str | None, hosts: Collection[str | None], best: Candidate, language: str) -> str | None:
    """Return who acted: a process, also where only its host is known."""
    cause = best.weighed.cause
    acts = cause.family in _OF_PROCESSES and not cause.of_host
    return process_on(told, language) if told and told in hosts and acts else told
