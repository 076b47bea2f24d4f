"""Find what a word, a number, a setting or a line of a log stands for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from nccl_triage.engine.schema import FAMILIES, RuleSet
from nccl_triage.knowledge import catalogue
from nccl_triage.knowledge.model import CodeTable
from nccl_triage.knowledge.variables import shipped
from nccl_triage.lazy_regex import lazily

#: What ``--list`` knows, and in this order.
KINDS = ("families", "causes", "symptoms", "advice", "variables", "codes", "signatures", "topics")
#: Pages that are no entry of a file.
TOPICS = ("symptoms", "timeouts", "codes")
_SETTING = lazily(r"^(?P<name>[+\w][\w.+-]*|--?[\w.-]+)=(?P<value>.*)$", re.DOTALL)
_NUMBERED = lazily(r"^(?P<table>[\w-]+?)[\s:#=_-]*?(?P<number>-?\d+)$")
_TIMEOUT = lazily(r"^time-?outs?(?: ?\(ms\))?[ =:]*(?P<number>\d{4,12})$", re.IGNORECASE)
#: A line of a log is longer than this and holds a blank.
_LINE = 12
#: Hits of a search by words, and signatures among them whose samples hold the query.
_HITS, _SAMPLES = 8, 4


class Found(NamedTuple):
    """One thing that was found; ``value`` is the setting's where one was given."""

    kind: str
    item: Any
    value: str | None = None


def _code(query: str) -> Found | None:
    """Return the entry of a table that ``cuda 802``, ``cuda:802``, ``status=12`` or ``cudaErrorAssert`` names."""
    tables = catalogue.tables()
    match = _NUMBERED.match(query)
    if match is not None:
        name, number = match["table"].lower(), int(match["number"])
        for table in tables.values():
            if name in (table.id, *table.aliases):
                for code in table.codes:
                    if code.number == number:
                        return Found("code", code)
    for table in tables.values():
        for code in table.codes:
            if query.lower() == code.name.lower():
                return Found("code", code)
    return None


def table_without(query: str) -> CodeTable | None:
    """Return the table that ``cuda 99999`` speaks of when it holds no such number."""
    match = _NUMBERED.match(query)
    table = _table(match["table"]) if match is not None else None
    return table.item if table is not None and _code(query) is None else None


def numbered(query: str) -> list[Found]:
    """Return what a bare number stands for in every table."""
    if not re.fullmatch(r"-?\d{1,9}", query):
        return []
    every = [code for table in catalogue.tables().values() for code in table.codes]
    return [Found("code", code) for code in every if code.number == int(query)]


def _table(query: str) -> Found | None:
    name = query.lower()
    for table in catalogue.tables().values():
        if name in (table.id, *table.aliases):
            return Found("table", table)
    return None


def _cause(query: str, rules: RuleSet) -> Found | None:
    for cause in rules.causes.values():
        if query in (cause.id, *cause.aliases):
            return Found("cause", cause)
    return None


def _advice(query: str) -> Found | None:
    for item in catalogue.advice().values():
        if query.lower() in (item.id, *(alias.lower() for alias in item.aliases)):
            return Found("advice", item)
    return None


def _owner(query: str) -> Found | None:
    """Return the time-out that ``Timeout(ms)=600000`` names, in milliseconds."""
    match = _TIMEOUT.match(query)
    return Found("owner", int(match["number"])) if match is not None else None


def _variable(query: str) -> Found | None:
    """Return the variable of a name or of ``NAME=VALUE``; a name that nobody reads counts when its prefix is known."""
    known = shipped()
    match = _SETTING.match(query)
    whole = known.find(query)
    if whole is not None:
        return Found("variable", whole)
    name, value = (match["name"], match["value"]) if match is not None else (query, None)
    found = known.find(name)
    if found is not None:
        return Found("variable", found, value)
    space = known.namespace(name)
    if space is not None and re.fullmatch(r"\w+", name):
        return Found("name", name, value)
    return None


def exact(query: str, rules: RuleSet) -> Found | None:
    """Return what a query names, or None; an entry of a file wins over a table, a table over a group."""
    return _exact(query, rules) or _exact(query.strip("()'\"`.,;:"), rules)


def _exact(query: str, rules: RuleSet) -> Found | None:
    lower = query.lower()
    signature = rules.signatures.get(query)
    symptom = catalogue.symptoms().get(lower)
    return (
        _cause(query, rules)
        or (Found("signature", signature) if signature is not None else None)
        or (Found("topic", lower) if lower in TOPICS else None)
        or _owner(query)
        or _code(query)
        or _variable(query)
        or _advice(query)
        or (Found("symptom", symptom) if symptom is not None else None)
        or (Found("family", lower) if lower in FAMILIES else None)
        or _table(query)
    )


def line(query: str, rules: RuleSet) -> list[Found]:
    """Return the signatures that a line of a log matches."""
    if len(query) < _LINE or " " not in query.strip():
        return []
    from nccl_triage.engine import match
    from nccl_triage.parsers.wrappers import peel

    message = peel(query).text
    lowered = query.lower()
    likely = [
        signature
        for signature in rules.signatures.values()
        if signature.anchors is None
        or any(text in (lowered if signature.anchors.caseless else query) for text in signature.anchors.texts)
    ]
    found = {signature.id: signature for signature, _ in match.matches(likely, message, query)}
    return [Found("signature", signature) for signature in found.values()]


def _words(text: str) -> set[str]:
    return {word for word in re.split(r"[^\w.~+-]+", text.lower()) if len(word) > 1}


def _score(wanted: set[str], words: Iterable[str], text: str) -> float:
    """Return how well words fit: a search word of the entry counts three times a word of its text."""
    own, prose = {word.lower() for word in words}, _words(text)
    chinese = "".join(wanted)
    score = 3.0 * len(wanted & own) + len(wanted & prose)
    # Chinese is not cut into words: a search word that stands in the query counts.
    return score + 3.0 * sum(len(word) > 1 and not word.isascii() and word in chinese for word in own)


def search(query: str, rules: RuleSet) -> list[Found]:
    """Return what fits the words of a query best, the best first."""
    wanted = _words(query)
    scored: list[tuple[float, str, Found]] = []

    def add(kind: str, item: Any, words: Iterable[str], text: str) -> None:
        score = _score(wanted, words, text)
        if score >= max(2.0, 0.75 * len(wanted)):
            scored.append((-score, item.id, Found(kind, item)))

    for advice in catalogue.advice().values():
        add("advice", advice, advice.words, f"{advice.id.replace('-', ' ')} {advice.claim['en']}")
    for symptom in catalogue.symptoms().values():
        add("symptom", symptom, symptom.id.split("-"), f"{symptom.sees} {symptom.means['en']}")
    for cause in rules.causes.values():
        add("cause", cause, cause.id.split("-"), f"{cause.title['en']} {cause.explanation['en']}")
    for variable in shipped().all():
        add("variable", variable, variable.id.lower().split("_"), variable.meaning["en"])
    scored.sort(key=lambda entry: entry[:2])
    return [*(found for _, _, found in scored[:_HITS]), *_printed(query, rules)]


def _printed(query: str, rules: RuleSet) -> list[Found]:
    """Return signatures whose samples hold the query: part of a message."""
    text = query.lower()
    if len(text) < 8:
        return []
    found = [s for s in rules.signatures.values() if any(text in sample.lower() for sample in s.match_samples)]
    return [Found("signature", item) for item in found[:_SAMPLES]]


def near(query: str, rules: RuleSet) -> list[str]:
    """Return known names that are written almost like the query."""
    known = names(rules)
    lowered = {name.lower(): name for name in known}
    found = difflib.get_close_matches(query.lower(), lowered, 4, 0.7)
    return [lowered[name] for name in found]


def names(rules: RuleSet) -> list[str]:
    """Return every name that ``exact`` finds, without aliases."""
    codes = [code.name for table in catalogue.tables().values() for code in table.codes]
    return [
        *rules.causes, *FAMILIES, *TOPICS, *catalogue.symptoms(), *catalogue.advice(), *shipped(), *codes,
        *rules.signatures,
    ]  # fmt: skip
