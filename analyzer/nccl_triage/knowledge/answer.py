"""What a word, a setting, a number, a line of a log or a question in words is answered with: the entries to show."""

from __future__ import annotations

from typing import Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import UsageError
from nccl_triage.knowledge import describe, lookup, search
from nccl_triage.knowledge.lookup import KnowledgeItem

#: Signatures that one line may match before the page becomes a list.
_MAX_PAGES = 3
#: Problems that are told when words speak of several.
_MAX_PROBLEMS = 2
#: Entries that are listed below a page.
_MAX_OTHERS = 5


def entries(query: str, rules: RuleSet) -> list[dict[str, Any]]:
    """Return what the query stands for; raises UsageError when nothing fits."""
    exact = lookup.exact(query, rules)
    if exact is not None:
        return [describe.found(exact, rules)]
    table = lookup.table_without(query)
    if table is not None:
        raise UsageError(
            "{name} is not in this table", name=query[:80], table=table.id, remedy="nccl-triage explain {table}"
        )
    found = lookup.numbered(query) or lookup.line(query, rules)
    if not found or (_says_little(found) and search.problems(query)):
        return _searched(query, found, rules) or _nearest(query, rules)
    if len(found) > _MAX_PAGES:
        return [lookup.hits(found)]
    return [describe.found(item, rules) for item in found]


def _says_little(found: list[KnowledgeItem]) -> bool:
    """Tell whether a line was recognised only by messages of a job that is well: it may be a question in words."""
    return all(item.kind == "signature" and item.item.role in ("progress", "context") for item in found)


def _searched(query: str, printed: list[KnowledgeItem], rules: RuleSet) -> list[dict[str, Any]]:
    """Return the page of what words fit best, with a list of the rest; nothing when nothing fits."""
    found = search.search(query, rules)
    name = search.named(query, rules)
    shown = [name] if name is not None else found[:1]
    if shown and shown[0].kind == "problem":
        shown = [item for item in found if item.kind == "problem"][:_MAX_PROBLEMS]
    elif name is None and len(found) > 1 and not any(item.kind == "problem" for item in found):
        shown = []  # words of several entries, none of which they name
    others = [item for item in (*found, *printed) if item not in shown]
    pages = [describe.found(item, rules) for item in shown]
    return [*pages, lookup.hits(others[:_MAX_OTHERS] if pages else others)] if others else pages


def _nearest(query: str, rules: RuleSet) -> list[dict[str, Any]]:
    """Raise UsageError with the names that are spelled similarly."""
    near = lookup.near(query, rules)
    remedy = "did you mean {near}?" if near else "nccl-triage explain --list shows what there is"
    raise UsageError("nothing is known about {name}", name=query[:80], near=", ".join(near), remedy=remedy)
