"""``nccl-triage explain``: meaning, evidence, fixes and checks of a cause or a signature."""

from __future__ import annotations

from pathlib import Path

import click

from nccl_triage.cli import candidates, options
from nccl_triage.errors import UsageError

_WORDS = {
    "en": {"for": "speaks for it", "against": "speaks against it", "fix": "what to do", "check": "cheapest check",
           "yes": "if yes", "no": "if no", "seen": "sample", "caution": "caution"},
    "zh": {"for": "支持的证据", "against": "反对的证据", "fix": "处理办法", "check": "最省力的检查",
           "yes": "若是", "no": "若否", "seen": "样例", "caution": "注意"},
}  # fmt: skip


@click.command("explain")
@click.argument("name", shell_complete=candidates.explainable)
@options.rules_options
@options.language_option
@options.debug_option
def command(name: str, rules_dirs: tuple[Path, ...], lang: str, debug: bool) -> None:
    """Explain a cause or a signature by its id, e.g. network-wrong-interface or nccl.duplicate_gpu."""
    from nccl_triage.engine import load

    rules = load.load(rules_dirs)
    language = options.language(lang)
    if name in rules.causes:
        click.echo(_cause(rules.causes[name], language))
    elif name in rules.signatures:
        signature = rules.signatures[name]
        click.echo(f"{signature.id} ({signature.role}, {signature.program})\n{signature.meaning}")
        if signature.source:
            click.echo(f"printed by {signature.source}")
        for sample in signature.match_samples:
            click.echo(f"  {_WORDS[language]['seen']}: {sample}")
        users = [c.id for c in rules.causes.values() if any(name in item.signatures for item in c.evidence)]
        if users:
            click.echo("evidence for: " + ", ".join(users))
    else:
        import difflib

        near = difflib.get_close_matches(name, [*rules.causes, *rules.signatures], 3)
        remedy = f"did you mean {', '.join(near)}?" if near else "nccl-triage rules list"
        raise UsageError(f"there is no cause or signature {name!r}", remedy=remedy)


def _cause(cause: object, language: str) -> str:
    from nccl_triage.diagnosis.texts import strip
    from nccl_triage.engine.schema import Cause
    from nccl_triage.render.words import prompt

    if not isinstance(cause, Cause):
        raise TypeError(cause)
    words = _WORDS[language]
    lines = [f"{cause.id}: {cause.title[language]}", "", strip(cause.explanation[language]).strip(), ""]
    for key, items in (("for", cause.evidence), ("against", cause.against)):
        if items:
            lines.append(f"{words[key]}:")
            lines += [f"  [{item.weight}] {strip(item.says[language])}" for item in items]
    lines += ["", f"{words['fix']}:"]
    for fix in cause.fixes:
        lines.append(f"  - {strip(fix.title[language])}")
        lines += [f"      {prompt(command)}{command}" for command in fix.commands]
        lines += [f"      export {variable}={value}" for variable, value in fix.env.items()]
        if fix.caution:
            lines.append(f"      {words['caution']}: {strip(fix.caution[language])}")
    check = cause.next_check
    if check is not None:
        lines += ["", f"{words['check']}: {strip(check.what[language])}"]
        if check.command:
            lines.append(f"  {prompt(check.command)}{check.command}")
        lines += [
            f"  {words['yes']}: {strip(check.if_yes[language])}",
            f"  {words['no']}: {strip(check.if_no[language])}",
        ]
    return "\n".join(lines)
