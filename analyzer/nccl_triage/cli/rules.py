"""``nccl-triage rules list|show|test``."""

from __future__ import annotations

from pathlib import Path

import click

from nccl_triage.cli import completion, language, options
from nccl_triage.errors import RuleError, UsageError


@click.group("rules")
def command() -> None:
    """List, show and test rules."""


@command.command(
    "list",
    epilog="\b\nExamples:\n  nccl-triage rules list --kind causes\n  nccl-triage rules list --rules site-rules/ --format json",
)
@click.option(
    "--kind",
    type=click.Choice(["causes", "signatures", "prefixes", "layouts", "all"]),
    default="all",
    show_default=True,
    help="What to list.",
)
@click.option(
    "--unearned",
    is_flag=True,
    help="List the rows, facts, culprit methods and signatures that fewer than two incidents need.",
)
@options.format_option
@options.rules_options
@options.language_option
@options.debug_option
def list_(kind: str, unearned: bool, chosen: str, rules_dirs: tuple[Path, ...], lang: str, debug: bool) -> None:
    """List the causes, signatures, prefixes and layouts in use."""
    from nccl_triage.engine import load

    rules = load.load(rules_dirs)
    spoken = options.language(lang)
    rows: list[dict[str, str]] = []
    if unearned:
        from nccl_triage.checks import earned
        from nccl_triage.evaluation.suite import pieces

        rows += [
            {
                "kind": piece.kind[:-1],
                "id": piece.id,
                "group": piece.kind[:-1],
                "text": piece.where,
                "where": piece.where,
            }
            for piece in earned.unearned(pieces(rules), earned.claims())
            if kind == "all" or piece.kind == kind
        ]
        kind = ""
    if kind in ("causes", "all"):
        rows += [
            {"kind": "cause", "id": c.id, "group": c.family, "text": c.title[spoken], "where": c.where}
            for c in rules.causes.values()
        ]
    if kind in ("signatures", "all"):
        rows += [
            {"kind": "signature", "id": s.id, "group": s.role, "text": s.meaning, "where": s.where}
            for s in rules.signatures.values()
        ]
    for name, one, parts in (("prefixes", "prefix", rules.prefixes.rows), ("layouts", "layout", rules.layouts.rows)):
        if kind in (name, "all"):
            rows += [
                {"kind": one, "id": r.id, "group": one, "text": r.meaning, "where": r.where} for r in parts.values()
            ]
    if chosen == "json":
        import orjson

        from nccl_triage.render import json_output

        click.echo(json_output.inert(orjson.dumps(rows, option=orjson.OPT_INDENT_2)).decode())
        return
    for row in rows:
        first = " ".join(row["text"].split("\n", 1)[0].split())
        click.echo(language.harmless(f"{row['id']:44} {row['group']:14} {first}"))


@command.command("show", epilog="\b\nExample:\n  nccl-triage rules show network-wrong-interface")
@click.argument("rule", shell_complete=completion.rules)
@options.rules_options
@options.debug_option
def show(rule: str, rules_dirs: tuple[Path, ...], debug: bool) -> None:
    """Show the definition of one cause, signature, prefix or layout."""
    from nccl_triage.engine import load
    from nccl_triage.engine.load import definition

    rules = load.load(rules_dirs)
    found = (
        rules.causes.get(rule)
        or rules.signatures.get(rule)
        or rules.prefixes.rows.get(rule)
        or rules.layouts.rows.get(rule)
    )
    if found is None:
        raise UsageError("there is no rule {rule!r}", remedy="nccl-triage rules list", rule=rule)
    for line in (f"# {found.where}", *definition(found.where, rule).split("\n")):
        click.echo(language.harmless(line))


@command.command(
    "test",
    epilog="\b\nExamples:\n  nccl-triage rules test site-rules/\n  nccl-triage rules test site-rules/ --healthy good-run.log\n\n"
    "Exit code 0: all well; 1: a rule is wrong (the output says where).",
)
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, file_okay=False))
@click.option("--healthy", type=click.Path(path_type=Path), multiple=True, help="Also run over these healthy logs.")
@click.option(
    "--corpus",
    "corpora",
    type=click.Path(path_type=Path, file_okay=False),
    multiple=True,
    help="Also run over the labelled cases of this folder.",
)
@options.debug_option
@click.pass_context
def test(
    ctx: click.Context, folders: tuple[Path, ...], healthy: tuple[Path, ...], corpora: tuple[Path, ...], debug: bool
) -> None:
    """Test rules against their samples, lint them, and run them over healthy logs and labelled cases.

    FOLDERS hold your own rules; the shipped rules are always tested with them.
    """
    from nccl_triage.checks.samples import check_harmless
    from nccl_triage.engine import load
    from nccl_triage.evaluation import checkout
    from nccl_triage.evaluation.suite import check_all

    try:
        rules = load.load(folders)
    except RuleError as error:
        click.echo("\n".join(map(language.harmless, error.lines(language.current()))))
        ctx.exit(1)
    findings = [*check_all(rules, healthy, corpora), *check_harmless(rules), *checkout.check(rules, checkout.find())]
    for finding in findings:
        click.echo("\n".join(map(language.harmless, finding.show().split("\n"))))
    errors_ = sum(finding.severity == "error" for finding in findings)
    samples = sum(len(s.match_samples) + len(s.not_samples) for s in rules.signatures.values())
    samples += sum(len(row.harmless) for cause in rules.causes.values() for row in (*cause.evidence, *cause.against))
    click.echo(
        language.text(
            "{signatures} signatures with {samples} samples, {causes} causes: {errors} errors"
            if errors_
            else "{signatures} signatures with {samples} samples, {causes} causes: all well",
            signatures=len(rules.signatures),
            samples=samples,
            causes=len(rules.causes),
            errors=errors_,
        )
    )
    ctx.exit(1 if errors_ else 0)
