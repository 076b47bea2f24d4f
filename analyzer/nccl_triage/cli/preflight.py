"""``nccl-triage preflight``: check hosts, paths and collectives before a job starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nccl_triage import errors
from nccl_triage.cli import launching, options
from nccl_triage.cli.output import teller, write

#: Seconds that the whole takes at most unless the user says otherwise.
BUDGET = 300.0


@click.command(
    "preflight",
    epilog="\b\nExample (in a launch script):\n  nccl-triage preflight --host gpu-a --host gpu-b --ranks-per-host 8 || exit 1",
)
@launching.launcher_options(["local", "ray"], BUDGET, by_log=False)
@click.option("--sweep", is_flag=True, help="Also time the all-reduce at sizes from 8 bytes to 128 MiB.")
@options.format_option
@options.result_file_options
@options.language_option
@click.option("--quiet", "-q", is_flag=True, help="Print nothing on stderr.")
@options.debug_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    chosen: str,
    sweep: bool,
    output: Path | None,
    force: bool,
    lang: str,
    quiet: bool,
    debug: bool,
    **given: Any,
) -> None:
    """Check before a job starts that hosts are set up alike, reach each other, and run every collective correctly and fast.

    Exit code 0: ready; 1: something failed (the output says what); 2: the check itself could not run.
    """
    options.refuse_existing((output,), force)
    from nccl_triage.engine import load
    from nccl_triage.verify import preflight

    document = preflight.preflight(launching.settings(given, force), load.load(()), sweep=sweep, say=teller(quiet))
    if chosen == "json":
        import orjson

        data = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    else:
        data = preflight.text(document, options.language(lang) == "zh").encode()
    write(data, output, force)
    ctx.exit(errors.EXIT_OK if document["verdict"] == "ready" else errors.EXIT_CAUSE_FOUND)
