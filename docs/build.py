"""Write the generated parts of the documentation; ``--check`` only says whether they are up to date.

Generated: a page for each cause below docs/causes, the command reference, the pages that are made of rules/
(``knowledge_pages``), the lists in rules/README.md, the tables of docs/verifier.md, docs/configuration.md and
docs/sharing.md, the outputs that pages show (``examples``), the pictures of a terminal, the tables of the open benchmark
(``corpus.wild.tables``) in docs/accuracy.md and the READMEs. ``--accuracy`` also measures the labelled cases and rewrites the tables of docs/accuracy.md (it takes a
minute and needs the case folders).
"""

from __future__ import annotations

import argparse
import re
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from nccl_triage.engine.schema import Cause, Evidence, Experiment, Fix, Text

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT.parent / "shared" / "cases"


def _between(text: str, name: str, body: str) -> str:
    """Replace the text between the two markers of ``name``."""
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
    from nccl_triage.engine.supports import MESSAGES

    number = len(row.signatures)
    if row.id in MESSAGES:
        return f"one of {number} messages that state it" if number > 1 else "a message that states it"
    return _words(row.says)


def made(by: str) -> str:
    """Return the comment that says where a page comes from."""
    return f"<!-- Made by `make docs` from {by}; do not edit. -->"


def _words(text: Text) -> str:
    """Return an English text as Markdown, its placeholders as names."""
    from nccl_triage.engine.schema import in_catalogue
    from nccl_triage.render.markdown_text import plain

    return plain(in_catalogue(text["en"]))


def _fix(fix: Fix) -> list[str]:
    from nccl_triage.engine.schema import with_named_placeholders

    caution = f" Caution: {_words(fix.caution)}" if fix.caution else ""
    lines = [f"1. {_words(fix.title)}.{caution}"]
    variables = " ".join(f"{name}={value}" for name, value in fix.env.items())
    commands = [f"export {with_named_placeholders(variables)}"] if variables else []
    commands += [with_named_placeholders(text) for command in fix.commands for text in command.listed()]
    if commands:
        lines += ["", *(f"   {line}" for line in ("```", *commands, "```")), ""]
    return lines


_SCOPES = {"host": "one host", "hosts": "two hosts or more", "rank": "each rank alone"}


def _experiment(experiment: Experiment) -> list[str]:
    """Return what the verifier runs for a cause."""
    from nccl_triage.verify.treatments import words

    lines = ["", "## Confirm on the hardware", ""]
    if experiment.kind == "none":
        return [*lines, _words(experiment.why_not) if experiment.why_not else "No experiment can show it."]
    needs = _SCOPES.get(experiment.scope, "all ranks") + (", NCCL" if experiment.backend == "nccl" else "")
    lines += [f"`nccl-triage verify LOG` runs ([verifier](../verifier.md)), on {needs}:", ""]
    if experiment.control:
        lines.append(f"- Control: {experiment.control['en']}.")
    if experiment.vary:
        lines.append(f"- If it fails, the same again {'; or '.join(words(item)['en'] for item in experiment.vary)}.")
    passing = {"refutes": "refutes", "supports": "supports"}.get(experiment.passing, "says nothing about")
    return [*lines, f"- A control that passes {passing} this cause."]


def _cause(cause: Cause) -> str:
    """Return the page of a cause."""
    from nccl_triage.engine.schema import with_named_placeholders

    lines = [made(cause.where.split(":")[0]), f"# {_words(cause.title)}", "", f"`{cause.id}` · {cause.title['zh']}", ""]
    lines += [_words(cause.explanation), "", "## What to do", ""]
    lines += [line for fix in cause.fixes for line in _fix(fix)]
    if (check := cause.general_check) is not None:
        lines += ["", "## Check first", "", _words(check.what)]
        if check.command:
            lines += ["", "```", *map(with_named_placeholders, check.command.listed()), "```"]
        lines += ["", f"- Yes: {_words(check.if_yes)}"]
        lines += [f"- No: {_words(check.if_no)}"]
        rivals = ", ".join(f"[{name}]({name}.md)" for name in check.rivals)
        lines += ["", f"Often confused with {rivals}."] if rivals else []
    lines += [*_experiment(cause.experiment), "", "## Evidence", ""]
    lines += [
        "A `decisive` line proves the cause alone; the others add up ([reading a verdict](../reading-a-verdict.md)).",
        "",
    ]
    lines += [f"- {item.weight}: {_said(item)}" for item in cause.evidence]
    if cause.against:
        lines += ["", "Against it:", "", *(f"- {item.weight}: {_said(item)}" for item in cause.against)]
    lines += ["", f"`nccl-triage explain {cause.id}` says the same offline; `--lang zh` in Chinese."]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def causes() -> dict[str, str]:
    """Return the pages of the causes and their index."""
    from nccl_triage.engine import load

    every = sorted(load.load().causes.values(), key=lambda cause: (cause.family, cause.id))
    pages = {f"docs/causes/{cause.id}.md": _cause(cause) for cause in every}
    lines = [
        made("rules/causes"),
        "# Causes",
        "",
        f"The {len(every)} causes that a verdict can name, by family.",
        "",
    ]
    for family, members in groupby(every, key=lambda cause: cause.family):
        rows = [[f"[{cause.id}]({cause.id}.md)", cause.title["en"], cause.title["zh"]] for cause in members]
        lines += [f"## {family.capitalize()}", "", _table(["cause", "title", "标题"], rows), ""]
    lines += ["## Examples", "", "- [Incidents](incidents.md): what the terminal says first of a log of every cause"]
    pages["docs/causes/README.md"] = "\n".join(lines)
    return pages


def cli() -> str:
    """Return the command reference."""
    import click
    from click.testing import CliRunner

    from nccl_triage.cli import COMMANDS
    from nccl_triage.cli import cli as group

    runner = CliRunner(env={"COLUMNS": "100"})
    parts = [made("the commands' own help"), "# Commands", ""]

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


def accuracy() -> str:
    """Return docs/accuracy.md with freshly measured tables of the fitted sets: whole logs and frozen third, then all."""
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
    page = _between((ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8"), "accuracy", score.markdown(first))
    rest = [(name, *found) for name, found in measured.items() if name != "whole"]
    return _between(page, "sets", score.markdown(rest))


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
        shown = "all" if len(names) == len(every_command()) else ", ".join(names)
        rows.append([f"`{key}`", f"`{configuration.variable((), key)}`", shown])
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    return _between(text, "keys", _table(["key", "variable", "commands"], rows))


def verifier_page() -> str:
    """Return docs/verifier.md with the tables of verdicts and operations."""
    from nccl_triage.verify.decide import table
    from nccl_triage.verify.worker.ops import OPERATIONS

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
    text = _between(text, "decisions", _table(["row", "when", "verdict", "weight", "says"], decisions))
    return _between(
        text,
        "operations",
        _table(["OpType", "torch.distributed", "NumelOut", "S (elements)", "bus factor"], operations),
    )


def sharing_page() -> str:
    """Return docs/sharing.md with the freshly measured table of leaks."""
    import leaks

    page = ROOT / "docs" / "sharing.md"
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


def examples_in_pages() -> dict[str, str]:
    """Return the pages that show outputs, with these made anew."""
    import examples

    pages: dict[str, str] = {}
    for page, name, make in examples.EXAMPLES:
        text = pages.get(page) or (ROOT / page).read_text(encoding="utf-8")
        pages[page] = _between(text, name, make())
    return pages


def pictures() -> dict[str, str]:
    """Return what a terminal shows of the first log, as a picture in each language."""
    import examples
    import picture

    titles: dict[Literal["en", "zh"], str] = {
        "en": "What nccl-triage prints of a failed job: what happened, who did it, the line that proves it, what to do",
        "zh": "nccl-triage 对一个失败作业的输出：发生了什么、谁引发的、哪一行是证据、该做什么",
    }
    return {
        f"docs/_static/terminal-{lang}.svg": picture.terminal(
            f"nccl-triage {examples.LOG}{' --lang zh' if lang == 'zh' else ''}",
            examples.printed(lang, examples.COLUMNS, color=True),
            title,
        )
        for lang, title in titles.items()
    }


#: Words of the READMEs' short table: the columns of ``tables.short``, and what was measured.
_SHORT = (
    ("first cause right", "首选原因正确"),
    ("healthy recognised", "正常运行被认出"),
    ("healthy accused", "正常运行被误判"),
    ("failure called healthy", "失败被判为正常"),
    ("wrong at 0.8+", "0.8 以上误判"),
    ("culprit right", "故障源正确"),
    ("evidence line right", "证据行正确"),
)
_MEASURED = {
    "blind": ("benchmark, blind third", "基准，未公开结果的三分之一"),
    "sealed": ("benchmark, sealed third", "基准，封存的三分之一"),
    "independent": ("measured independently", "独立测量"),
}


#: Kinds of line of docs/performance.md that the READMEs show, and their columns of its tables.
_SPEED_KINDS = ("Megatron iterations", "verl metrics", "NCCL INFO", "SGLang", "storm")
_SPEED = (
    ("kinds", "1000 MB", "1 GB, a second", "1 GB 日志，每秒"),
    ("kinds", "of `cat` and `grep -c NCCL` (1000 MB)", "of `grep -c NCCL`", "与 `grep -c NCCL` 相比"),
    ("folders", "512 x 100 KB", "512 files of 100 KB, each", "512 个 100 KB 文件，每个"),
)


def _rows_of(page: str, name: str) -> list[dict[str, str]]:
    """Return the rows of a table between two marks, by the names of its columns."""
    table = re.search(rf"<!-- {name}: begin[^\n]*\n(.*?)<!-- {name}: end", page, re.DOTALL)
    assert table is not None
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]
    return [dict(zip(head, row, strict=True)) for row in rows]


def _speed_table(number: int) -> str:
    """Return the short form of the tables of docs/performance.md, in English (0) or Chinese (1)."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    found = {name: {row["kind of line"]: row for row in _rows_of(page, name)} for name in ("kinds", "folders")}
    heads = [("kind of line", "日志内容")[number], *(words[number] for _, _, *words in _SPEED)]
    rows = [
        [kind, *(found[name][kind][column].partition(",")[0] for name, column, *_ in _SPEED)] for kind in _SPEED_KINDS
    ]
    return _table(heads, rows)


def readmes() -> dict[str, str]:
    """Return the READMEs with the short table of accuracy, and that of docs/performance.md."""
    from corpus.wild import tables

    made_pages = {}
    for number, name in enumerate(("README.md", "README.zh.md")):
        heads = [("logs (n)", "日志（份数）")[number], *(words[number] for words in _SHORT)]
        rows = []
        for measured, logs, cells in tables.short():
            count = (f"{_MEASURED[measured][0]} ({logs})", f"{_MEASURED[measured][1]}（{logs}）")[number]
            rows.append([count, *cells])
        text = (ROOT / name).read_text(encoding="utf-8")
        text = _between(text, "accuracy", _table(heads, rows))
        made_pages[name] = _between(text, "speed", _speed_table(number))
    return made_pages


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--ablation", action="store_true")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    import incident_pages
    import knowledge_pages

    pages = {
        **causes(),
        **examples_in_pages(),
        **pictures(),
        "docs/causes/incidents.md": f"{made('corpus/')}\n{incident_pages.page()}",
        "rules/README.md": rules_readme(),
        "docs/cli.md": cli(),
        "docs/verifier.md": verifier_page(),
        "docs/configuration.md": configuration_page(),
        "docs/variables.md": knowledge_pages.variables_page(),
        "docs/symptoms.md": knowledge_pages.symptoms_page(),
        "docs/known-issues.md": knowledge_pages.known_issues_page(),
        "docs/timeouts.md": knowledge_pages.timeouts_page(),
        "docs/codes.md": knowledge_pages.codes_page(),
        "docs/sharing.md": sharing_page(),
    }
    if arguments.accuracy:
        pages["docs/accuracy.md"] = accuracy()
    if arguments.ablation:
        pages["docs/accuracy.md"] = ablation_page()
    from corpus.wild import tables

    measured = pages.get("docs/accuracy.md") or (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    pages["docs/accuracy.md"] = _between(measured, "wild", tables.table())
    pages |= readmes()
    stale = []
    for name, text in pages.items():
        path = ROOT / name
        text = text.rstrip("\n") + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not arguments.check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for path in sorted((ROOT / "docs" / "causes").glob("*.md")):
        if (name := path.relative_to(ROOT).as_posix()) not in pages:
            stale.append(name)
            if not arguments.check:
                path.unlink()
    if arguments.check and stale:
        sys.stdout.write(f"out of date: {', '.join(stale)}; run make docs\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
