"""``nccl-triage diagnose``: the main job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from nccl_triage import errors, interrupts
from nccl_triage.cli import automatic, candidates, engines, follow, host_facts, language, options, output, remembering


def _stdin(paths: tuple[str, ...]) -> BinaryIO | None:
    if "-" not in paths:
        return None
    if sys.stdin.isatty():
        language.say("reading from the terminal; end with Ctrl-D")
    return sys.stdin.buffer


def _refuse_baseline(baseline: tuple[str, ...], following: bool) -> None:
    """Raise UsageError for a good run on standard input, or beside logs that are followed and not whole yet."""
    if "-" in baseline:
        raise errors.UsageError(
            "- cannot be the good run: it is the log that is diagnosed",
            remedy="give a file, a folder or a glob to --baseline",
        )
    if baseline and following:
        raise errors.UsageError(
            "--baseline does not go with --follow", remedy="compare the logs once the job has ended, without --follow"
        )


def _partial(number: int, document: output.Document, wish: output.Wanted) -> int:
    """Deliver what was found until a signal ended the reading, and return the exit code of that signal.

    Nobody who wants the end waits for experiments, and what was only half read is no history.
    """
    ended = interrupts.Ended(number)
    if not document.get("interrupted", {}).get("bytes_read", 1):
        raise ended
    name = interrupts.name_of(ended)
    if name is None:
        wish.tell("interrupted; the diagnosis of what was read until then:")
    else:
        wish.tell("ended by {signal}; the diagnosis of what was read until then:", signal=name)
    output.deliver(document, wish)
    return interrupts.code_of(ended)


@click.command("diagnose", epilog="\b\nExample:\n  nccl-triage logs/trainer.log --report post-mortem.html")
@click.argument("paths", nargs=-1, shell_complete=candidates.files)
@output.output_options
@options.rules_options
@options.model_option
@options.language_option
@automatic.options
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    help="Processes that scan, each some files or a part of a long one; without it as many as pay, four at most.",
)
@click.option(
    "--follow-links",
    "links",
    is_flag=True,
    help="Follow links in folders wherever they lead, not only within the folder that is named.",
)
@host_facts.option
@click.option(
    "--baseline",
    multiple=True,
    metavar="GOOD_LOG",
    shell_complete=candidates.files,
    help="Logs of a good run of the same job (a file, folder or glob; repeatable): what differs from it is evidence.",
)
@engines.options
@remembering.history_options
@follow.follow_options
@output.exit_code_option
@options.debug_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    rules_dirs: tuple[Path, ...],
    model_name: str | None,
    mode: str,
    budget: float,
    jobs: int | None,
    links: bool,
    baseline: tuple[str, ...],
    following: bool,
    hang_after: float | None,
    on_verdict: str | None,
    history: str | None,
    no_history: bool,
    want_code: bool,
    facts: tuple[Path, ...],
    debug: bool,
    **given: Any,
) -> None:
    """Name the root cause of a failed or hanging job from its logs.

    PATHS are files, folders, globs, or - for standard input; compressed logs (gz, xz, zst) are read as they are.
    Exit code 4: experiments before a report contradict the diagnosis.
    With --follow Ctrl-C and SIGTERM are the usual way to end: they change no exit code.
    """
    from nccl_triage.stopping import ReadingStop

    stop = ReadingStop()
    paths, engine = engines.chosen(paths, given, jobs, stop, links)
    if not paths:
        if sys.stdin.isatty():
            click.echo(ctx.get_help(), err=True)
            ctx.exit(errors.EXIT_USAGE)
        paths = ("-",)
    paths = host_facts.beside(paths, facts)
    wish = output.wanted(given)
    automatic.refuse_without_report(mode, wish.reports)
    folders = options.all_rules(rules_dirs)
    memory = remembering.memory(history, no_history, wish.quiet, wish.redact)
    _refuse_baseline(baseline, following)
    if following:
        automatic.refuse_while_following(mode)
        engines.refuse_while_following(engine)
        document = follow.run(paths, _stdin(paths), wish, folders, model_name, hang_after, on_verdict, memory, links)
        memory.keep(document)
        ctx.exit(output.exit_code(document, want_code))
    follow.refuse_alone(ctx)
    from nccl_triage.api import diagnose
    from nccl_triage.cli.progress import Progress
    from nccl_triage.execution.engines import LocalEngine

    with Progress(wish.quiet) as progress:
        diagnosis = diagnose(
            paths,
            rules_dirs=folders,
            jobs=jobs,
            engine=engine or LocalEngine(jobs, _stdin(paths), stop=stop, links=links),
            baseline=baseline,
            progress=progress.bytes,
            model=options.chosen_model(model_name),
            further=[memory.recall],
        )
    document = diagnosis.to_dict()
    if stop.asked is not None:
        ctx.exit(_partial(stop.asked, document, wish))
    first = document["diagnoses"][0]["cause"] if document["diagnoses"] else None
    if wish.reports:
        document = automatic.verified(document, folders, mode, budget, wish.say, debug)
    output.deliver(document, wish)
    memory.keep(document)
    if automatic.contradicted(document, first):
        ctx.exit(errors.EXIT_CONTRADICTED)
    ctx.exit(output.exit_code(document, want_code))
