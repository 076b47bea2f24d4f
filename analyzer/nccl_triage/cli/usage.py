"""Help and usage errors: help pages with examples first, and click's errors as error / cause / try."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import click

from nccl_triage import messages
from nccl_triage.cli import language
from nccl_triage.cli.language import columns
from nccl_triage.errors import UsageError
from nccl_triage.lazy_regex import lazily

#: Pieces at whose ends a line may be folded: a wide character with its closing punctuation, a word, a space.
_PIECES = lazily(r"[\u2e80-\u9fff\uff00-\uffef][，。；：！？、）》”]*|[^\s\u2e80-\u9fff\uff00-\uffef]+|\s+")


def fold(text: str, width: int) -> list[str]:
    """Return a paragraph as lines of at most ``width`` columns; a longer word stands alone."""
    lines, line = [], ""
    for piece in _PIECES.findall(" ".join(text.split())):
        if line.strip() and columns(line + piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = piece.lstrip()
        else:
            line += piece
    return [*lines, line.rstrip()]


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a help text; one that begins with a backspace character is laid out by its author."""
    return [part.strip("\n") for part in re.split(r"\n[ \t]*\n", text) if part.strip()]


def keys(text: str) -> list[str]:
    """Return the translatable pieces of a help text, each the key of its translation.

    Of a paragraph with a layout of its own every line that begins at the margin; indented ones are commands.
    """
    found: list[str] = []
    for part in paragraphs(text):
        if part.startswith("\b"):
            found += [line for line in part.splitlines()[1:] if line.strip() and not line.startswith(" ")]
        else:
            found.append(" ".join(part.split()))
    return found


class HelpFormatter(click.HelpFormatter):
    """Formats help pages and translates their texts paragraph by paragraph."""

    def write_text(self, text: str) -> None:
        """Write paragraphs, folded unless they have a layout of their own."""
        indent = " " * self.current_indent
        blocks = []
        for part in paragraphs(text):
            if part.startswith("\b"):
                lines = [language.text(line) for line in part.splitlines()[1:]]
            else:
                lines = fold(language.text(" ".join(part.split())), self.width - self.current_indent)
            blocks.append("\n".join(f"{indent}{line}".rstrip() for line in lines))
        self.write("\n\n".join(blocks) + "\n")

    def write_heading(self, heading: str) -> None:
        """Write the title of a section with the colon of its language."""
        self.write(f"{'':>{self.current_indent}}{heading}{':' if heading.isascii() else '：'}\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write terms with their meaning beside them."""
        listed = list(rows)
        first = max((wide for term, _ in listed if (wide := columns(term)) <= col_max), default=0) + col_spacing
        for term, meaning in listed:
            lines = fold(meaning, max(self.width - first - self.current_indent, 10)) if meaning else []
            start = " " * self.current_indent + term
            if lines and columns(term) <= first - col_spacing:
                start += " " * (first - columns(term)) + lines.pop(0)
            self.write(
                "\n".join([start.rstrip(), *(" " * (first + self.current_indent) + line for line in lines)]) + "\n"
            )


class HelpContext(click.Context):
    """A context whose help is written by ``HelpFormatter``."""

    formatter_class = HelpFormatter


#: The groups in which options are listed, by the names of their parameters; those of no group stand in the first.
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Options", ()),
    ("Input", ("jobs", "links", "facts", "baseline", "rules_dirs", "model_name")),
    ("Watching a running job", ("following", "hang_after", "on_verdict")),
    ("Hosts and ranks", (
        "engine", "ray_session", "on_ray", "launcher", "hosts", "ranks_per_host", "world", "python", "backend",
        "ray_address", "node_timeout", "workdir",
    )),
    ("Verification", ("mode", "suspects", "budget", "patience", "previous", "sweep", "allow_busy", "trust_env", "wait", "collect")),
    ("History", ("history", "no_history")),
    ("Output", (
        "chosen", "output", "force", "redact", "verbose", "quiet", "want_code", "progress", "color", "lang",
    )),
    ("Configuration and help", ("show_config", "config", "no_config", "debug", "version", "help")),
)  # fmt: skip
#: What most people come for; it is listed before all.
_FIRST = ("report", "dry_run")


def key_of(param: click.Parameter) -> str:
    """Return the name by which an option is grouped; click has a name of its own for that of --help."""
    return "help" if "--help" in param.opts else str(param.name)


def grouped(params: Iterable[click.Parameter]) -> list[tuple[str, list[click.Parameter]]]:
    """Return the options in groups with their titles; a command with few of its own has them in one."""
    place = {name: (at, order) for at, (_, names) in enumerate(GROUPS) for order, name in enumerate(names)}
    listed = [param for param in params if isinstance(param, click.Option)]
    listed.sort(key=lambda param: (place.get(key_of(param), (0, 0)), key_of(param) not in _FIRST))
    found: dict[int, list[click.Parameter]] = {}
    for param in listed:
        found.setdefault(place.get(key_of(param), (0, 0))[0], []).append(param)
    small = [at for at in found if 0 < at < len(GROUPS) - 2 and len(found[at]) == 1]
    if 0 not in found and len(found) > 1:
        small.append(min(found))
    for at in sorted(set(small)):
        found.setdefault(0, []).extend(found.pop(at))
    return [(GROUPS[at][0], found[at]) for at in sorted(found)]


class TranslatedCommand(click.Command):
    """A command whose help is in the reader's language, with the examples before the options."""

    context_class = HelpContext

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write usage, what it does, examples, options, and the rest of the epilog."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        parts = paragraphs(self.epilog or "")
        examples = [part for part in parts if part.lstrip("\b\n").startswith("Example")]
        self._write(formatter, examples)
        self.format_options(ctx, formatter)
        self._write(formatter, [part for part in parts if part not in examples])

    @staticmethod
    def _write(formatter: click.HelpFormatter, parts: list[str]) -> None:
        if parts:
            formatter.write_paragraph()
            formatter.write_text("\n\n".join(parts))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command does."""
        if self.help:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(self.help)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their groups, and of a group of commands its commands."""
        for english, params in grouped(self.get_params(ctx)):
            records = [record for param in params if (record := shown_option(param, ctx)) and record[1]]
            if records:
                with formatter.section(language.text(english)):
                    formatter.write_dl(records)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def shown_option(param: click.Parameter, ctx: click.Context) -> tuple[str, str] | None:
    """Return the names of an option and its help with the translated text in place of the English one."""
    record = param.get_help_record(ctx)
    english: Any = getattr(param, "help", None)
    if record is None or not english or not record[1].startswith(english):
        return record
    names, text = record[0].replace("INTEGER RANGE", "N").replace("FLOAT RANGE", "X"), _RANGE.sub(_range, record[1])
    if "--help" in param.opts:  # click has it made once, in the language of that moment
        return names, language.text("Show this message and exit.")
    return names, language.text(" ".join(english.split())) + text[len(english) :]


_RANGE = lazily(r"(?P<least>[\d.]+)<=x<=(?P<most>[\d.]+)\]$|x>=(?P<from>[\d.]+)\]$")


def _range(found: re.Match[str]) -> str:
    """Return the range of a number in words instead of as ``1<=x<=64``."""
    if found["from"]:
        return language.text("{least} or more", least=found["from"]) + "]"
    return language.text("{least} to {most}", least=found["least"], most=found["most"]) + "]"


_VALUE = lazily(r"^(?:'([^']*)'|(\S+)) (?:is not |不)")  # click speaks the language in use
#: How much an option must resemble what was typed to be suggested.
_ALIKE = 0.7


def usage_error(error: click.ClickException) -> UsageError:
    """Return click's error as a UsageError, with the nearest option or value when there is one."""
    ctx = getattr(error, "ctx", None)
    command = ctx.command_path if ctx is not None else "nccl-triage"
    if isinstance(error, click.NoSuchOption):
        return _no_such_option(error, ctx, command)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return UsageError("{name} is missing", name=_name(error.param), command=command, remedy="{command} --help")
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _bad_value(error, error.param, command)
    text = error.format_message().rstrip(".。")
    return UsageError("{text}", text=text[:1].lower() + text[1:], command=command, remedy="{command} --help")


def _name(param: click.Parameter) -> str:
    if isinstance(param, click.Argument):
        return param.human_readable_name.upper()
    return max(param.opts, key=len)


def _no_such_option(error: click.NoSuchOption, ctx: click.Context | None, command: str) -> UsageError:
    near = _near_option(error.option_name, ctx.command.get_params(ctx)) if ctx is not None else ""
    return UsageError(
        "there is no option {name}",
        name=error.option_name,
        near=near,
        command=command,
        remedy="did you mean {near}?" if near else "{command} --help lists the options",
    )


def _near_option(typed: str, params: Iterable[click.Parameter]) -> str:
    """Return the option that is spelled or begins like what was typed, or the one that takes it as a value."""
    import difflib

    word = typed.lstrip("-")
    options = {name[2:]: param for param in params for name in param.opts if name.startswith("--")}
    if len(word) > 2:
        longer = [name for name in options if name.startswith(word)]
        near = longer if len(longer) == 1 else difflib.get_close_matches(word, options, 1, _ALIKE)
        if near:
            return f"--{near[0]}"
    taking = [
        name for name, param in options.items() if isinstance(param.type, click.Choice) and word in param.type.choices
    ]
    return f"--{taking[0]} {word}" if len(taking) == 1 else ""


def _bad_value(error: click.BadParameter, param: click.Parameter, command: str) -> UsageError:
    import difflib

    near: list[str] = []
    given = _VALUE.match(error.message)
    if isinstance(param.type, click.Choice) and given:
        near = difflib.get_close_matches(given[1] or given[2], list(map(str, param.type.choices)), 1)
    return UsageError(
        "invalid value for {name}",
        name=_name(param),
        why=what_is_wrong(error, param),
        cause="{why}",
        near="".join(near),
        command=command,
        remedy="did you mean {near}?" if near else "{command} --help",
    )


def what_is_wrong(error: click.BadParameter, param: click.Parameter) -> dict[str, str]:
    """Return why a value cannot be taken, with those that can, in both languages."""
    given = _VALUE.match(error.message)
    kind = param.type
    values: dict[str, object] = {"value": (given[1] or given[2]) if given else ""}
    template = error.message.rstrip(".。")
    if given and isinstance(kind, click.Choice):
        template = "{value} is not one of {choices}"
        values["choices"] = ", ".join(map(str, kind.choices))
    elif given and isinstance(kind, (click.IntRange, click.FloatRange)):
        values |= {"least": kind.min, "most": kind.max}
        whole = isinstance(kind, click.IntRange)
        if kind.max is None:
            template = "{value} is not a number from {least} up"
            if whole:
                template = "{value} is not a whole number from {least} up"
        elif whole:
            template = "{value} is not a whole number from {least} to {most}"
        else:
            template = "{value} is not a number from {least} to {most}"
    else:
        values = {}
    return {lang: messages.fill(template, values, lang) for lang in ("en", "zh")}
