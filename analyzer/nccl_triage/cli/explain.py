"""``nccl-triage explain``: what a cause, a signature, a variable, a number, a piece of advice or a line of a log means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage.cli import completion, options
from nccl_triage.errors import UsageError

if TYPE_CHECKING:
    from nccl_triage.engine.schema import RuleSet
    from nccl_triage.knowledge.lookup import KnowledgeItem

FORMATS = ("text", "json", "markdown")
#: What ``--list`` takes; ``knowledge.lookup.KINDS`` with ``all`` in front.
LISTS = ("all", "problems", "families", "causes", "symptoms", "advice", "variables", "codes", "signatures", "topics")
#: Longer words are a line of a log that holds more than a message.
_MAX_QUERY = 4000
#: Signatures that one line may match before the page becomes a list.
_MAX_PAGES = 3
#: Problems that are told when words speak of several.
_MAX_PROBLEMS = 2
#: Entries that are listed below a page.
_MAX_OTHERS = 5


@click.command(
    "explain",
    # Names of options (--shm-size) and exit codes (-9) are words to explain, not options of this command.
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  nccl-triage explain "my job hangs"
  nccl-triage explain network-wrong-interface
  nccl-triage explain NCCL_IB_HCA=mlx5
  nccl-triage explain cuda 802
  nccl-triage explain exit -9
  nccl-triage explain "Connection reset by peer"
  nccl-triage explain symptoms
  nccl-triage explain --list variables""",
)
@click.argument("name", nargs=-1, shell_complete=completion.explainable)
@click.option(
    "--list", "listed", is_flag=False, flag_value="all", type=click.Choice(LISTS), help="List what can be explained."
)
@click.option(
    "--format", "chosen", type=click.Choice(FORMATS), default="text", show_default=True, help="Output format."
)
@options.rules_options
@options.language_option
@options.debug_option
def command(
    name: tuple[str, ...], listed: str | None, chosen: str, rules_dirs: tuple[Path, ...], lang: str, debug: bool
) -> None:
    """Explain NAME: a problem in your own words, a cause, message, variable, error number, advice, or line of a log.

    Several words count as one name. NAME=VALUE also judges the value. Words that name nothing are searched for.
    """
    from nccl_triage.engine import load

    query = " ".join(name).strip()[:_MAX_QUERY]
    if not query and listed is None:
        raise UsageError("nothing to explain", remedy="nccl-triage explain --list")
    if query and listed is not None:
        raise UsageError("--list takes a kind, not a name", remedy="give one of the two")
    rules = load.load(rules_dirs)
    data = _listings(listed, rules) if listed is not None else _entries(query, rules)
    show(data, chosen, options.language(lang))


def show(data: list[dict[str, Any]], chosen: str, language: Any) -> None:
    """Print entries in a format."""
    from nccl_triage.render import explanation
    from nccl_triage.render.explanation_pages import page

    width = options.width_of() if chosen == "text" else None
    color = chosen == "text" and options.use_color()
    click.echo(explanation.render(data, chosen, language, page, width, color), nl=False)


def _listings(kind: str, rules: RuleSet) -> list[dict[str, Any]]:
    from nccl_triage.knowledge import lookup

    kinds = [name for name in LISTS[1:] if name != "signatures"] if kind == "all" else [kind]
    return [lookup.listing(name, rules) for name in kinds]


def _entries(query: str, rules: RuleSet) -> list[dict[str, Any]]:
    """Return what the query stands for; raises UsageError when nothing fits."""
    from nccl_triage.knowledge import describe, lookup, search

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
    from nccl_triage.knowledge import describe, lookup, search

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
    from nccl_triage.knowledge import lookup

    near = lookup.near(query, rules)
    remedy = "did you mean {near}?" if near else "nccl-triage explain --list shows what there is"
    raise UsageError("nothing is known about {name}", name=query[:80], near=", ".join(near), remedy=remedy)
