"""``nccl-triage verify``: rerun the failed collective and put the outcome back into the diagnosis."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage import errors
from nccl_triage.cli import launching, options

if TYPE_CHECKING:
    from nccl_triage.engine.schema import RuleSet

#: Bytes of a report.json at most: a report of 4,096 ranks has a few megabytes.
_MAX_REPORT = 200 << 20


def read_document(paths: tuple[str, ...], rules: RuleSet, model_name: str | None, quiet: bool) -> dict[str, Any]:
    """Return the report document of a report.json, or that of the logs' diagnosis."""
    if len(paths) == 1 and paths[0].endswith(".json") and Path(paths[0]).is_file():
        found = _report(Path(paths[0]))
        if found is not None:
            return found
    from nccl_triage.api import diagnose
    from nccl_triage.cli.progress import Progress

    stdin = sys.stdin.buffer if "-" in paths else None
    with Progress(quiet) as progress:
        diagnosis = diagnose(
            paths, rules=rules, stdin=stdin, progress=progress.bytes, model=options.chosen_model(model_name)
        )
    return diagnosis.to_dict()


def _report(path: Path) -> dict[str, Any] | None:
    """Return the document of a report.json, None when the file is something else (a log in JSON lines)."""
    import orjson

    if path.stat().st_size > _MAX_REPORT:
        return None
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict) or "schema_version" not in found:
        return None
    wanted = {"diagnoses": list, "verdict": str, "headline": str, "job": dict}
    if found["schema_version"] != 1 or not all(isinstance(found.get(key), kind) for key, kind in wanted.items()):
        raise errors.InputError(
            f"{path} is no report of this version", remedy="make it again with nccl-triage LOG --format json"
        )
    for entry in found["diagnoses"]:
        if not isinstance(entry, dict) or not {"cause", "status", "confidence", "score", "contributions"} <= set(entry):
            raise errors.InputError(f"{path}: a diagnosis lacks what a verification needs")
    return found


@click.command(
    "verify",
    epilog="\b\nExamples:\n  nccl-triage verify logs/trainer.log --dry-run\n  nccl-triage verify report.json --report post-mortem.html\n  nccl-triage verify trainer.log --host gpu-a --host gpu-b --python /opt/conda/bin/python",
)
@click.argument("paths", nargs=-1)
@click.option(
    "--dry-run", is_flag=True, help="Show the plan: what would run, where, how long at most, how much memory."
)
@launching.launcher_options(["local", "ray", "slurm", "print"], 300.0)
@click.option(
    "--suspects", type=click.IntRange(1, 5), default=3, show_default=True, help="Causes that are put to the test."
)
@click.option(
    "--collect",
    type=click.Path(path_type=Path, file_okay=False),
    help="Judge the results that --launcher slurm or print left here.",
)
@click.option(
    "--format",
    "chosen",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the result.",
)
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write the result to this file.")
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), help="Also write an HTML report to this file."
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@options.rules_options
@options.model_option
@options.language_option
@click.option("--quiet", "-q", is_flag=True, help="Nothing on stderr.")
@click.option("--verbose", "-v", count=True, help="Show every contribution to the scores.")
@options.debug_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    dry_run: bool,
    chosen: str,
    output: Path | None,
    report: Path | None,
    force: bool,
    rules_dirs: tuple[Path, ...],
    model_name: str | None,
    lang: str,
    quiet: bool,
    verbose: int,
    debug: bool,
    **given: Any,
) -> None:
    """Rerun the failed collective on the hardware at hand, and say whether it confirms or refutes the diagnosis.

    PATHS are the logs of the job, or one report.json; --collect DIR needs none. Exit code 4: the hardware contradicts
    the diagnosis.
    """
    options.refuse_existing((report, output), force)
    from nccl_triage.engine import load
    from nccl_triage.verify import planning

    rules = load.load(options.all_rules(rules_dirs))
    document = read_document(paths or _written(given["collect"]), rules, model_name, quiet)
    language = options.language(lang)
    settings = launching.settings(given, force)
    if dry_run:
        _show_plan(planning.plan_of(document, rules, settings), chosen, language, output, force)
        return
    if given["launcher"] in ("slurm", "print") and given["collect"] is None:
        _write_commands(document, rules, settings, given, force)
        return
    if given["collect"] is not None:
        from nccl_triage.verify.launchers import files

        changed, _ = files.judge(document, rules, given["collect"])
    else:
        from nccl_triage.verify import api

        launching.end_gently()
        changed, _ = api.verify(document, rules, settings, say=_progress(quiet))
    _write(changed, chosen, language, output, report, force, verbose, quiet)
    from nccl_triage.verify.feedback import contradicted

    first = document["diagnoses"][0]["cause"] if document["diagnoses"] else None
    ctx.exit(errors.EXIT_CONTRADICTED if contradicted(changed, first) else errors.EXIT_OK)


def _written(collect: Path | None) -> tuple[str, ...]:
    """Return the report that lies beside the results to be judged; raises UsageError where there is none."""
    if collect is None:
        raise errors.UsageError("no PATH is given", remedy="name the logs of the job, or a report.json")
    path = collect / "report.json"
    if not path.is_file():
        raise errors.UsageError(
            f"{collect} holds no report.json",
            remedy="name the folder that was the --workdir of --launcher slurm or print",
        )
    return (str(path),)


def _progress(quiet: bool) -> Any:
    def say(text: str) -> None:
        if not quiet:
            click.echo(f"nccl-triage: {text}", err=True)

    return say


def _show_plan(made: Any, chosen: str, language: Any, output: Path | None, force: bool) -> None:
    from nccl_triage.render import verification
    from nccl_triage.verify.plan_record import plan_record

    if chosen == "json":
        import orjson

        data = orjson.dumps(plan_record(made), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    else:
        data = verification.plan_text(plan_record(made), language).encode()
    _out(data, output, force)


def _write_commands(document: Any, rules: Any, settings: Any, given: dict[str, Any], force: bool) -> None:
    from nccl_triage.verify.launchers import files

    if given["workdir"] is None:
        raise errors.UsageError(
            f"--launcher {given['launcher']} needs --workdir",
            cause="the commands and the ranks' results lie in a folder that every node sees",
            remedy="add --workdir FOLDER on shared storage",
        )
    click.echo(files.write(document, rules, settings, given["launcher"]), nl=False)


def _write(
    document: dict[str, Any],
    chosen: str,
    language: Any,
    output: Path | None,
    report: Path | None,
    force: bool,
    verbose: int,
    quiet: bool,
) -> None:
    from nccl_triage.render import render

    color = output is None and chosen == "text" and options.use_color()
    width = options.width_of() if output is None and chosen == "text" else None
    data = render(document, chosen, lang=language, color=color, width=width, verbose=verbose)
    _out(data, output, force)
    if report is not None:
        page = render(document, "html", lang=language, color=False, width=None, verbose=verbose)
        options.write_file(report, page, force)
        if not quiet:
            click.echo(f"nccl-triage: report written to {report}", err=True)


def _out(data: bytes, output: Path | None, force: bool) -> None:
    if output is not None:
        options.write_file(output, data, force)
        return
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
