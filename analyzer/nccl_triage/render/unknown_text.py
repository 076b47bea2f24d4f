"""An incident without a cause in brief: how it ended, what is known, what it may be, and what to collect where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nccl_triage.render import known_issues, phrases
from nccl_triage.render.hard_errors import hard_errors
from nccl_triage.render.short_text import alike, lost, named, rows, strongest
from nccl_triage.render.text_page import TextPage, commands_of, is_open, likeliest_repair, quoted
from nccl_triage.render.words import Document, Lang, pick, rank_ranges, word

Item = Mapping[str, Any]

#: Lines of an incident of unknown cause at 100 columns.
LINES = 20
#: States of ranks that did not come, and what a line is called that tells of them.
_STATES = (("silent", ("missing", "behind")), ("waiting", ("entered",)), ("state_dead", ("dead",)))
#: Connections that are named.
_CONNECTIONS = 2
#: Lines that only say that another one follows.
_OPENING = "Traceback (most recent call"


class UnknownParts(NamedTuple):
    """How much is shown."""

    candidates: int = 3
    commands: bool = True
    collect: int = 2
    last_lines: int = 3
    wait: bool = True


PLANS = (
    UnknownParts(),
    UnknownParts(last_lines=2),
    UnknownParts(candidates=2, last_lines=2),
    UnknownParts(candidates=2, last_lines=1),
    UnknownParts(candidates=2, last_lines=1, collect=1),
    UnknownParts(candidates=2, last_lines=1, collect=1, commands=False),
    UnknownParts(candidates=1, last_lines=1, collect=1),
    UnknownParts(candidates=1, last_lines=0, collect=1, commands=False),
)


def known(document: Document, lang: Lang) -> Iterator[tuple[str, str]]:
    """Yield what is known of the end: labels and texts."""
    ranks = (document.get("job") or {}).get("ranks") or []
    collective = document.get("collective") or {}
    waited = any(entry.get("state") == "entered" for entry in ranks)
    for key, states in _STATES:
        found = [
            entry.get("rank")
            for entry in ranks
            if entry.get("state") in states or (key == "silent" and waited and _says_nothing(entry))
        ]
        if not found:
            continue
        text = f"{word('rank' if len(found) == 1 else 'ranks', lang).lower()} {rank_ranges(found)}"
        if key == "waiting" and collective.get("op"):
            sequence = collective.get("seq")
            text += word("in_call", lang).format(
                call=collective["op"] + (f" (seq {sequence})" if sequence is not None else "")
            )
        yield key, text
    for failed in ((document.get("network") or {}).get("failed") or [])[:_CONNECTIONS]:
        ends = [str(failed.get("from") or "?"), str(failed.get("to") or failed.get("address") or "?")]
        yield "failed_connections", " -> ".join(ends)


def _says_nothing(entry: Item) -> bool:
    return entry.get("state") == "unknown" and not entry.get("first_error") and entry.get("exit") is None


def last_lines(document: Document) -> list[tuple[str, Item]]:
    """Return the lines that tell most of an unknown end, each once, and the first error of each odd rank."""
    incident = document.get("incident") or {}
    told = hard_errors(document)
    ranks = [entry for entry in (document.get("job") or {}).get("ranks") or [] if entry.get("first_error")]
    found = [
        *zip(("telling_line", "also", "also"), told, strict=False),
        *([] if told else [("first_sign", _first_sign(document))]),
        *((f"rank {entry.get('rank')}", entry["first_error"]) for entry in ranks),
        ("last_progress", incident.get("last_progress") or {}),
        ("last_line", incident.get("end") or {}),
    ]
    return _once([(key, item) for key, item in found if item.get("text") and not _opens(item)])


def _first_sign(document: Document) -> Item:
    """Return the first line of the fault, or one that says more of it, where no ranking of lines was made."""
    fault: Item = (document.get("incident") or {}).get("first_fault") or {}
    best = next(iter(strongest((document.get("diagnoses") or [{}])[0], 1)), {})
    if best and (_opens(fault) or quoted(best).span.worth > quoted(fault).span.worth):
        fault = best
    if _opens(fault):
        failures = [event for event in document.get("timeline") or [] if event.get("role") in ("root", "cascade")]
        fault = max(failures, key=lambda event: (not _opens(event), quoted(event).span.worth), default={})
    return fault


def _opens(item: Item) -> bool:
    text = str(item.get("text") or "").strip()
    return not text or _OPENING in text.splitlines()[-1]


def _once(found: list[tuple[str, Item]]) -> list[tuple[str, Item]]:
    seen: set[object] = set()
    kept = []
    for key, item in found:
        place, text = (item.get("path"), item.get("line")), alike(str(item.get("text")))
        if place not in seen and text not in seen:
            kept.append((key, item))
            seen |= {place, text}
    return kept


def unknown(page: TextPage, document: Document, plan: UnknownParts) -> None:
    """Add everything that is known without a cause."""
    lang = page.lang
    page.headline(phrases.headline(document, lang))
    named_unknown = word("unknown", lang)
    state = (document.get("outcome") or {}).get("state")
    parts = [
        f"  {page.label(word('root_cause', lang))}{named_unknown}",
        page.label(word("outcome", lang)) + word(f"outcome_{state}", lang) if state else "",
        *(
            page.label(word(key, lang)) + text
            for key, text in (("started", phrases.incident_started(document, lang)), ("lost", lost(document, lang)))
            if text
        ),
    ]
    decision = phrases.restart_text(document, lang)
    parts += [page.label(word("restart_word", lang)) + decision] if decision else []
    page.line(word("semicolon", lang).join(filter(None, parts)), mark=named_unknown, fg="yellow", bold=True)
    facts = list(known(document, lang))
    lines = last_lines(document)[: plan.last_lines]
    if facts or lines:
        page.blank()
    for key, text in facts:
        page.say(2, word(key, lang), text)
    for key, item in lines:
        page.quote(2, word(key, lang) if not key.startswith("rank ") else key, quoted(item))
    candidates = (document.get("diagnoses") or [])[: plan.candidates]
    if candidates:
        page.blank()
    for number, diagnosis in enumerate(candidates):
        title = word("colon", lang).join((named(diagnosis, lang), pick(diagnosis, "title", lang)))
        page.say(2, word("possible", lang), title)
        _check(page, diagnosis, plan)
        if number == 0:
            _repair(page, diagnosis, plan)
    known_issues.say_first(page, document)
    wanted = _wanted(document)[: plan.collect]
    if wanted:
        page.blank()
    for item in wanted:
        page.say(2, word("collect", lang), pick(item, "what", lang) + _where(document, lang))
        for command in commands_of(item)[:1]:
            page.command(4, command)
    page.blank()


def _wanted(document: Document) -> list[Item]:
    """Return the missing evidence, what has a command first."""
    found = document.get("not_seen") or []
    return sorted(found, key=lambda item: not commands_of(item))


def _where(document: Document, lang: Lang) -> str:
    """Return on which hosts to collect, where the log names a few."""
    hosts = [str(host.get("name")) for host in (document.get("job") or {}).get("hosts") or [] if host.get("name")]
    return word("on_hosts", lang).format(hosts=", ".join(hosts)) if 0 < len(hosts) <= 3 else ""


def _check(page: TextPage, diagnosis: Item, plan: UnknownParts) -> None:
    check = diagnosis.get("next_check") or {}
    page.say(4, word("check", page.lang), pick(check, "what", page.lang))
    _ready(page, 4, str(check.get("command") or "").partition("\n")[0], plan)


def _ready(page: TextPage, indent: int, command: str, plan: UnknownParts) -> None:
    """Add a command that can be run as it is, where commands are shown."""
    if command and plan.commands and not is_open(command):
        page.command(indent, command)


def _repair(page: TextPage, diagnosis: Item, plan: UnknownParts) -> None:
    """Add what mends the likeliest cause if the check confirms it, with its command where it can be run as it is."""
    repair = likeliest_repair(diagnosis)
    if repair is None:
        return
    page.say(4, word("repair", page.lang), pick(repair, "title", page.lang))
    _ready(page, 6, next(iter(commands_of(repair)), ""), plan)


def healthy(page: TextPage, document: Document) -> None:
    """Add that nothing failed, how much was read, and what was seen and did no harm: three lines at most."""
    lang, inputs = page.lang, document.get("inputs") or []
    page.headline(phrases.headline(document, lang))
    lines = sum(i.get("lines") or 0 for i in inputs)
    text = word("healthy_text", lang).format(
        inputs=counted("input", len(inputs), lang), lines=counted("line", lines, lang)
    )
    good = word("healthy", lang)
    page.say(2, word("verdict", lang), f"{good}{word('colon', lang)}{text}", mark=good, fg="green", bold=True)


def counted(name: str, number: int, lang: Lang) -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return word(f"count_{name}" if number == 1 else f"count_{name}s", lang).format(n=f"{number:,}")


def within(page: TextPage, most: int) -> bool:
    """Tell whether a page has at most so many lines."""
    return rows(page.lines) <= most
