"""Write the man pages, one a command, into a folder: ``make man``. They say what ``--help`` says.

The date is that of ``SOURCE_DATE_EPOCH`` where it is set, so that a build can be repeated.
"""

from __future__ import annotations

import datetime
import os
import sys
from pathlib import Path

import click

from nccl_triage._version import __version__
from nccl_triage.cli import COMMANDS, cli, every_command
from nccl_triage.cli.configuration import variable
from nccl_triage.cli.settings import options_of
from nccl_triage.cli.usage import paragraphs

PROGRAM = "nccl-triage"
ENVIRONMENT = (
    "Every option can also be set by a variable: NCCL_TRIAGE_ and the long name of the option, in capital letters with "
    "underscores, for all commands; with the words of a command in between for that command. Paths are separated as in "
    "PATH, other values by commas. NO_COLOR and FORCE_COLOR work as usual. NCCL_TRIAGE_CACHE names the folder of the "
    "cache, or is off."
)
FILES = (
    (
        "~/.config/nccl-triage/config.yaml",
        "The user's own options; only they can choose what is run and where files are written.",
    ),
    ("~/.cache/nccl-triage", "Compiled rules; you may delete it at any time."),
)


def escaped(text: str) -> str:
    """Return a text in which troff finds no request."""
    return (
        text.replace("\\", "\\e")
        .replace("-", "\\-")
        .replace("'", "\\(aq")
        .replace("`", "\\(ga")
        .replace("^", "\\(ha")
        .replace("~", "\\(ti")
    )


def _line(text: str) -> str:
    shown = escaped(" ".join(text.split()))
    return f"\\&{shown}" if shown.startswith(".") else shown


def _quoted(text: str) -> str:
    return '"' + escaped(text).replace('"', "\\(dq") + '"'


def _prose(text: str) -> list[str]:
    """Return paragraphs; one with a layout of its own keeps it."""
    lines: list[str] = []
    for part in paragraphs(text):
        lines.append(".PP" if lines else "")
        if part.startswith("\b"):
            shown = [f"\\&{escaped(line)}" for line in part.splitlines()[1:]]
            lines += [".nf", *shown, ".fi"]
        else:
            lines.append(_line(part))
    return [line for line in lines if line]


def _options(command: click.Command, context: click.Context) -> list[str]:
    lines = []
    for param in command.get_params(context):
        record = param.get_help_record(context) if isinstance(param, click.Option) else None
        if record is not None:
            lines += [".TP", f"\\fB{escaped(record[0])}\\fR", _line(record[1])]
    return lines


def _examples(parts: list[str]) -> list[str]:
    """Return the commands of the examples, which are not folded."""
    commands = [line for part in parts for line in part.splitlines() if line.startswith("  ")]
    return [".nf", *(f"\\&{escaped(line.strip())}" for line in commands), ".fi"]


def page(words: tuple[str, ...], command: click.Command, date: str) -> str:
    """Return the man page of a command in troff."""
    name = "-".join((PROGRAM, *words))
    context = click.Context(command, info_name=" ".join((PROGRAM, *words)), help_option_names=["-h", "--help"])
    parts = paragraphs(command.epilog or "")
    examples = [part for part in parts if part.lstrip("\b\n").startswith("Example")]
    rest = [part for part in parts if part not in examples]
    usage = " ".join(command.collect_usage_pieces(context))
    summary = paragraphs(command.help or "")[0].rstrip(".")
    lines = [
        f".TH {_quoted(name.upper())} 1 {date} {_quoted(f'{PROGRAM} {__version__}')} {_quoted(PROGRAM)}",
        ".SH NAME",
        f"{escaped(name)} \\- {_line(summary)}",
        ".SH SYNOPSIS",
        f"\\fB{escaped(' '.join((PROGRAM, *words)))}\\fR {_line(usage)}",
        ".SH DESCRIPTION",
        *_prose(command.help or ""),
    ]
    if examples:
        lines += [".SH EXAMPLES", *_examples(examples)]
    lines += [".SH OPTIONS", *_options(command, context)]
    if not words:
        lines.append(".SH COMMANDS")
        for below, (_, text) in COMMANDS.items():
            lines += [".TP", f"\\fB{escaped(f'{PROGRAM}-{below}')}\\fR(1)", _line(text)]
    if rest:
        lines += [".SH EXIT STATUS", *_prose("\n\n".join(rest))]
    lines += [".SH ENVIRONMENT", _line(ENVIRONMENT)]
    if words:
        lines += [".PP", _line("Variables of this command: " + ", ".join(_variables(words, command)) + ".")]
    lines.append(".SH FILES")
    for path, text in FILES:
        lines += [".TP", f"\\fI{escaped(path)}\\fR", _line(text)]
    other = [(), *every_command()]
    near = ["-".join((PROGRAM, *found)) for found in other if found != words]
    lines += [".SH SEE ALSO", ",\n".join(f"\\fB{escaped(found)}\\fR(1)" for found in near)]
    return "\n".join(lines) + "\n"


def _variables(words: tuple[str, ...], command: click.Command) -> list[str]:
    return [variable(words, key) for key in options_of(command)]


def date_of_build() -> str:
    """Return the date as YYYY-MM-DD."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc) if epoch else datetime.datetime.now()
    return moment.strftime("%Y-%m-%d")


def write(folder: Path) -> list[Path]:
    """Write all pages and return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    commands: dict[tuple[str, ...], click.Command] = {(): cli, **every_command()}
    for words, command in commands.items():
        path = folder / f"{'-'.join((PROGRAM, *words))}.1"
        path.write_text(page(words, command, date_of_build()), encoding="utf-8")
        written.append(path)
    return written


if __name__ == "__main__":
    for made in write(Path(sys.argv[1] if len(sys.argv) > 1 else "build/man")):
        print(made)
