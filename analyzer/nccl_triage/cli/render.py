"""``nccl-triage render``: a saved report in any format."""

from __future__ import annotations

from typing import Any

import click

from nccl_triage.cli import options, output


@click.command(
    "render",
    epilog="\b\nExamples:\n  nccl-triage render report.json --format markdown --redact\n"
    "  nccl-triage render report.json -o post-mortem.html\n  cat report.json | nccl-triage render - --format sarif",
)
@click.argument("path", metavar="REPORT.json")
@output.output_options
@options.language_option
@output.exit_code_option
@options.debug_option
@click.pass_context
def command(ctx: click.Context, /, path: str, want_code: bool, debug: bool, **given: Any) -> None:
    """Show a report that --format json has written, in any format: the same bytes as the direct run would give.

    REPORT.json is a file, or - for standard input.
    """
    wish = output.wanted(given)
    from nccl_triage.cli import saved

    document = saved.read(path)
    output.deliver(document, wish)
    ctx.exit(output.exit_code(document, want_code))
