"""``nccl-triage mcp``: the tools for language models, served to one client on standard input and output."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from nccl_triage.cli import history_options, language, launching, options
from nccl_triage.errors import UsageError
from nccl_triage.history import place

#: Seconds of one call.
BUDGET = 60.0
_INSTALL = "pip install 'nccl-triage[mcp]'"


def _refuse_without_sdk() -> None:
    """Raise UsageError where the SDK is missing or has another interface than this module uses (version 2)."""
    try:
        found = importlib.util.find_spec("mcp.server.mcpserver")
    except ImportError:
        found = None
    if found is None:
        raise UsageError("nccl-triage mcp needs the MCP SDK, version 2: {install}", install=_INSTALL)


@click.command(
    "mcp",
    epilog="\b\nExamples:\n  nccl-triage mcp --allow /shared/logs\n  claude mcp add nccl-triage -- nccl-triage mcp --allow /shared/logs",
)
@click.option(
    "--allow",
    "folders",
    multiple=True,
    is_eager=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Folder whose logs may be read (repeatable; default: the current one). Links out of it are refused.",
)
@click.option("--no-redact", is_flag=True, is_eager=True, help="Show the real names of hosts, users and paths.")
@launching.budget_option(BUDGET, "Time limit of each call; what was read until then is diagnosed.")
@history_options.file_option
@options.rules_options
@options.language_option
@options.debug_option
def command(
    folders: tuple[Path, ...],
    no_redact: bool,
    budget: float,
    history: str | None,
    rules_dirs: tuple[Path, ...],
    lang: str,
    debug: bool,
) -> None:
    """Serve diagnoses to a coding agent over the Model Context Protocol, on standard input and output.

    Every tool only reads: nothing is run, no history is written. Answers are redacted and at most 16,000 characters
    long. --allow and --no-redact are taken from the command line only.
    """
    _refuse_without_sdk()
    from nccl_triage.mcp_server.access import AllowedFolders
    from nccl_triage.mcp_server.server import ServerSettings, serve

    if not folders:
        language.say("logs below {folder} may be read; --allow names other folders", folder=Path.cwd())
    serve(
        ServerSettings(
            folders=AllowedFolders(folders or (Path.cwd(),)),
            rules=tuple(path.absolute() for path in options.all_rules(rules_dirs)),
            history=place.chosen(history),
            redact=not no_redact,
            seconds=budget,
            lang=options.language(lang),
        )
    )
