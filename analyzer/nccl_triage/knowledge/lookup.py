"""Find what a name, a number, a setting or a line of a log stands for, and list what can be explained."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from nccl_triage.engine.schema import FAMILIES, RuleSet
from nccl_triage.knowledge import catalogue, known_issues
from nccl_triage.knowledge.entries import CodeTable, Text
from nccl_triage.knowledge.variables import shipped
from nccl_triage.lazy_regex import lazily

#: What ``--list`` knows, and in this order.
KINDS = (
    "problems", "families", "causes", "symptoms", "known_issues", "advice", "variables", "codes", "signatures", "topics",
)  # fmt: skip
#: Pages that are no entry of a file.
TOPICS = ("symptoms", "timeouts", "codes")
_SETTING = lazily(r"^(?P<name>[+\w][\w.+-]*|--?[\w.-]+)=(?P<value>.*)$", re.DOTALL)
_NUMBERED = lazily(r"^(?P<table>[\w-]+?)(?: (?:code|status|error))?[\s:#=_-]*?(?P<number>-?\d+)$", re.IGNORECASE)
_TIMEOUT = lazily(r"^time-?outs?(?: ?\(ms\))?[ =:]*(?P<number>\d{4,12})$", re.IGNORECASE)
#: A line of a log is longer than this and holds a blank.
_LINE = 12


class KnowledgeItem(NamedTuple):
    """An entry of the knowledge; ``value`` is that of a setting ``NAME=VALUE``."""

    kind: str
    item: Any
    value: str | None = None


def _code(query: str) -> KnowledgeItem | None:
    """Return the entry of a table that ``cuda 802``, ``cuda:802``, ``status=12`` or ``cudaErrorAssert`` names."""
    tables = catalogue.tables()
    match = _NUMBERED.match(query)
    if match is not None:
        name, number = match["table"].lower(), int(match["number"])
        for table in tables.values():
            if name in (table.id, *table.aliases):
                for code in table.codes:
                    if code.number == number:
                        return KnowledgeItem("code", code)
    for table in tables.values():
        for code in table.codes:
            if query.lower() == code.name.lower():
                return KnowledgeItem("code", code)
    return None


def table_without(query: str) -> CodeTable | None:
    """Return the table of ``cuda 99999`` when it does not hold the number."""
    match = _NUMBERED.match(query)
    table = _table(match["table"]) if match is not None else None
    return table.item if table is not None and _code(query) is None else None


def numbered(query: str) -> list[KnowledgeItem]:
    """Return what a bare number stands for in every table."""
    if not re.fullmatch(r"-?\d{1,9}", query):
        return []
    every = [code for table in catalogue.tables().values() for code in table.codes]
    return [KnowledgeItem("code", code) for code in every if code.number == int(query)]


def _table(query: str) -> KnowledgeItem | None:
    name = query.lower()
    for table in catalogue.tables().values():
        if name in (table.id, *table.aliases):
            return KnowledgeItem("table", table)
    return None


def _cause(query: str, rules: RuleSet) -> KnowledgeItem | None:
    for cause in rules.causes.values():
        if query in (cause.id, *cause.aliases):
            return KnowledgeItem("cause", cause)
    return None


def _advice(query: str) -> KnowledgeItem | None:
    for item in catalogue.advice().values():
        if query.lower() in (item.id, *(alias.lower() for alias in item.aliases)):
            return KnowledgeItem("advice", item)
    return None


def _owner(query: str) -> KnowledgeItem | None:
    """Return the timeout that ``Timeout(ms)=600000`` names, in milliseconds."""
    match = _TIMEOUT.match(query)
    return KnowledgeItem("owner", int(match["number"])) if match is not None else None


def _variable(query: str) -> KnowledgeItem | None:
    """Return the variable of a name or of ``NAME=VALUE``; an unknown name is accepted when its prefix is known."""
    known = shipped()
    match = _SETTING.match(query)
    whole = known.find(query)
    if whole is not None:
        return KnowledgeItem("variable", whole)
    name, value = (match["name"], match["value"]) if match is not None else (query, None)
    found = known.find(name)
    if found is not None:
        return KnowledgeItem("variable", found, value)
    space = known.namespace(name)
    if space is not None and re.fullmatch(r"\w+", name):
        return KnowledgeItem("name", name, value)
    return None


def exact(query: str, rules: RuleSet) -> KnowledgeItem | None:
    """Return what a query names, or None; an entry of a file wins over a table, a table over a group."""
    return _exact(query, rules) or _exact(query.strip("()'\"`.,;:"), rules)


def _exact(query: str, rules: RuleSet) -> KnowledgeItem | None:
    lower = query.lower()
    signature = rules.signatures.get(query)
    symptom = catalogue.symptoms().get(lower)
    problem = catalogue.problems().get(lower)
    issue = known_issues.shipped().get(lower)
    return (
        _cause(query, rules)
        or (KnowledgeItem("signature", signature) if signature is not None else None)
        or (KnowledgeItem("topic", lower) if lower in TOPICS else None)
        or _owner(query)
        or _code(query)
        or _variable(query)
        or _advice(query)
        or (KnowledgeItem("symptom", symptom) if symptom is not None else None)
        or (KnowledgeItem("problem", problem) if problem is not None else None)
        or (KnowledgeItem("known_issue", issue) if issue is not None else None)
        or (KnowledgeItem("family", lower) if lower in FAMILIES else None)
        or _table(query)
    )


def line(query: str, rules: RuleSet) -> list[KnowledgeItem]:
    """Return the signatures that a line of a log matches."""
    if len(query) < _LINE or " " not in query.strip():
        return []
    from nccl_triage.engine import match
    from nccl_triage.parsers.wrappers import PrefixReader

    message = PrefixReader(rules.prefixes).peel(query).text
    lowered = query.lower()
    likely = [
        signature
        for signature in rules.signatures.values()
        if signature.anchors is None
        or any(text in (lowered if signature.anchors.caseless else query) for text in signature.anchors.texts)
    ]
    found = {signature.id: signature for signature, _ in match.matches(likely, message, query)}
    return [KnowledgeItem("signature", signature) for signature in found.values()]


def near(query: str, rules: RuleSet) -> list[str]:
    """Return known names that are spelled similarly to the query."""
    known = names(rules)
    lowered = {name.lower(): name for name in known}
    found = difflib.get_close_matches(query.lower(), lowered, 4, 0.7)
    return [lowered[name] for name in found]


def names(rules: RuleSet) -> list[str]:
    """Return every name that ``exact`` finds, without aliases."""
    codes = [code.name for table in catalogue.tables().values() for code in table.codes]
    return [
        *rules.causes, *FAMILIES, *TOPICS, *catalogue.problems(), *catalogue.symptoms(), *catalogue.advice(), *shipped(), *codes,
        *known_issues.shipped(),
        *rules.signatures,
    ]  # fmt: skip


Row = tuple[str, Text]
_TOPICS: dict[str, Text] = {
    "symptoms": {"en": "what you see, what it means, what to look at first", "zh": "看到什么、意味着什么、先查什么"},
    "timeouts": {"en": "who sets a timeout, and how", "zh": "超时由谁设定、如何设置"},
    "codes": {"en": "the tables of numbers", "zh": "编号表"},
}


def _families(rules: RuleSet) -> Iterable[Row]:
    for family in FAMILIES:
        members = ", ".join(sorted(cause.id for cause in rules.causes.values() if cause.family == family))
        yield family, {"en": members, "zh": members}


_ROWS: dict[str, Callable[[RuleSet], Iterable[Row]]] = {
    "problems": lambda rules: ((item.id, item.title) for item in catalogue.problems().values()),
    "families": _families,
    "causes": lambda rules: ((item.id, item.title) for item in rules.causes.values()),
    "symptoms": lambda rules: ((item.id, item.means) for item in catalogue.symptoms().values()),
    "known_issues": lambda rules: ((item.id, item.title) for item in known_issues.shipped().values()),
    "advice": lambda rules: ((item.id, item.claim) for item in catalogue.advice().values()),
    "variables": lambda rules: ((item.id, item.meaning) for item in shipped().all()),
    "codes": lambda rules: ((item.id, item.title) for item in catalogue.tables().values()),
    # The meanings of signatures exist in English alone.
    "signatures": lambda rules: ((item.id, {"en": item.meaning}) for item in rules.signatures.values()),
    "topics": lambda rules: _TOPICS.items(),
}


def _list_row(name: str, text: Text) -> dict[str, str]:
    row = {"id": name, "text": text["en"].strip()}
    return {**row, "text_zh": text["zh"].strip()} if "zh" in text else row


def listing(kind: str, rules: RuleSet) -> dict[str, Any]:
    """Return everything of a kind of ``lookup.KINDS``."""
    return {"kind": "listing", "of": kind, "rows": [_list_row(name, text) for name, text in _ROWS[kind](rules)]}


def _summary(found: KnowledgeItem) -> Text:
    item = found.item
    if found.kind == "topic":
        return _TOPICS[item]
    texts = {
        "cause": "title",
        "problem": "title",
        "advice": "claim",
        "symptom": "means",
        "variable": "meaning",
        "code": "meaning",
        "known_issue": "title",
    }
    if found.kind == "signature":
        return {"en": item.meaning}
    text: Text = getattr(item, texts[found.kind])
    return text


def hits(found: Iterable[KnowledgeItem]) -> dict[str, Any]:
    """Return what a search has found as a list; every row's id can be explained."""
    return {"kind": "listing", "of": "hits", "rows": rows(found)}


def rows(found: Iterable[KnowledgeItem]) -> list[dict[str, str]]:
    """Return the id and the summary of each entry."""
    return [_list_row(_name(item), _summary(item)) for item in found]


def _name(found: KnowledgeItem) -> str:
    if found.kind == "code":
        return f"{found.item.table}:{found.item.number}"
    return str(found.item if found.kind == "topic" else found.item.id)
