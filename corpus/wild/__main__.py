"""The open benchmark of whole logs of real jobs: ``python -m corpus.wild COMMAND``; see corpus/wild/README.md."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from corpus.gate.golden import SHARED
from corpus.wild import agreement, importing, manifest, opening, rebuild, report, scoring, tables
from corpus.wild import run as runner
from corpus.wild.answers import Answers, read
from corpus.wild.manifest import SHOWN, Entry
from nccl_triage.errors import InputError, TriageError
from nccl_triage.evaluation import cases
from nccl_triage.evaluation.tally import Tally

SPLITS = (*manifest.SPLITS, "all")


def _say(text: str) -> None:
    # Labels and names of repositories come from elsewhere: nothing of them may steer a terminal.
    sys.stdout.write("".join(c if c.isprintable() or c == "\n" else "?" for c in text) + "\n")


def _say_json(value: Any) -> None:
    _say(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def rebuilt(data: Path, folder: Path, splits: Sequence[str]) -> list[Entry]:
    """Return the logs of some splits that were rebuilt in a folder."""
    if not (folder / "cases.jsonl").is_file():
        raise InputError(
            "{folder} holds no rebuilt logs",
            remedy="python -m corpus.wild rebuild CLONES {folder} makes them from clones of the repositories",
            folder=folder,
        )
    there = {case.id for case in cases.read(folder)}
    every = manifest.read(data)
    if unknown := there - {entry.id for entry in every}:
        raise InputError("{name} is no log of the manifest", name=min(unknown), remedy="rebuild the logs again")
    chosen = [entry for entry in manifest.chosen(every, splits) if entry.id in there]
    if not chosen:
        raise InputError("{folder} holds no log of the split {splits}", folder=folder, splits=" or ".join(splits))
    return chosen


def _import(asked: argparse.Namespace) -> int:
    if asked.second:
        done = importing.merge_second(asked.data, asked.files, asked.skip_invalid)
    else:
        check = importing.reserved(asked.reserved) if asked.reserved else None
        others = importing.OtherSet.of(asked.whole)
        done = importing.merge(asked.data, asked.files, asked.logs, check, others, asked.skip_invalid)
    _say(done.text())
    if done.refused and not asked.skip_invalid:
        _say("nothing was written; --skip-invalid leaves out what is refused")
    return 1 if done.refused else 0


def _agreement(asked: argparse.Namespace) -> int:
    found = agreement.pairs(asked.data)
    measured = agreement.measured(found)
    if asked.format == "json":
        _say_json(measured)
        return 0
    _say(f"{measured['logs']} logs with {measured['labels']} second labels")
    for name, title in agreement.MEASURES:
        counted = measured["agreement"][name]
        _say(f"{title}: {report.cell(Tally(counted['right'], counted['of']))}")
    kappa = measured["outcome_kappa"]
    _say(f"Cohen's kappa of the outcome: {'-' if kappa is None else format(kappa, '.2f')}")
    for line in agreement.disagreements(found) if asked.disagreements else ():
        _say(line)
    return 0


def _rebuild(asked: argparse.Namespace) -> int:
    entries = manifest.chosen(manifest.read(asked.data), asked.split or ["all"])
    done = rebuild.rebuild(entries, asked.clones, asked.out)
    _say(done.text(asked.clones, asked.fetch_command))
    return 0 if done.whole else 1


def _show(asked: argparse.Namespace, tools: Sequence[Answers], entries: Sequence[Entry]) -> None:
    """Print the scores, and the misses of what may be shown where they are asked for; store them with --write."""
    scores = report.data(tools, entries, asked.out)
    if asked.format == "json":
        shown = {answers.tool: scoring.misses(answers, entries, asked.out) for answers in tools if asked.misses}
        _say_json({**scores, **({"misses": shown} if shown else {})})
    else:
        _say(report.text(tools, entries, asked.out).rstrip("\n"))
        if asked.misses:
            found = scoring.misses(tools[0], entries, asked.out)
            number = sum(entry.split in SHOWN for entry in entries)
            _say("\n".join([f"\nmisses of {tools[0].tool} ({len(found)} of {number} logs that may be shown):", *found]))
    if asked.write:
        tables.write_scores(asked.data, tools, entries, asked.out)


def _score(asked: argparse.Namespace) -> int:
    splits = asked.split or ["all"]
    if asked.open_sealed is not None:
        opening.open_sealed(asked.data, manifest.read(asked.data), asked.open_sealed.split(","))
        splits, asked.misses = [manifest.OPENED], True
    entries = rebuilt(asked.data, asked.out, splits)
    _show(asked, [read(asked.answers, asked.tool, entries, asked.out)], entries)
    return 0


def _run(asked: argparse.Namespace) -> int:
    entries = rebuilt(asked.data, asked.out, asked.split or ["all"])
    scoring.check_enough(entries)
    failed = runner.run(entries, asked.out, runner.interpreter(asked.nvrx), asked.jobs)
    shown = {entry.id for entry in entries if entry.split in SHOWN}
    for name in failed:
        if name.partition(":")[0] in shown:
            sys.stderr.write(f"no answer on {name}\n")
    if failed:
        sys.stderr.write(f"a tool raised an error on {len(failed)} of {len(entries)} logs\n")
    _show(asked, runner.compared(entries, asked.out), entries)
    return 0


def _table(asked: argparse.Namespace) -> int:
    _say(tables.table(asked.data))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m corpus.wild", description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=manifest.FOLDER, help="the folder of manifest.jsonl and scores.json"
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, work: Any, what: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=what, description=what)
        command.set_defaults(work=work)
        return command

    def scored(command: argparse.ArgumentParser) -> None:
        command.add_argument("--split", action="append", choices=SPLITS, help="splits to score (all)")
        command.add_argument("--misses", action="store_true", help="list what was wrong, of logs that may be shown")
        command.add_argument("--format", choices=("text", "json"), default="text")
        command.add_argument("--write", action="store_true", help="store the scores in scores.json")

    one = add("import", _import, "Merge the labels of collectors into the manifest.")
    one.add_argument("files", type=Path, nargs="+", help="files with one label a line")
    one.add_argument("--logs", type=Path, help="folder of the logs, ID/FILE (the folder logs beside each file)")
    one.add_argument("--reserved", type=Path, help="Python file whose is_reserved(name) refuses repositories")
    one.add_argument("--whole", type=Path, default=SHARED / "whole", help="folder of logs that must not come again")
    one.add_argument("--second", action="store_true", help="the files hold labels of second readers")
    one.add_argument("--skip-invalid", action="store_true", help="write the rest where some labels are refused")

    one = add("agreement", _agreement, "Say how far two readers agree.")
    one.add_argument("--format", choices=("text", "json"), default="text")
    one.add_argument("--disagreements", action="store_true", help="list them, of logs that may be shown")

    one = add("rebuild", _rebuild, "Make the logs from local clones of their repositories.")
    one.add_argument("clones", type=Path, help="folder of OWNER/NAME, OWNER/NAME.git or OWNER+NAME")
    one.add_argument("out", type=Path, help="folder to write")
    one.add_argument("--split", action="append", choices=SPLITS, help="splits to rebuild (all)")
    one.add_argument(
        "--fetch-command",
        default=rebuild.FETCH,
        help="command to print for each repository that is absent, with {owner}, {name} and {clones}; none prints no command",
    )

    one = add("score", _score, "Score the answers of a tool.")
    one.add_argument("out", type=Path, help="folder of the rebuilt logs")
    one.add_argument("answers", type=Path, help="folder of ID.json, or a JSONL file of answers")
    one.add_argument("--tool", default=runner.OURS, help="name of the tool in the tables (nccl-triage)")
    one.add_argument(
        "--open-sealed", metavar="IDS", help="ids, or all: record these sealed logs as opened, and let them be shown"
    )
    scored(one)

    one = add("run", _run, "Let nccl-triage and the baselines answer on all rebuilt logs, and score them.")
    one.add_argument("out", type=Path, help="folder of the rebuilt logs")
    one.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one for each processor)")
    one.add_argument("--nvrx", help="Python interpreter that has nvidia-resiliency-ext (this one)")
    scored(one)

    add("table", _table, "Print the tables of docs/accuracy.md, from the stored scores.")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command; 1 where something is missing or refused, 2 where it cannot be carried out."""
    asked = _parser().parse_args(arguments)
    try:
        return int(asked.work(asked))
    except TriageError as error:
        sys.stderr.write("\n".join(error.lines()) + "\n")
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
