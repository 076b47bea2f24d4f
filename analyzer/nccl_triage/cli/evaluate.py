"""``nccl-triage evaluate``: score labelled cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nccl_triage.cli import language, options


@click.command("evaluate", epilog="\b\nExample:\n  nccl-triage evaluate corpus/recorded corpus/written --no-misses")
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "chosen",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@click.option("--misses/--no-misses", default=True, help="List the cases that were diagnosed wrongly.")
@click.option(
    "--advice",
    "judged",
    type=click.Path(path_type=Path),
    help="Table of what would have helped (corpus/advice.jsonl): scores the repairs and the restart, too.",
)
@options.rules_options
@options.model_option
@options.debug_option
def command(
    folders: tuple[Path, ...],
    chosen: str,
    misses: bool,
    judged: Path | None,
    rules_dirs: tuple[Path, ...],
    model_name: str | None,
    debug: bool,
) -> None:
    """Score the diagnoses of labelled cases (folders with cases.jsonl), next to two naive baselines."""
    from nccl_triage.engine import load
    from nccl_triage.evaluation import advice, cases, run, score

    rules, model = load.load(options.all_rules(rules_dirs)), options.chosen_model(model_name)
    helped = advice.read(judged) if judged is not None else None
    results: list[tuple[str, Any, Any]] = []
    for folder in folders:
        outcomes, baselines = run.run(cases.read(folder, helped), rules, model)
        results.append((folder.name, outcomes, baselines))
    if chosen == "json":
        import orjson

        from nccl_triage.render import json_output

        click.echo(json_output.inert(orjson.dumps(score.as_data(results), option=orjson.OPT_INDENT_2)).decode())
    elif chosen == "markdown":
        click.echo(score.markdown(results))
    else:
        click.echo("\n".join(map(language.harmless, score.text(results, misses).split("\n"))))
