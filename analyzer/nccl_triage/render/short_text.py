"""A diagnosis in brief for a terminal: headline, cause and culprit, proof, commands, the rival, and where the rest is.

Everything is laid out for 100 columns first: of the plans below the first one that stays within the limit of lines is
used at every width, so that a narrow terminal and a pipe show the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from nccl_triage.lazy_regex import lazily
from nccl_triage.render import known_issues, phrases, verification
from nccl_triage.render.hard_errors import hard_errors
from nccl_triage.render.text_page import NextStep, QuotedLine, TextPage, chosen, quoted, steps
from nccl_triage.render.words import (
    Document,
    Lang,
    certainty,
    columns,
    confidence,
    consequence_phrase,
    culprit_name,
    pick,
    rank_ranges,
    word,
)

Item = Mapping[str, Any]
P = TypeVar("P")

WEIGHTS = ("decisive", "strong", "moderate", "weak")
#: The item of evidence by which the classifier votes; it rests on no line.
VOTE_ID = "classifier-vote"
#: Lines of an ordinary incident at so many columns.
LINES, COLUMNS = 15, 100
#: A rival is worth a line from this confidence on, and as likely as the first cause within ``TIE`` of it.
RIVAL, TIE = 0.05, 0.05
#: Fewest rank-hours that are told.
_HOURS = 0.05
#: Culprits that are named.
_NAMED = 3


class ShownParts(NamedTuple):
    """How much is shown."""

    quotes: int = 3
    says: int = 3
    commands: int = 3
    cautions: bool = True
    rival_check: bool = True
    facts: int = 9
    #: Lines that tell most of a run whose cause is not nearly certain, beside those that are quoted.
    telling: int = 3


#: From much to little.
PLANS = (
    ShownParts(),
    ShownParts(says=2),
    ShownParts(says=1),
    ShownParts(quotes=2, says=2),
    ShownParts(quotes=2, says=1, telling=2),
    ShownParts(quotes=2, says=1, commands=2, telling=2),
    ShownParts(quotes=2, says=0, commands=2, telling=2),
    ShownParts(quotes=1, says=1, commands=2, telling=2),
    ShownParts(quotes=2, says=1, commands=2, rival_check=False, telling=1),
    ShownParts(quotes=2, says=1, commands=1, telling=1),
    ShownParts(quotes=1, says=1, commands=1, telling=1),
    ShownParts(quotes=1, says=1, commands=1, rival_check=False, telling=1),
    ShownParts(quotes=1, says=0, commands=1, rival_check=False, facts=2, telling=1),
    # The first hard error is never hidden, however little room there is.
    ShownParts(quotes=1, says=0, commands=1, cautions=False, rival_check=False, facts=2, telling=1),
)


def rows(lines: Iterable[str], width: int = COLUMNS) -> int:
    """Return how many lines a terminal of this width shows: it folds what is too long."""
    return sum(max(1, -(-columns(line) // width)) for line in lines)


def fitting(make: Callable[[TextPage, P], None], lang: Lang, most: int, plans: Sequence[P]) -> P:
    """Return the first plan whose page stays within the limit at ``COLUMNS``, else the last."""
    for plan in plans:
        page = TextPage(False, COLUMNS, lang)
        make(page, plan)
        if rows(page.lines) <= most:
            return plan
    return plans[-1]


def votes(diagnosis: Item) -> set[str]:
    """Return what the classifier says in its vote for a cause."""
    return {str(term.get("says")) for term in diagnosis.get("contributions") or [] if term.get("id") == VOTE_ID}


def strongest(diagnosis: Item, number: int) -> list[Item]:
    """Return the pieces of evidence that decide, the weightiest first, one line for each thing they say."""
    rank = {weight: order for order, weight in enumerate(WEIGHTS)}
    found: dict[str, Item] = {}
    voted = votes(diagnosis)
    lines = (
        item
        for item in diagnosis.get("evidence") or []
        # History and the classifier's vote rest on no line of this log.
        if not str(item.get("signature")).startswith("history.") and str(item.get("says")) not in voted
    )
    for item in sorted(lines, key=lambda e: rank.get(str(e.get("weight")), len(rank))):
        found.setdefault(str(item.get("says") or id(item)), item)
    return list(found.values())[:number]


def sure(diagnosis: Item, lang: Lang) -> str:
    """Return how sure a cause is, in a word and a number: ``likely, 0.90``."""
    return f"{certainty(diagnosis, lang)}{word('comma', lang)}{confidence(diagnosis.get('confidence'))}"


def named(diagnosis: Item, lang: Lang) -> str:
    """Return the id of a cause with how sure it is."""
    return word("in_brackets", lang).format(what=diagnosis.get("cause"), more=sure(diagnosis, lang))


def tied(document: Document) -> list[Item]:
    """Return the causes that are as likely as the first, with it; empty when it leads."""
    best, *rivals = document["diagnoses"]
    lead = float(best.get("confidence") or 0)
    even = [rival for rival in rivals if lead - float(rival.get("confidence") or 0) <= TIE]
    return [best, *even] if even else []


def _culprits(best: Item, lang: Lang) -> str:
    """Return the culprits in words; ranks of one host are told together."""
    hosts: dict[object, list[Item]] = {}
    for culprit in best.get("culprits") or []:
        by_rank = culprit.get("rank") is not None
        hosts.setdefault(culprit.get("host") if by_rank else id(culprit), []).append(culprit)
    names = []
    for there in hosts.values():
        if len(there) == 1:
            names.append(culprit_name(there[0], lang))
            continue
        ranks = f"{word('ranks', lang).lower()} {rank_ranges(culprit['rank'] for culprit in there)}"
        host = there[0].get("host")
        names.append(word("on_host", lang).format(rank=ranks, host=host) if host else ranks)
    told = word("list_comma", lang).join(names[:_NAMED])
    return told + (f" +{len(names) - _NAMED}" if len(names) > _NAMED else "")


def lost(document: Document, lang: Lang) -> str:
    """Return the rank-hours that the failure cost, where they are known and worth a word."""
    incident = document.get("incident") or {}
    seconds, ranks, hours = (incident.get(key) for key in ("seconds", "ranks", "rank_hours"))
    if not isinstance(hours, (int, float)) or not isinstance(seconds, (int, float)) or hours < _HOURS or not ranks:
        return ""
    key = f"lost_{'at_least' if incident.get('at_least') else 'in_all'}{'_one' if ranks == 1 else ''}"
    return word(key, lang).format(hours=phrases.hours(hours), span=phrases.duration(seconds, lang), ranks=ranks)


def facts(document: Document, best: Item, lang: Lang) -> list[tuple[str, str]]:
    """Return who, since when, what it cost and who failed as a result, as far as known: labels and texts."""
    found = [
        ("culprit", _culprits(best, lang)),
        ("started", phrases.incident_started(document, lang)),
        ("lost", lost(document, lang)),
        ("consequences", consequence_phrase(document, lang, lines=False)),
    ]
    return [(key, text) for key, text in found if text]


def _facts(page: TextPage, document: Document, best: Item, most: int) -> None:
    """Add the cause and what is known of it: one line, a second one for what does not fit."""
    lang = page.lang
    even = tied(document)
    told = word("or_between", lang).join(named(one, lang) for one in even) if even else named(best, lang)
    first = f"  {page.label(word('root_cause', lang))}{told}"
    if even:
        first += word("tie", lang)
    kept: list[list[str]] = [[first], []]
    for key, text in facts(document, best, lang)[:most]:
        part = text if key == "consequences" else page.label(word(key, lang)) + text
        at = 0 if not kept[1] and columns(_joined([*kept[0], part], lang)) <= COLUMNS else 1
        if at and kept[1] and columns(_joined([*kept[1], part], lang)) > COLUMNS - 2:
            continue
        kept[at].append(part)
    page.line(_joined(kept[0], lang), mark=str(best.get("cause")), fg="red", bold=True)
    if kept[1]:
        page.line(f"  {_joined(kept[1], lang)}")


def _joined(parts: Sequence[str], lang: Lang) -> str:
    return word("semicolon", lang).join(parts)


_WORDS = lazily(r"[A-Za-z]{4,}|\d+")
#: Words of a sentence that say nothing by themselves.
_COMMON = frozenset(
    [
        "that",
        "this",
        "which",
        "with",
        "from",
        "they",
        "them",
        "their",
        "were",
        "been",
        "have",
        "does",
        "when",
        "then",
        "than",
        "into",
        "only",
        "line",
        "says",
    ]
)


def adds(item: Item, shown: str) -> bool:
    """Tell whether what is said about a line says more than the line and what stands above it."""
    said = {match[0].lower()[:6] for match in _WORDS.finditer(pick(item, "says", "en"))} - _COMMON
    known = {match[0].lower()[:6] for match in _WORDS.finditer(shown)}
    return len(said - known) * 2 > len(said)


def why(page: TextPage, best: Item, plan: ShownParts, headline: str) -> list[QuotedLine]:
    """Add the lines that prove the cause, each with what it says where that is more than the line itself.

    Returns the lines that were quoted.
    """
    lang, left = page.lang, plan.says
    label = word("why", lang)
    found = _different(best, headline)[: plan.quotes]
    if not found:
        page.say(2, label, word("why_none", lang))
    for item, quote in found:
        says = pick(item, "says", lang)
        if says and left > 0 and adds(item, f"{quote.text} {headline} {best.get('title')}"):
            left -= 1
            page.say(2, label, says)
            page.quote(4, "", quote)
        else:
            page.quote(2, label, quote)
    return [quote for _, quote in found]


def telling_lines(page: TextPage, document: Document, shown: Sequence[QuotedLine], most: int) -> None:
    """Add the lines that tell most of the run, without those that stand above."""
    found: list[QuotedLine] = []
    for quote in map(quoted, hard_errors(document)):
        if not any(_same(quote.text, other.text) for other in (*shown, *found)):
            found.append(quote)
    for quote in found[:most]:
        page.quote(2, word("also", page.lang), quote)


_NUMBERS = lazily(r"[\d.:/_-]+")


#: Characters of a message by which it is recognised in another line.
_MESSAGE = 32


def alike(text: str) -> str:
    """Return what lines have in common that differ only in numbers."""
    return _NUMBERS.sub("", text)[:200]


def _different(best: Item, headline: str) -> list[tuple[Item, QuotedLine]]:
    """Return the deciding lines; of lines that tell the same, but for numbers, the first one."""
    found: list[tuple[Item, QuotedLine]] = []
    for item in strongest(best, 99):
        quote = quoted(item, headline)
        if not any(_same(quote.text, shown.text) for _, shown in found):
            found.append((item, quote))
    return found


def _same(one: str, two: str) -> bool:
    """Tell whether two lines differ only in numbers, or one has the message of the other."""
    if alike(one) == alike(two):
        return True
    told = [text.rpartition("Error: ")[2][:_MESSAGE] for text in (one, two)]
    return any(len(part) == _MESSAGE and part in text for part, text in zip(told, (two, one), strict=True))


def do_now(page: TextPage, best: Item, plan: ShownParts) -> list[NextStep]:
    """Add the commands to run now, each with what it is for, and return what was added."""
    found = chosen(steps(best, page.lang), plan.commands)
    for step in found:
        page.say(2, word(step.key, page.lang), step.what)
        for command in step.commands:
            page.command(4, command)
        if plan.cautions:
            page.say(4, word("caution", page.lang), step.caution)
    return found


def _rival(page: TextPage, document: Document, done: Sequence[NextStep], plan: ShownParts) -> None:
    """Add the strongest rival and the check that decides between it and the first cause."""
    best, *rivals = document["diagnoses"]
    lang = page.lang
    rival = next((one for one in rivals if float(one.get("confidence") or 0) >= RIVAL), None)
    if rival is None:
        return
    title = word("colon", lang).join((named(rival, lang), pick(rival, "title", lang)))
    page.say(2, word("else", lang), title)
    told = {step.what for step in done}
    checks = [pick(one.get("next_check") or {}, "what", lang) for one in (best, rival)]
    fresh = [check for check in checks if check and check not in told]
    if fresh and plan.rival_check:
        page.say(4, word("check", lang), fresh[0])


def restart(page: TextPage, document: Document) -> None:
    """Add on one line whether the job may be started again, with the reason where there is room for it."""
    label = f"  {page.label(word('restart_word', page.lang))}"
    whole = phrases.restart_line(document, page.lang)
    text = whole if columns(label + whole) <= COLUMNS else phrases.restart_text(document, page.lang)
    page.say(2, word("restart_word", page.lang), text)


def more(page: TextPage, document: Document, causes: Sequence[str], left_out: int = 0) -> None:
    """Add where the rest is, on one line."""
    lang = page.lang
    parts = [f"nccl-triage explain {causes[0]}"] if causes else []
    parts.append(
        word(("more_v_note" if left_out == 1 else "more_v_notes") if left_out else "more_v", lang).format(n=left_out)
    )
    parts.append(word("more_report", lang))
    if causes and not verification.verified(document) and verification.needs_command(document):
        parts.append(word("more_verify", lang).format(command=verification.verify_command(document)))
    while len(parts) > 1 and columns(f"  {page.label(word('more', lang))}{_joined(parts, lang)}") > COLUMNS:
        parts.pop()
    page.say(2, word("more", lang), _joined(parts, lang))


def diagnosed(page: TextPage, document: Document, plan: ShownParts) -> None:
    """Add a diagnosis with a cause."""
    best = document["diagnoses"][0]
    headline = pick(document, "headline", "en")
    page.headline(phrases.headline(document, page.lang))
    _facts(page, document, best, plan.facts)
    page.blank()
    shown = why(page, best, plan, headline)
    telling_lines(page, document, shown, plan.telling)
    page.blank()
    done = do_now(page, best, plan)
    known_issues.say_first(page, document)
    restart(page, document)
    page.blank()
    _rival(page, document, done, plan)
