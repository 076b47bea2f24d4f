"""``nccl-triage history exclude`` and ``history report``: the history for schedulers and for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage.cli import language, options, remembering
from nccl_triage.cli.history_options import cause_option, since_option, span, told
from nccl_triage.cli.output import write
from nccl_triage.errors import InputError, UsageError

if TYPE_CHECKING:
    from nccl_triage.history.model import Incident
    from nccl_triage.history.recurrence import Recurrence

#: Bytes of a hostfile at most.
_MOST = 16 << 20


def _file_options(function: Any) -> Any:
    """Add ``--output`` and ``--force``."""
    file = click.Path(path_type=Path, dir_okay=False)
    force = click.option("--force", is_flag=True, help="Overwrite existing files.")
    return click.option("--output", "-o", type=file, help="Write the result to this file.")(force(function))


@click.command(
    "exclude",
    epilog="\b\nExamples:\n  nccl-triage history exclude\n  sbatch $(nccl-triage history exclude) job.sh\n"
    "  nccl-triage history exclude --hostfile hosts.txt -o good-hosts.txt\n"
    "  nccl-triage history exclude --format plain --min-failures 1 --since 30d",
)
@click.option(
    "--format",
    "chosen",
    type=click.Choice(["slurm", "hostfile", "plain", "json"]),
    help="Format of the result: an option for sbatch and srun, the hostfile without these hosts, one name a line, or "
    "JSON. Without it: slurm, and with --hostfile hostfile.",
)
@click.option(
    "--min-failures",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Failures from which on a host is left out.",
)
@since_option("14d")
@cause_option
@click.option(
    "--hostfile", type=click.Path(path_type=Path, dir_okay=False), help="Write this hostfile without these hosts."
)
@_file_options
@remembering.file_option
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
    """Print the hosts that failed again and again, as a scheduler takes them; nothing when there are none.

    Only causes that a host can be to blame for count, unless --cause names others.
    """
    chosen = chosen or ("slurm" if hostfile is None else "hostfile")
    if (chosen == "hostfile") != (hostfile is not None):
        raise UsageError(
            "--format hostfile and --hostfile need each other", remedy="--hostfile FILE names the file to read"
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


def bad_hosts(incidents: list[Incident], causes: tuple[str, ...], at_least: int) -> list[Recurrence]:
    """Return the hosts that failed at least so often, of causes that a host can be to blame for where none are named."""
    from nccl_triage.history.recurrence import recurrences

    wanted: Any = causes
    if not causes:
        from nccl_triage.document.other_runs import host_causes
        from nccl_triage.engine import load

        wanted = host_causes(load.load())
    return [one for one in recurrences(incidents, "host", wanted) if one.times >= at_least]


def _excluded(chosen: str, bad: list[Recurrence], text: str, days: float | None, path: Path) -> str:
    from nccl_triage.history import exclude as lists

    names = [one.name for one in bad]
    fit, unfit = lists.plain(names)
    result = ""
    if chosen == "slurm":
        nodes, unfit = lists.slurm(names)
        result = f"--exclude={nodes}\n" if nodes else ""
    elif chosen == "plain":
        result = "".join(f"{name}\n" for name in fit)
    elif chosen == "hostfile":
        result, gone = lists.hostfile(text, names)
        language.say("lines left out: {count}", count=gone)
        if gone and not lists.names(result):
            language.say("no host is left in the hostfile")
    else:
        result = _as_json(bad, days, path)
    for name in unfit if chosen in ("slurm", "plain") else ():
        language.say("left out of the list, since it is no plain name of a host: {name}", name=repr(name))
    return result


def _as_json(bad: list[Recurrence], days: float | None, path: Path) -> str:
    import orjson

    from nccl_triage.history import listing

    document = {
        "schema_version": listing.SCHEMA_VERSION,
        "history": str(path),
        "hosts": [listing.recurrence(one, days) for one in bad],
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


@click.command("report", epilog="\b\nExample:\n  nccl-triage history report --since 90d --output history.html")
@since_option()
@_file_options
@options.language_option
@remembering.file_option
def report(since: float | None, output: Path | None, force: bool, lang: str, history: str | None) -> None:
    """Write the history as one HTML page: incidents over time, by host and by cause, and the hosts to leave out."""
    options.refuse_existing((output,), force)
    from nccl_triage.history import exclude as lists
    from nccl_triage.history import listing
    from nccl_triage.history.recurrence import DAYS
    from nccl_triage.render import history_page

    path, found = told(history, since)
    lately = [one for one in found if one.happened >= listing.recent()]
    bad = bad_hosts(lately, (), 2)
    page = history_page.render(
        {
            "history": str(path),
            "incidents": [listing.incident(one) for one in found],
            "hosts": listing.hosts(found, span(since), None),
            "causes": listing.repeated(found, span(since), 1, ("cause",)),
            "recurrences": listing.repeated(lately, DAYS, 2),
            "exclude": lists.slurm(one.name for one in bad)[0],
        },
        options.language(lang),
    )
    _write(page, output, force)
    if output is not None:
        language.say("report written to {path}", path=output)
