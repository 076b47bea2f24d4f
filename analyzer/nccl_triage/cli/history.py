"""``nccl-triage history``: what was diagnosed before, who failed how often, and what is to be done about it."""

from __future__ import annotations

from typing import Any

import click

from nccl_triage.cli import history_export, language, options, remembering
from nccl_triage.cli.history_options import cause_option, host_option, since_option, span, told
from nccl_triage.errors import UsageError


class ListByDefault(click.Group):
    """A group that lists where no command is given."""

    default_command = "list"


@click.group("history", cls=ListByDefault)
def command() -> None:
    """Show earlier diagnoses: what recurs on which host, and which hosts to leave out."""


command.add_command(history_export.exclude)
command.add_command(history_export.report)


@command.command(
    "list",
    epilog="\b\nExamples:\n  nccl-triage history\n  nccl-triage history list --host gpu07 --since 30d\n"
    "  nccl-triage history list --cause gpu-hardware-fault --format json",
)
@since_option()
@host_option
@cause_option
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Incidents shown at most, the latest first."
)
@options.format_option
@remembering.file_option
def list_(
    since: float | None, host: str | None, causes: tuple[str, ...], limit: int, chosen: str, history: str | None
) -> None:
    """List the incidents, the latest first; a time with a star is that of the diagnosis: the log has none."""
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
@remembering.file_option
def show(number: int, chosen: str, history: str | None) -> None:
    """Show all that is kept of one incident."""
    from nccl_triage.history import export
    from nccl_triage.render import history_text

    path, opened = remembering.opened(history)
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
@remembering.file_option
def hosts(since: float | None, causes: tuple[str, ...], chosen: str, history: str | None) -> None:
    """List the hosts by failures, with their causes, the first and the last time, and healthy jobs since.

    What a host is named for is counted; a diagnosis that is merely possible is not.
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
    help="Failures from which on somebody is named.",
)
@options.format_option
@remembering.file_option
def recurrence(since: float | None, min_failures: int, chosen: str, history: str | None) -> None:
    """Say what recurs: by host, GPU, rank and cause.

    A rank that fails on many hosts points at the program, a host that fails under many ranks at the host.
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
@remembering.file_option
def forget(numbers: tuple[int, ...], before: float | None, history: str | None) -> None:
    """Remove incidents from the history."""
    if not numbers and before is None:
        raise UsageError("forget what?", remedy="give the numbers of incidents, or --before TIME")
    path, found = told(history, None)
    known = {one.id for one in found}
    missing = [number for number in numbers if number not in known]
    if missing:
        raise UsageError("there is no incident {number} in {path}", number=missing[0], path=path, remedy=_LIST)
    gone = {*numbers, *(one.id for one in found if before is not None and one.happened < before)}
    count = 0
    if gone:
        from nccl_triage.history import store

        with store.writable(path, remembering.LOCK_TIMEOUT) as kept:
            count = kept.forget(sorted(gone))
    click.echo(language.text("incidents forgotten: {count}", count=count))


@command.command("path", epilog='\b\nExample:\n  sqlite3 "$(nccl-triage history path)" .schema')
@remembering.file_option
def path_(history: str | None) -> None:
    """Print where the history lies."""
    click.echo(remembering.located(history))


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
