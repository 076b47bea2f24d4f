"""Write the generated parts of the documentation; ``--check`` only says whether they are up to date.

Generated: the lists of functions, facts and culprit methods in rules/README.md, the catalogue of causes in
docs/causes.md, the command reference in docs/cli.md, the tables of docs/verifier.md, docs/variables.md,
docs/symptoms.md, docs/codes.md and docs/timeouts.md, the table of leaks in docs/privacy.md. ``--accuracy`` also
measures the labelled cases and rewrites the tables in README.md, README.zh.md and docs/accuracy.md (it takes a minute
and needs the case folders).
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nccl_triage.engine.schema import Evidence

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT.parent / "shared" / "cases"


def _between(text: str, name: str, body: str) -> str:
    """Replace what stands between the two markers of ``name``."""
    pattern = re.compile(rf"(<!-- {name}: begin[^\n]*-->\n).*?(<!-- {name}: end -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"no markers for {name}")
    return pattern.sub(lambda match: match[1] + body.rstrip("\n") + "\n" + match[2], text)


def rules_readme() -> str:
    """Return rules/README.md with its lists."""
    from nccl_triage.diagnosis.case import fact_names
    from nccl_triage.diagnosis.culprit import METHODS
    from nccl_triage.diagnosis.culprit_base import FAMILIES
    from nccl_triage.engine.functions import DESCRIPTIONS
    from nccl_triage.observations.kinds import KINDS

    functions = []
    for text in DESCRIPTIONS.values():
        call, _, meaning = text.partition(":")
        functions.append(f"- `{call}`{':' + meaning if meaning else ''}")
    text = (ROOT / "rules" / "README.md").read_text(encoding="utf-8")
    text = _between(text, "kinds", "\n".join(f"- `{name}`: {meaning}" for name, meaning in KINDS.items()))
    text = _between(text, "functions", "\n".join(functions))
    text = _between(text, "facts", "\n".join(f"- `{name}`: {meaning}" for name, meaning in fact_names().items()))
    methods = [f"- `{name}`: {(function.__doc__ or 'Nobody.').strip()}" for name, function in METHODS.items()]
    families = [f"- **{name}**: {', '.join(f'`{way}`' for way in ways)}" for name, ways in FAMILIES.items()]
    text = _between(text, "families", "\n".join(families))
    return _between(text, "culprits", "\n".join(methods))


def _said(row: Evidence) -> str:
    """Return the words of a row; one that says what its message means has as many words as messages."""
    from nccl_triage.engine.schema import with_named_placeholders
    from nccl_triage.engine.supports import MESSAGES

    number = len(row.signatures)
    if row.id in MESSAGES:
        return (
            f"one of {number} messages that say it by themselves" if number > 1 else "a message that says it by itself"
        )
    return with_named_placeholders(row.says["en"])


def causes() -> str:
    """Return the catalogue of causes."""
    from nccl_triage.engine import load
    from nccl_triage.engine.schema import with_named_placeholders

    rules = load.load()
    families: dict[str, list[str]] = {}
    for cause in sorted(rules.causes.values(), key=lambda c: c.id):
        lines = [
            f"### {cause.id}",
            "",
            f"**{cause.title['en']}** ({cause.title['zh']})",
            "",
            with_named_placeholders(cause.explanation["en"]),
            "",
        ]
        lines += ["Evidence:", ""]
        lines += [f"- {item.weight}: {_said(item)}" for item in cause.evidence]
        lines += ["", "What to do:", ""]
        for fix in cause.fixes:
            env = "".join(f" `{name}={value}`" for name, value in fix.env.items())
            commands = "".join(f" `{text}`" for command in fix.commands for text in command.listed())
            lines.append(f"- {with_named_placeholders(fix.title['en'])}{env}{commands}")
        if cause.general_check:
            lines += ["", f"Cheapest check: {with_named_placeholders(cause.general_check.what['en'])}"]
        families.setdefault(cause.family, []).append("\n".join(lines))
    parts = ["# Causes", "", "Written by `make docs` from rules/causes; do not edit.", ""]
    for family, entries in families.items():
        parts += [f"## {family.capitalize()}", "", "\n\n".join(entries), ""]
    return "\n".join(parts)


def cli() -> str:
    """Return the command reference."""
    import click
    from click.testing import CliRunner

    from nccl_triage.cli import COMMANDS
    from nccl_triage.cli import cli as group

    runner = CliRunner(env={"COLUMNS": "100"})
    parts = ["# Commands", "", "Written by `make docs` from the commands' own help; do not edit.", ""]

    def add(words: list[str]) -> None:
        result = runner.invoke(group, [*words, "--help"], prog_name="nccl-triage", terminal_width=100)
        parts.extend([f"## nccl-triage {' '.join(words)}".rstrip(), "", "```", result.output.rstrip(), "```", ""])

    add([])
    context = click.Context(group)
    for name in COMMANDS:
        add([name])
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            for sub in command.commands:
                add([name, sub])
    return "\n".join(parts)


def accuracy() -> dict[str, str]:
    """Return the pages with freshly measured tables: first what no rule may be fitted to, then all sets."""
    sys.path.insert(0, str(ROOT))
    from corpus.gate import scores
    from nccl_triage.engine import load
    from nccl_triage.evaluation import cases, run, score

    rules = load.load()
    measured = {}
    shared = [CASES / name for name in ("whole", "seeds", "dev", "injected")]
    for folder in (*shared, ROOT / "corpus" / "recorded", ROOT / "corpus" / "written"):
        if folder.is_dir():
            measured[folder.name] = run.run(cases.read(folder), rules)
    first = [("whole", *measured["whole"])] if "whole" in measured else []
    for source, ids in scores.frozen().items():
        outcomes, baselines = measured[source]
        kept = {name: [one for one in found if one.case.id in ids] for name, found in baselines.items()}
        first.append((f"{source}, frozen third", [one for one in outcomes if one.case.id in ids], kept))
    pages = {
        name: _between((ROOT / name).read_text(encoding="utf-8"), "accuracy", score.markdown(first))
        for name in ("README.md", "README.zh.md", "docs/accuracy.md")
    }
    rest = [(name, *found) for name, found in measured.items() if name != "whole"]
    pages["docs/accuracy.md"] = _between(pages["docs/accuracy.md"], "sets", score.markdown(rest))
    return pages


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)


def configuration_page() -> str:
    """Return docs/configuration.md with the table of keys."""
    from nccl_triage.cli import configuration, every_command, settings

    commands: dict[str, list[str]] = {}
    for words, command in every_command().items():
        for key in settings.options_of(command):
            commands.setdefault(key, []).append(" ".join(words))
    rows = []
    for key, names in sorted(commands.items()):
        who = (
            "you"
            if key in settings.USER_KEYS
            else "trusted project, you"
            if key in settings.TRUSTED_KEYS
            else "project, you"
        )
        shown = "all" if len(names) == len(every_command()) else ", ".join(names)
        rows.append([f"`{key}`", f"`{configuration.variable((), key)}`", shown, who])
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    return _between(text, "keys", _table(["key", "variable", "commands", "may be set by"], rows))


def verifier_page() -> str:
    """Return docs/verifier.md with the tables of experiments, verdicts and operations."""
    from nccl_triage.engine import load
    from nccl_triage.verify.decide import table
    from nccl_triage.verify.treatments import words
    from nccl_triage.verify.worker.ops import OPERATIONS

    experiments = []
    for cause in sorted(load.load().causes.values(), key=lambda c: c.id):
        found = cause.experiment
        if found.kind == "none":
            why = found.why_not["en"] if found.why_not else ""
            experiments.append([cause.id, "none", why, "", ""])
            continue
        needs = {"host": "one host", "hosts": "two hosts or more", "rank": "each rank alone"}.get(
            found.scope, "all ranks"
        )
        needs += ", NCCL" if found.backend == "nccl" else ""
        vary = "; ".join(words(item)["en"] for item in found.vary)
        experiments.append([cause.id, found.kind, f"{found.control} ({needs})", vary, found.passing])
    decisions = []
    for row in table():
        when = ", ".join(
            f"{key}: {' or '.join(map(str, value)) if isinstance(value, list) else value}"
            for key, value in row.when.items()
        )
        decisions.append([row.id, when or "otherwise", row.outcome, row.weight, row.says["en"]])
    operations = []
    for name, operation in OPERATIONS.items():
        size = {"in": "n", "all": "n w", "none": "-"}[operation.size]
        factor = ("2(w-1)/w" if operation.double else "(w-1)/w") if operation.ring else "1"
        out = {"in": "n", "all": "n w", "none": "-"}[operation.size]
        out = "n/w" if operation.divides and operation.reduces else out
        operations.append([f"`{name}`", f"`{operation.calls}`", out, size, factor if operation.size != "none" else "-"])
    text = (ROOT / "docs" / "verifier.md").read_text(encoding="utf-8")
    text = _between(
        text,
        "experiments",
        _table(["cause", "kind", "control", "treatments, if it fails", "a control that passes"], experiments),
    )
    text = _between(text, "decisions", _table(["row", "when", "verdict", "weight", "says"], decisions))
    return _between(
        text,
        "operations",
        _table(["OpType", "torch.distributed", "NumelOut", "S (elements)", "bus factor"], operations),
    )


def privacy_page() -> str:
    """Return docs/privacy.md with the freshly measured table of leaks."""
    import leaks

    page = ROOT / "docs" / "privacy.md"
    return _between(page.read_text(encoding="utf-8"), "leaks", leaks.table())


def ablation_page() -> str:
    """Return docs/accuracy.md with a freshly measured comparison of rules, classifier and both."""
    from nccl_triage.classifier import examples as files
    from nccl_triage.engine import load
    from nccl_triage.evaluation import ablation, cases

    found = [case for name in ("recorded", "written") for case in cases.read(ROOT / "corpus" / name)]
    scanned = ablation.scan(found, load.load())
    further = [example for example in files.shipped() if not example.real]
    outcomes = ablation.outcomes(scanned, [incident.example() for incident in scanned], further)
    page = ROOT / "docs" / "accuracy.md"
    return _between(page.read_text(encoding="utf-8"), "ablation", ablation.markdown(ablation.table(outcomes)))


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--ablation", action="store_true")
    arguments = parser.parse_args()
    import knowledge_pages

    made = {
        "rules/README.md": rules_readme(),
        "docs/causes.md": causes(),
        "docs/cli.md": cli(),
        "docs/verifier.md": verifier_page(),
        "docs/configuration.md": configuration_page(),
        "docs/variables.md": knowledge_pages.variables_page(),
        "docs/symptoms.md": knowledge_pages.symptoms_page(),
        "docs/timeouts.md": knowledge_pages.timeouts_page(),
        "docs/codes.md": knowledge_pages.codes_page(),
        "docs/privacy.md": privacy_page(),
    }
    if arguments.accuracy:
        made |= accuracy()
    if arguments.ablation:
        made["docs/accuracy.md"] = ablation_page()
    stale = []
    for name, text in made.items():
        path = ROOT / name
        text = text.rstrip("\n") + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not arguments.check:
                path.write_text(text, encoding="utf-8")
    if arguments.check and stale:
        sys.stdout.write(f"out of date: {', '.join(stale)}; run make docs\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
