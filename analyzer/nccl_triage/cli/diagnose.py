"""``nccl-triage diagnose``: the main job, with the options that say where logs are read and what doctor saw."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from nccl_triage import errors, interrupts
from nccl_triage.cli import completion, follow, history_options, language, launching, options, output
from nccl_triage.cli import jobs as jobs_cli
from nccl_triage.errors import UsageError

if TYPE_CHECKING:
    from nccl_triage.execution.engines import Engine
    from nccl_triage.stopping import ReadingStop


def engine_options(function: Any) -> Any:
    """Add the options that choose the engine."""
    further = [
        click.option(
            "--engine",
            type=click.Choice(["local", "ray"]),
            default="local",
            show_default=True,
            help="Where to read the logs. With ray, every node of a Ray cluster reads its own files that "
            "match 'node:*/PATTERN'; other paths are shared out among the nodes, which must all see "
            "them.",
        ),
        click.option(
            "--ray-session",
            is_flag=True,
            help="Read the logs of the running Ray session on every node (same as --engine ray 'node:*').",
        ),
        click.option("--ray-address", metavar="ADDRESS", help="Address of the Ray cluster (default: auto)."),
        click.option(
            "--node-timeout",
            type=click.FloatRange(1, 86400),
            default=120.0,
            show_default=True,
            metavar="SECONDS",
            help="Give up on a node that makes no progress for this long.",
        ),
    ]
    for option in reversed(further):
        function = option(function)
    return function


def chosen_engine(
    paths: tuple[str, ...], given: dict[str, Any], jobs: int | None, stop: ReadingStop, links: bool
) -> tuple[tuple[str, ...], Engine | None]:
    """Take the options out of ``given``; return what is to be read, and the engine if it is not this machine.

    ``stop`` may end the reading early; ``links`` are followed out of folders.
    """
    engine, session = given.pop("engine"), given.pop("ray_session")
    address, patience = given.pop("ray_address"), given.pop("node_timeout")
    if engine == "local" and not session:
        _refuse_nodes(paths)
        return paths, None
    from nccl_triage.execution.cluster import targets
    from nccl_triage.execution.cluster.engine import RayEngine

    if session:
        paths = (*paths, targets.EVERY_SESSION)
    if not paths:
        raise UsageError(
            "there is nothing to read on the cluster",
            remedy="add --ray-session, or name logs such as 'node:*/var/log/job' or a folder that all nodes see",
        )
    return paths, RayEngine(address, jobs or 1, patience, stop=stop, links=links)


def refuse_while_following(engine: Engine | None) -> None:
    """Raise UsageError for a cluster: growing logs are followed on the machine that has them."""
    if engine is not None:
        raise UsageError(
            "--engine ray cannot be combined with --follow",
            remedy="follow the driver's log, or files that all nodes share, on this machine",
        )


def _refuse_nodes(paths: tuple[str, ...]) -> None:
    """Raise UsageError for ``node:`` paths, which need ``--engine ray``."""
    import os

    for path in paths:
        if path.startswith("node:") and not os.path.lexists(path):
            raise UsageError("{path} is on the nodes of a cluster", remedy="add --engine ray", path=path)


def host_facts_option(function: Any) -> Any:
    """Add ``--host-facts`` (repeatable)."""
    return click.option(
        "--host-facts",
        "facts",
        multiple=True,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Also weigh what doctor found on the job's hosts: its JSON output, of one host or many (repeatable).",
    )(function)


def with_host_facts(paths: Sequence[str], facts: Sequence[Path]) -> tuple[str, ...]:
    """Return the paths followed by the files of host facts.

    Raises UsageError for a file that cannot be read or that holds something else.
    """
    from nccl_triage.ingest import sniff
    from nccl_triage.ingest.layout_conditions import strip_compression
    from nccl_triage.tool_reports import recognise

    for path in facts:
        try:
            _, sample, _ = sniff.head(path)
        except OSError as error:
            raise UsageError("cannot read {path}", cause="{why}", path=path, why=error.strerror or error) from None
        form = recognise(strip_compression(path.name), sample)
        if form is None or form.name != "doctor":
            raise UsageError(
                "{path} holds no host facts",
                remedy="make it with: nccl-triage doctor --format json -o {path}",
                path=path,
            )
    return (*paths, *map(str, facts))


def _stdin(paths: tuple[str, ...]) -> BinaryIO | None:
    if "-" not in paths:
        return None
    if sys.stdin.isatty():
        language.say("reading from the terminal; end with Ctrl-D")
    return sys.stdin.buffer


def _is_pipe(path: str) -> bool:
    """Tell whether a path is standard input or a named pipe."""
    return path == "-" or Path(path).is_fifo()


def _refuse_baseline(baseline: tuple[str, ...], following: bool) -> None:
    """Raise UsageError for a good run on standard input, or together with ``--follow``."""
    if "-" in baseline:
        raise errors.UsageError(
            "- cannot be the good run: it is the log to be diagnosed",
            remedy="give a file, a folder or a glob to --baseline",
        )
    if baseline and following:
        raise errors.UsageError(
            "--baseline cannot be combined with --follow",
            remedy="compare the logs once the job has ended, without --follow",
        )


def _partial(number: int, document: output.Document, wish: output.OutputOptions) -> int:
    """Deliver the partial result of an interrupted reading and return the signal's exit code.

    No experiments are run after a signal, and a partial diagnosis is not added to the history.
    """
    ended = interrupts.Ended(number)
    if not any(entry["bytes"] for entry in document["inputs"]):
        raise ended
    name = interrupts.name_of(ended)
    if name is None:
        wish.tell("interrupted; the diagnosis of what was read until then:")
    else:
        wish.tell("ended by {signal}; the diagnosis of what was read until then:", signal=name)
    output.deliver(document, wish)
    return interrupts.code_of(ended)


@click.command("diagnose", epilog="\b\nExample:\n  nccl-triage logs/trainer.log --report post-mortem.html")
@click.argument("paths", nargs=-1, shell_complete=completion.files)
@output.output_options
@options.rules_options
@options.model_option
@options.language_option
@launching.options
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    help="Number of processes that read the logs (default: as many as help, at most 4).",
)
@click.option(
    "--follow-links",
    "links",
    is_flag=True,
    help="Follow symbolic links even where they lead out of the given folder.",
)
@host_facts_option
@click.option(
    "--baseline",
    multiple=True,
    metavar="GOOD_LOG",
    shell_complete=completion.files,
    help="Logs of a good run of the same job: a file, folder or glob (repeatable). Differences count as evidence.",
)
@jobs_cli.grouping_options
@engine_options
@history_options.history_options
@follow.follow_options
@click.option("--trace", "traced", is_flag=True, help="Add every decision behind the verdict to JSON, under trace.")
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
    job_name: str | None,
    traced: bool,
    want_code: bool,
    facts: tuple[Path, ...],
    debug: bool,
    **given: Any,
) -> None:
    """Name the root cause of a failed or hanging job from its logs.

    PATHS are files, folders, globs, or - for standard input. Compressed logs (gz, xz, zst) need not be unpacked. Logs of
    several jobs give a table with a line for each job. Exit
    code 4 means that experiments before a report contradict the diagnosis. With --follow, Ctrl-C and SIGTERM are the
    usual way to stop and do not change the exit code. Of several jobs the worst decides the code: 1, then 3. A path that
    names nothing is told on stderr; as long as others can be read it does not change the code.
    """
    from nccl_triage.stopping import ReadingStop

    stop = ReadingStop()
    paths, engine = chosen_engine(paths, given, jobs, stop, links)
    grouping = jobs_cli.grouping(given, "--follow" if following else "--engine ray" if engine is not None else None)
    if not paths:
        if sys.stdin.isatty():
            click.echo(ctx.get_help(), err=True)
            ctx.exit(errors.EXIT_USAGE)
        paths = ("-",)
    paths = with_host_facts(paths, facts)
    if not (following or any(map(_is_pipe, paths))):
        interrupts.take_over()
    wish = output.wanted(given)
    launching.refuse_without_report(mode, wish.reports)
    folders = options.all_rules(rules_dirs)
    memory = history_options.memory(history, no_history, wish.quiet, wish.redact, job_name)
    _refuse_baseline(baseline, following)
    if following:
        launching.refuse_while_following(mode)
        refuse_while_following(engine)
        document = follow.run(paths, _stdin(paths), wish, folders, model_name, hang_after, on_verdict, memory, links)
        memory.keep(document)
        output.open_report(wish)
        ctx.exit(output.exit_code(document, want_code))
    follow.refuse_alone(ctx)
    from nccl_triage.api import diagnose, diagnose_jobs
    from nccl_triage.cli.progress import Progress
    from nccl_triage.execution.engines import LocalEngine

    jobs_cli.tell_of_missing(paths, wish)
    with Progress(wish.quiet) as progress:
        arguments: dict[str, Any] = {
            "rules_dirs": folders,
            "baseline": baseline,
            "progress": progress.bytes,
            "model": options.chosen_model(model_name),
            "further": [memory.recall],
        }
        if grouping is None:
            diagnosis = diagnose(paths, jobs=jobs, engine=engine, **arguments)
        else:
            place = LocalEngine(jobs, _stdin(paths), stop=stop, links=links)
            found = diagnose_jobs(paths, engine=place, grouping=grouping, **arguments)
            jobs_cli.tell_of_grouping(found.scanned, len(paths) > 1, wish)
            if len(found) > 1:
                code = jobs_cli.run(found, wish, memory, want_code)
                ctx.exit(code if stop.asked is None else interrupts.code_of(interrupts.Ended(stop.asked)))
            diagnosis = next(iter(found)).diagnosis
    document = diagnosis.to_dict(diagnosis.verdict == "unknown" or wish.shows_similar, traced)
    if stop.asked is not None:
        ctx.exit(_partial(stop.asked, document, wish))
    first = document["diagnoses"][0]["cause"] if document["diagnoses"] else None
    if wish.reports:
        document = launching.verified(document, folders, mode, budget, wish.say, debug)
    output.deliver(document, wish)
    output.open_report(wish)
    memory.keep(document)
    if launching.contradicted(document, first):
        ctx.exit(errors.EXIT_CONTRADICTED)
    ctx.exit(output.exit_code(document, want_code))
