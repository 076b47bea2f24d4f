"""``nccl-triage verify``: rerun the failed collective and put the outcome back into the diagnosis."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage import errors
from nccl_triage.cli import completion, launching, options, output, render

if TYPE_CHECKING:
    from nccl_triage.engine.schema import RuleSet


def read_document(paths: tuple[str, ...], rules: RuleSet, model_name: str | None, quiet: bool) -> dict[str, Any]:
    """Return the report document of a report.json, or that of the logs' diagnosis."""
    if len(paths) == 1 and paths[0].endswith(".json") and Path(paths[0]).is_file():
        found = render.read_if_report(Path(paths[0]))
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


@click.command(
    "verify",
    epilog="\b\nExamples:\n  nccl-triage verify logs/trainer.log --dry-run\n  nccl-triage verify report.json --report post-mortem.html\n  nccl-triage verify trainer.log --host gpu-a --host gpu-b --python /opt/conda/bin/python",
)
@click.argument("paths", nargs=-1, shell_complete=completion.files)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only show the plan, on any machine: the collective, what is changed, who would be contacted, and a command "
    "for each launcher.",
)
@launching.launcher_options(["local", "ray", "slurm", "print"], 300.0)
@click.option(
    "--suspects",
    type=click.IntRange(1, 5),
    default=3,
    show_default=True,
    help="How many of the likeliest causes to test.",
)
@click.option(
    "--collect",
    type=click.Path(path_type=Path, file_okay=False),
    help="Judge the results that the commands of --launcher slurm or print left in this folder.",
)
@output.output_options
@options.rules_options
@options.model_option
@options.language_option
@options.debug_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    dry_run: bool,
    rules_dirs: tuple[Path, ...],
    model_name: str | None,
    debug: bool,
    **given: Any,
) -> None:
    """Rerun the failed collective on the hardware at hand, and say whether this confirms or refutes the diagnosis.

    PATHS are the job's logs or one report.json; --collect DIR needs none. Exit code 4 means that the hardware
    contradicts the diagnosis.
    """
    wish = output.wanted(given)
    if dry_run and wish.kind not in ("text", "json"):
        raise errors.UsageError("a plan is shown as text or json, not as {format}", format=wish.kind)
    from nccl_triage.engine import load
    from nccl_triage.verify import api

    rules = load.load(options.all_rules(rules_dirs))
    document = read_document(paths or _written(given["collect"]), rules, model_name, wish.quiet)
    if (document.get("redaction") or {}).get("pseudonyms") is not None:
        wish.tell("the report is redacted: no host can be reached by its pseudonym")
    settings = replace(launching.settings(given, wish.force), paths=paths)
    if dry_run:
        _show_plan(document, rules, settings, wish)
        return
    if given["launcher"] in ("slurm", "print") and given["collect"] is None:
        _write_commands(document, rules, settings, given)
        return
    if given["collect"] is not None:
        from nccl_triage.verify.written import files

        changed, _ = files.judge(document, rules, given["collect"])
    else:
        changed, _ = api.verify(document, rules, settings, say=wish.say)
    output.deliver(changed, wish)
    output.open_report(wish)
    from nccl_triage.verify.feedback import contradicted

    first = document["diagnoses"][0]["cause"] if document["diagnoses"] else None
    ctx.exit(errors.EXIT_CONTRADICTED if contradicted(changed, first) else errors.EXIT_OK)


def _written(collect: Path | None) -> tuple[str, ...]:
    """Return the report beside the collected results; raises UsageError when there is none."""
    if collect is None:
        raise errors.UsageError("no PATH is given", remedy="give the job's logs, or a report.json")
    path = collect / "report.json"
    if not path.is_file():
        raise errors.UsageError(
            "{collect} holds no report.json",
            remedy="name the folder that was the --workdir of --launcher slurm or print",
            collect=collect,
        )
    return (str(path),)


def _show_plan(document: Any, rules: Any, settings: Any, wish: output.OutputOptions) -> None:
    from nccl_triage.verify.job_plan import record_of

    record = record_of(document, rules, settings)
    if wish.kind == "json":
        import orjson

        data = orjson.dumps(record, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    else:
        from nccl_triage.render import plan_text

        looks = wish.output is None
        text = plan_text.plan_text(
            record, wish.lang, options.width_of() if looks else None, looks and options.use_color()
        )
        data = text.encode()
    output.write(data, wish.output, wish.force)


def _write_commands(document: Any, rules: Any, settings: Any, given: dict[str, Any]) -> None:
    from nccl_triage.verify.written import files

    if given["workdir"] is None:
        raise errors.UsageError(
            "--launcher {launcher} needs --workdir",
            cause="the commands and the ranks' results lie in a folder that every node sees",
            remedy="add --workdir FOLDER on shared storage",
            launcher=given["launcher"],
        )
    click.echo(files.write(document, rules, settings, given["launcher"]), nl=False)
