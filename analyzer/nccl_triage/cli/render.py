"""``nccl-triage render``: a saved report in any format; damaged, foreign and newer ones are refused with a reason."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

import click

from nccl_triage.cli import language, options, output
from nccl_triage.errors import InputError

#: Bytes of a report at most; one of 4,096 ranks has three megabytes.
MAX_BYTES = 64 << 20
SCHEMA_VERSION = 1
_AGAIN = "make it again with nccl-triage LOG --format json"


def read_report(path: str) -> dict[str, Any]:
    """Return the document of a report's file, or of standard input for ``-``; raises InputError."""
    if path == "-":
        if sys.stdin.isatty():
            language.say("reading from the terminal; end with Ctrl-D")
        return parse_report(_limited(sys.stdin.buffer, "<stdin>"), "<stdin>")
    try:
        with Path(path).open("rb") as stream:
            data = _limited(stream, path)
    except OSError as error:
        raise InputError("cannot read {path}", path=path, cause="{why}", why=error.strerror or error) from None
    return parse_report(data, path)


def _limited(stream: BinaryIO, path: str) -> bytes:
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputError(
            "{path} is too large for a report",
            path=path,
            size=MAX_BYTES >> 20,
            cause="a report has {size} MiB at most",
            remedy="is it a log? nccl-triage LOG diagnoses one",
        )
    return data


def parse_report(data: bytes, path: str) -> dict[str, Any]:
    """Return a report document; raises InputError when the data are none, or none that this version can show."""
    import orjson

    try:
        found = orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise InputError(
            "{path} is not JSON",
            path=path,
            why=str(error),
            cause="it is damaged or not a report: {why}",
            remedy="is it a log? nccl-triage LOG diagnoses one",
        ) from None
    return _checked(found, path)


def read_if_report(path: Path) -> dict[str, Any] | None:
    """Return the document of a file, None when it is something else: a log in JSON lines; raises InputError."""
    import orjson

    if path.stat().st_size > MAX_BYTES:
        return None
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        return None
    return _checked(found, str(path)) if isinstance(found, dict) and "schema_version" in found else None


def _checked(found: object, path: str) -> dict[str, Any]:
    if not _is_report(found):
        raise InputError("{path} is not a report of nccl-triage", path=path, remedy=_AGAIN)
    if found["schema_version"] != SCHEMA_VERSION:
        raise InputError(
            "{path} has version {version} of the report's schema",
            path=path,
            version=found["schema_version"],
            known=SCHEMA_VERSION,
            cause="this program knows version {known}",
            remedy="upgrade nccl-triage, or " + _AGAIN,
        )
    _check_shape(found, path)
    return found


def _is_report(found: object) -> TypeGuard[dict[str, Any]]:
    """Tell whether parsed JSON claims to be a report document."""
    if not isinstance(found, dict) or not isinstance(found.get("schema_version"), int):
        return False
    tool = found.get("tool")
    return isinstance(tool, dict) and tool.get("name") == "nccl-triage" and "diagnoses" in found


def _check_shape(found: dict[str, Any], path: str) -> None:
    import orjson

    from nccl_triage import resources
    from nccl_triage.render import validation
    from nccl_triage.render.words import visible

    schema = orjson.loads((resources.reports_dir() / "schema" / "report.schema.json").read_bytes())
    where = validation.problem(found, schema)
    if where is not None:
        raise InputError(
            "{path} is a damaged report",
            path=path,
            where=visible(where, 200),
            cause="{where} is missing, or not of the kind that a report has there",
            remedy=_AGAIN,
        )


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
    """Show a report that was written with --format json in any other format: the same bytes as a direct run gives.

    REPORT.json is a file, or - for standard input.
    """
    wish = output.wanted(given)

    document = read_report(path)
    output.deliver(document, wish)
    output.open_report(wish)
    ctx.exit(output.exit_code(document, want_code))
