"""``nccl-triage history``: earlier diagnoses, what is to be done about them, and exports for schedulers and people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage.cli import history_options, language, options
from nccl_triage.cli.history_options import cause_option, host_option, since_option, span, told
from nccl_triage.cli.output import write
from nccl_triage.errors import InputError, UsageError


class ListByDefault(click.Group):
    """A group that lists where no command is given."""

    default_command = "list"


@click.group("history", cls=ListByDefault)
def command() -> None:
    """Show earlier diagnoses: what recurs on which host, and which hosts to leave out."""


#: Bytes of a hostfile at most.
_MOST = 16 << 20
#: Hosts in the metrics at most, each a time series.
_MOST_HOSTS = 200


def _file_options(function: Any) -> Any:
    """Add ``--output`` and ``--force``."""
    file = click.Path(path_type=Path, dir_okay=False)
    force = click.option("--force", is_flag=True, help="Overwrite existing files.")
    return click.option("--output", "-o", type=file, help="Write the result to this file.")(force(function))


@command.command(
    "exclude",
    epilog="\b\nExamples:\n  nccl-triage history exclude\n  sbatch $(nccl-triage history exclude) job.sh\n"
    "  nccl-triage history exclude --hostfile hosts.txt -o good-hosts.txt\n"
    "  nccl-triage history exclude --format plain --min-failures 1 --since 30d",
)
@click.option(
    "--format",
    "chosen",
    type=click.Choice(["slurm", "hostfile", "plain", "json"]),
    help="Output format: an option for sbatch and srun, the hostfile without these hosts, one name per line, "
    "or JSON (default: slurm; hostfile with --hostfile).",
)
@click.option(
    "--min-failures",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Leave out hosts with at least this many failures.",
)
@since_option("14d")
@cause_option
@click.option(
    "--hostfile", type=click.Path(path_type=Path, dir_okay=False), help="Hostfile to print without these hosts."
)
@_file_options
@history_options.file_option
def exclude(
    chosen: str | None,
    min_failures: int,
    since: float | None,
    causes: tuple[str, ...],
    hostfile: Path | None,
    output: Path | None,
    force: bool,
    history: str | None,
) -> None:
    """Print the hosts that keep failing, in the form that a scheduler takes; print nothing if there are none.

    Only causes that can be a host's fault count, unless --cause names others.
    """
    chosen = chosen or ("slurm" if hostfile is None else "hostfile")
    if (chosen == "hostfile") != (hostfile is not None):
        raise UsageError(
            "--format hostfile and --hostfile must be given together", remedy="--hostfile FILE names the file to read"
        )
    options.refuse_existing((output,), force)
    text = _read(hostfile) if hostfile is not None else ""
    path, found = told(history, since)
    bad = bad_hosts(found, causes, min_failures)
    if not bad:
        language.say(
            "no host failed {times} times in {days} days from causes that count here",
            times=min_failures,
            days=f"{span(since):g}",
        )
    _write(_excluded(chosen, bad, text, span(since), path), output, force)


def bad_hosts(incidents: list[KeptIncident], causes: tuple[str, ...], at_least: int) -> list[Recurrence]:
    """Return the hosts that failed at least so often, of causes that a host can be to blame for where none are named."""
    from nccl_triage.history.recurrence import recurrences

    wanted: Any = causes
    if not causes:
        from nccl_triage.document.other_runs import host_causes
        from nccl_triage.engine import load

        wanted = host_causes(load.load())
    return [one for one in recurrences(incidents, "host", wanted) if one.times >= at_least]


def _excluded(chosen: str, bad: list[Recurrence], text: str, days: float | None, path: Path) -> str:
    from nccl_triage.history import export as lists

    names = [one.name for one in bad]
    fit, unfit = lists.plain(names)
    result = ""
    if chosen == "slurm":
        nodes, unfit = lists.slurm_list(names)
        result = f"--exclude={nodes}\n" if nodes else ""
    elif chosen == "plain":
        result = "".join(f"{name}\n" for name in fit)
    elif chosen == "hostfile":
        result, gone = lists.hostfile(text, names)
        language.say("lines left out: {count}", count=gone)
        if gone and not lists.names_in_hostfile(result):
            language.say("no host is left in the hostfile")
    else:
        result = _as_json(bad, days, path)
    for name in unfit if chosen in ("slurm", "plain") else ():
        language.say("left out of the list, since it is no plain name of a host: {name}", name=repr(name))
    return result


def _as_json(bad: list[Recurrence], days: float | None, path: Path) -> str:
    import orjson

    from nccl_triage.history import export

    document = {
        "schema_version": export.SCHEMA_VERSION,
        "history": str(path),
        "hosts": [export.recurrence_record(one, days) for one in bad],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _read(hostfile: Path) -> str:
    try:
        with hostfile.open("rb") as stream:
            data = stream.read(_MOST + 1)
    except OSError as error:
        raise InputError("cannot read {path}", path=hostfile, cause="{why}", why=error.strerror or error) from None
    if len(data) > _MOST:
        raise InputError(
            "{path} is too large for a hostfile", path=hostfile, remedy="name the file that lists the hosts"
        )
    return data.decode("utf-8", "surrogateescape")


def _write(text: str, path: Path | None, force: bool) -> None:
    write(text.encode("utf-8", "surrogateescape"), path, force)


@command.command("report", epilog="\b\nExample:\n  nccl-triage history report --since 90d --output history.html")
@since_option()
@_file_options
@options.language_option
@history_options.file_option
def report(since: float | None, output: Path | None, force: bool, lang: str, history: str | None) -> None:
    """Write the history as one HTML page: incidents over time, by host and by cause, and the hosts to leave out."""
    options.refuse_existing((output,), force)
    from nccl_triage.history import export
    from nccl_triage.history import export as lists
    from nccl_triage.history.recurrence import DAYS
    from nccl_triage.render import history_page

    path, found = told(history, since)
    lately = [one for one in found if one.happened >= export.recent()]
    bad = bad_hosts(lately, (), 2)
    page = history_page.render(
        {
            "history": str(path),
            "incidents": [export.incident_record(one) for one in found],
            "hosts": export.host_records(found, span(since), None),
            "causes": export.repeated(found, span(since), 1, ("cause",)),
            "recurrences": export.repeated(lately, DAYS, 2),
            "exclude": lists.slurm_list(one.name for one in bad)[0],
        },
        options.language(lang),
    )
    _write(page, output, force)
    if output is not None:
        language.say("report written to {path}", path=output)


@command.command(
    "prometheus",
    epilog="\b\nExample:\n  nccl-triage history prometheus --force -o /var/lib/node_exporter/textfile/nccl_triage.prom",
)
@since_option("14d")
@_file_options
@history_options.file_option
def prometheus(since: float, output: Path | None, force: bool, history: str | None) -> None:
    """Print metrics for Prometheus: diagnoses by verdict and cause, failures by host.

    Write them to a file of node_exporter's textfile collector; it is replaced in one step.
    """
    options.refuse_existing((output,), force)
    from nccl_triage._version import __version__
    from nccl_triage.history import export
    from nccl_triage.render import history_metrics

    found = told(history, since)[1]
    bad = bad_hosts(found, (), 1)
    fit = set(export.plain(one.name for one in bad)[0])
    hosts = sorted((-one.times, one.name, one.last) for one in bad if one.name in fit)[:_MOST_HOSTS]
    records = [{"verdict": one.verdict, "cause": one.cause, "recorded": one.recorded} for one in found]
    window = (span(since) or 0) * 86400
    _write(history_metrics.text(__version__, window, records, ((name, -n, at) for n, name, at in hosts)), output, force)


@command.command(
    "list",
    epilog="\b\nExamples:\n  nccl-triage history\n  nccl-triage history list --host gpu07 --since 30d\n"
    "  nccl-triage history list --cause gpu-hardware-fault --format json",
)
@since_option()
@host_option
@cause_option
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Show at most this many incidents, the latest first.",
)
@options.format_option
@history_options.file_option
def list_(
    since: float | None, host: str | None, causes: tuple[str, ...], limit: int, chosen: str, history: str | None
) -> None:
    """List the incidents, the latest first. A star marks the time of the diagnosis, where the log has no times."""
    path, found = told(history, since)
    shown = [one for one in found if not causes or one.cause in causes]
    if host is not None:
        shown = [one for one in shown if host in one.hosts or any(host == who.host for who in one.culprits)]
    from nccl_triage.history import export
    from nccl_triage.render import history_text

    data = [export.incident_record(one) for one in shown[:limit]]
    if chosen == "json":
        _json(path, incidents=data, total=len(shown))
        return
    if not data:
        language.say("no incident of this kind is kept in {path}", path=path)
    _show(history_text.incidents(data, language.current()))
    if len(shown) > limit:
        language.say("shown: {limit} of {total}; --limit shows more", limit=limit, total=len(shown))


@command.command("show", epilog="\b\nExample:\n  nccl-triage history show 17")
@click.argument("number", metavar="ID", type=click.IntRange(1, 1 << 62))
@options.format_option
@history_options.file_option
def show(number: int, chosen: str, history: str | None) -> None:
    """Show everything that was recorded about one incident."""
    from nccl_triage.history import export
    from nccl_triage.render import history_text

    path, opened = history_options.opened(history)
    with opened as kept:
        found = kept.incident(number) if kept is not None else None
    if found is None:
        raise UsageError("there is no incident {number} in {path}", number=number, path=path, remedy=_LIST)
    data = export.incident_record(found)
    if chosen == "json":
        _json(path, incidents=[data])
        return
    _show(history_text.incident(data, language.current()))


@command.command("hosts", epilog="\b\nExample:\n  nccl-triage history hosts --since 30d")
@since_option()
@cause_option
@options.format_option
@history_options.file_option
def hosts(since: float | None, causes: tuple[str, ...], chosen: str, history: str | None) -> None:
    """List the hosts by number of failures, with their causes, the first and the last time, and healthy jobs since.

    Only diagnoses that name the host are counted, and none that is merely possible.
    """
    from nccl_triage.history import export
    from nccl_triage.render import history_text

    path, found = told(history, since)
    data = export.host_records(found, span(since), causes or None)
    if chosen == "json":
        _json(path, hosts=data)
        return
    if not data:
        language.say("no incident of this kind is kept in {path}", path=path)
    _show(history_text.hosts(data, language.current()))


@command.command("recurrence", epilog="\b\nExample:\n  nccl-triage history recurrence --since 30d --min-failures 3")
@since_option("14d")
@click.option(
    "--min-failures",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Name what failed at least this many times.",
)
@options.format_option
@history_options.file_option
def recurrence(since: float | None, min_failures: int, chosen: str, history: str | None) -> None:
    """Show what recurs, by host, GPU, rank and cause.

    A rank that fails on many hosts points to the program; a host that fails with many ranks points to the host.
    """
    from nccl_triage.history import export
    from nccl_triage.render import history_text

    path, found = told(history, since)
    data = export.repeated(found, span(since), min_failures)
    if chosen == "json":
        _json(path, recurrences=data)
        return
    if not data:
        language.say("nothing failed {times} times", times=min_failures)
    _show(history_text.recurrence(data, language.current()))


@command.command(
    "forget", epilog="\b\nExamples:\n  nccl-triage history forget 17 18\n  nccl-triage history forget --before 90d"
)
@click.argument("numbers", metavar="[ID]...", nargs=-1, type=click.IntRange(1, 1 << 62))
@since_option(name="--before", help="Forget all incidents before this time.")
@history_options.file_option
def forget(numbers: tuple[int, ...], before: float | None, history: str | None) -> None:
    """Remove incidents from the history."""
    if not numbers and before is None:
        raise UsageError("nothing to forget", remedy="give the numbers of incidents, or --before TIME")
    path, found = told(history, None)
    known = {one.id for one in found}
    missing = [number for number in numbers if number not in known]
    if missing:
        raise UsageError("there is no incident {number} in {path}", number=missing[0], path=path, remedy=_LIST)
    gone = {*numbers, *(one.id for one in found if before is not None and one.happened < before)}
    count = 0
    if gone:
        from nccl_triage.history import store

        with store.writable(path, history_options.LOCK_TIMEOUT) as kept:
            count = kept.forget(sorted(gone))
    click.echo(language.text("incidents forgotten: {count}", count=count))


@command.command("path", epilog='\b\nExample:\n  sqlite3 "$(nccl-triage history path)" .schema')
@history_options.file_option
def path_(history: str | None) -> None:
    """Print the path of the history."""
    click.echo(history_options.located(history))


_LIST = "nccl-triage history list shows their numbers"


def _json(path: Any, **content: Any) -> None:
    """Print a document of the history."""
    import orjson

    from nccl_triage.history.export import SCHEMA_VERSION
    from nccl_triage.render import json_output

    document = {"schema_version": SCHEMA_VERSION, "history": str(path), **content}
    click.echo(json_output.inert(orjson.dumps(document, option=orjson.OPT_INDENT_2)).decode())


def _show(blocks: Any) -> None:
    from nccl_triage.render import history_text

    shown = history_text.text(blocks, options.width_of(), options.use_color())
    if shown.strip():
        click.echo(shown, nl=False, color=True)


if TYPE_CHECKING:
    from nccl_triage.history.incidents import KeptIncident
    from nccl_triage.history.recurrence import Recurrence
