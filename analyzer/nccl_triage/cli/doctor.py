"""``nccl-triage doctor``: what this host, or every node of a Ray cluster, is like, and what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nccl_triage import errors, messages
from nccl_triage.cli import options
from nccl_triage.cli.output import Say, redacted, teller, write

#: Seconds between two lines of progress.
_PAUSE = 2.0


@click.command(
    "doctor",
    epilog="""\b
Examples:
  nccl-triage doctor
  nccl-triage doctor --format json -o gpu07.json; nccl-triage trainer.log gpu07.json
  nccl-triage doctor --ray --format json -o hosts.json""",
)
@click.option(
    "--ray", "on_ray", is_flag=True, help="Examine every node of the job's Ray cluster, and say what differs."
)
@click.option("--ray-address", metavar="ADDRESS", help="Address of the Ray cluster (default: auto); implies --ray.")
@click.option(
    "--python", default="", metavar="PATH", help="The job's Python, whose torch is examined (default: this one)."
)
@click.option(
    "--path", "paths", multiple=True, metavar="PATH", help="Also examine the file system of this path (repeatable)."
)
@click.option(
    "--patience",
    type=click.FloatRange(0.05, 100),
    default=1.0,
    show_default=True,
    help="Multiply every deadline by this factor.",
)
@options.format_option
@options.result_file_options
@click.option("--redact", is_flag=True, help="Replace host names, addresses, users and paths with stable pseudonyms.")
@click.option("--exit-code", "want_code", is_flag=True, help="Exit with 1 if a check failed.")
@click.option("--verbose", "-v", count=True, help="Also say what to do about notes.")
@options.language_option
@click.option("--quiet", "-q", is_flag=True, help="Print nothing on stderr.")
@options.debug_option
@click.pass_context
def command(ctx: click.Context, /, chosen: str, output: Path | None, force: bool, lang: str, **given: Any) -> None:
    """Examine this host (driver, NCCL, GPUs, network, limits, storage, variables) and say what is wrong, without root.

    Nothing is changed and no GPU memory is used. What cannot be seen is listed. Give the JSON output to diagnose
    together with the log, and its rules weigh both.
    """
    options.refuse_existing((output,), force)
    language = options.language(lang)
    say = teller(given["quiet"])
    document = _document(given, say)
    from nccl_triage.redaction import mask_secrets

    shown = redacted(document) if given["redact"] else mask_secrets(document)
    from nccl_triage.doctor.text import headline, text

    if chosen == "json":
        import orjson

        data = orjson.dumps(shown, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    else:
        color = output is None and options.use_color()
        data = text(shown, language, verbose=bool(given["verbose"]), color=color).encode("utf-8", "replace")
    write(data, output, force)
    if output is not None:
        say({lang: headline(shown, lang).partition(": ")[2] for lang in ("en", "zh")})
        say(_filled("{kind} written to {path}", kind=chosen, path=output))
    failed = given["want_code"] and document["verdict"] == "problems"
    ctx.exit(errors.EXIT_CAUSE_FOUND if failed else errors.EXIT_OK)


def _document(given: dict[str, Any], say: Say) -> dict[str, Any]:
    from nccl_triage.doctor.collect import ProbeOptions
    from nccl_triage.doctor.collect import collect as here
    from nccl_triage.doctor.document import HostAnswer, build

    wish = ProbeOptions(given["python"], tuple(given["paths"]), given["patience"])
    if given["on_ray"] or given["ray_address"]:
        from nccl_triage.doctor import cluster

        return build(cluster.collect(given["ray_address"], wish, _progress(say)))
    told = here(wish)
    name = (told["facts"].get("system") or {}).get("name")
    return build([HostAnswer(name or "localhost", told)])


def _progress(say: Say) -> Callable[[int, int], None]:
    """Return what says how many nodes have answered, now and then."""
    said = time.monotonic()
    template = "{done} of {total} nodes have answered"

    def progress(done: int, total: int) -> None:
        nonlocal said
        if done == total or time.monotonic() - said >= _PAUSE:
            said = time.monotonic()
            say(_filled(template, done=done, total=total))

    return progress


def _filled(template: str, **values: object) -> dict[str, str]:
    return {lang: messages.fill(template, values, lang) for lang in ("en", "zh")}
