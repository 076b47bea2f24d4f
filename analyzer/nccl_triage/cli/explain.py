"""``nccl-triage explain``: what a cause, a signature, a variable, a number, a piece of advice or a line of a log means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage.cli import completion, options
from nccl_triage.errors import UsageError

if TYPE_CHECKING:
    from nccl_triage.engine.schema import RuleSet

FORMATS = ("text", "json", "markdown")
#: What ``--list`` takes; ``knowledge.lookup.KINDS`` with ``all`` in front.
LISTS = (
    "all", "problems", "families", "causes", "symptoms", "known_issues", "advice", "variables", "codes", "signatures", "topics",
)  # fmt: skip
#: Longer words are a line of a log that holds more than a message.
_MAX_QUERY = 4000


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
    from nccl_triage.knowledge import answer

    query = " ".join(name).strip()[:_MAX_QUERY]
    if not query and listed is None:
        raise UsageError("nothing to explain", remedy="nccl-triage explain --list")
    if query and listed is not None:
        raise UsageError("--list takes a kind, not a name", remedy="give one of the two")
    rules = load.load(rules_dirs)
    data = _listings(listed, rules) if listed is not None else answer.entries(query, rules)
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
