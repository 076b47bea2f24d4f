"""``nccl-triage diagnose``: the main job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from nccl_triage import errors
from nccl_triage.cli import automatic, options

if TYPE_CHECKING:
    from nccl_triage.diagnosis.verdict import Diagnosis

#: suffix of --output -> format
_SUFFIXES = {".json": "json", ".ndjson": "ndjson", ".md": "markdown", ".html": "html", ".htm": "html", ".txt": "text"}


def _format(chosen: str, output: Path | None) -> str:
    if chosen != "auto":
        return chosen
    return _SUFFIXES.get(output.suffix.lower(), "text") if output is not None else "text"


def exit_code(diagnosis: Diagnosis, wanted: bool) -> int:
    """Return the exit code of a diagnosis; without ``--exit-code`` every finding is a success."""
    if not wanted or diagnosis.verdict == "healthy":
        return errors.EXIT_OK
    return errors.EXIT_CAUSE_FOUND if diagnosis.verdict == "diagnosed" else errors.EXIT_UNKNOWN_CAUSE


def _stdin(paths: tuple[str, ...]) -> BinaryIO | None:
    if "-" not in paths:
        return None
    if sys.stdin.isatty():
        click.echo("reading the log from the terminal; end with Ctrl-D", err=True)
    return sys.stdin.buffer


@click.command("diagnose", epilog="\b\nExample:\n  nccl-triage logs/trainer.log --report post-mortem.html")
@click.argument("paths", nargs=-1)
@click.option(
    "--format",
    "chosen",
    type=click.Choice(["auto", "text", "json", "ndjson", "markdown", "html"]),
    default="auto",
    show_default=True,
    help="Format of the result; auto takes it from the suffix of --output.",
)
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), help="Also write an HTML report to this file."
)
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write the result to this file.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@options.rules_options
@options.model_option
@options.language_option
@automatic.options
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Files scanned at once.")
@click.option("--exit-code", "want_code", is_flag=True, help="Exit 0 healthy, 1 cause found, 3 cause unknown.")
@click.option("--quiet", "-q", is_flag=True, help="Nothing on stderr.")
@click.option("--verbose", "-v", count=True, help="Show every contribution to the scores.")
@options.debug_option
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[str, ...],
    chosen: str,
    report: Path | None,
    output: Path | None,
    force: bool,
    rules_dirs: tuple[Path, ...],
    model_name: str | None,
    lang: str,
    mode: str,
    budget: float,
    jobs: int,
    want_code: bool,
    quiet: bool,
    verbose: int,
    debug: bool,
) -> None:
    """Name the root cause of a failed or hanging job from its logs.

    PATHS are files, folders, globs, or - for standard input; compressed logs (gz, xz, zst) are read as they are.
    Exit code 4: experiments before a report contradict the diagnosis.
    """
    if not paths:
        if sys.stdin.isatty():
            click.echo(ctx.get_help(), err=True)
            ctx.exit(errors.EXIT_USAGE)
        paths = ("-",)
    options.refuse_existing((report, output), force)
    kind = _format(chosen, output)
    reports = report is not None or kind == "html"
    automatic.refuse_without_report(mode, reports)
    folders = options.all_rules(rules_dirs)
    from nccl_triage.api import diagnose
    from nccl_triage.cli.progress import Progress
    from nccl_triage.render import render

    with Progress(quiet) as progress:
        diagnosis = diagnose(
            paths,
            rules_dirs=folders,
            jobs=jobs,
            stdin=_stdin(paths),
            progress=progress.bytes,
            model=options.chosen_model(model_name),
        )
    document = diagnosis.to_dict()
    first = document["diagnoses"][0]["cause"] if document["diagnoses"] else None
    if reports:
        document = automatic.verified(
            document, folders, mode, budget, lambda text: _say(quiet, f"nccl-triage: {text}"), debug
        )
    language = options.language(lang)
    if output is None:
        color = kind == "text" and options.use_color()
        width = options.width_of() if kind == "text" else None
        data = render(document, kind, lang=language, color=color, width=width, verbose=verbose)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        data = render(document, kind, lang=language, color=False, width=None, verbose=verbose)
        options.write_file(output, data, force)
        _say(quiet, f"nccl-triage: {document['headline' if language == 'en' else 'headline_zh']}")
        _say(quiet, f"nccl-triage: {kind} written to {output}")
    if report is not None:
        page = render(document, "html", lang=language, color=False, width=None, verbose=verbose)
        options.write_file(report, page, force)
        _say(quiet, f"nccl-triage: report written to {report} ({automatic.told(document)})")
    refuted = automatic.contradicted(document, first)
    ctx.exit(errors.EXIT_CONTRADICTED if refuted else exit_code(diagnosis, want_code))


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        click.echo(text, err=True)
