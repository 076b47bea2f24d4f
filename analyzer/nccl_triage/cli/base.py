"""The common base of all commands: help, options from configuration, and the options that every command has."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any

import click

from nccl_triage import interrupts
from nccl_triage.cli import configuration, language, settings
from nccl_triage.cli.config_files import Layer
from nccl_triage.cli.settings import Setting, Words
from nccl_triage.cli.usage import TranslatedCommand
from nccl_triage.errors import EXIT_USAGE, UsageError

#: Keys of ``Context.meta``.
_META = "nccl_triage."
_last: dict[str, Any] = {}


def remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep the value of an option that no command's function takes (a callback of click)."""
    ctx.meta[f"{_META}{param.name}"] = value
    _last[str(param.name)] = value


def remembered(name: str, default: Any = None) -> Any:
    """Return the value of a remembered option, also just after the command ended, when errors are printed."""
    ctx = click.get_current_context(silent=True)
    return _last.get(name, default) if ctx is None else ctx.meta.get(f"{_META}{name}", default)


def _common(command: click.Command) -> list[click.Parameter]:
    """Return the options that every command has besides its own."""
    own = {param.name for param in command.params}
    kept: dict[str, Any] = {"expose_value": False, "callback": remember}
    further: list[click.Parameter] = [
        click.Option(
            ["--lang"],
            type=click.Choice(language.CHOICES),
            default="auto",
            show_default=True,
            help="Language of the text; ids, JSON keys and log lines are never translated.",
            **kept,
        ),
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            show_default=True,
            help="When to use colours; auto goes by NO_COLOR, FORCE_COLOR and the terminal.",
            **kept,
        ),
        click.Option(["--debug"], is_flag=True, help="Show a traceback if an error occurs.", **kept),
        click.Option(
            ["--show-config"],
            metavar="[=json]",
            type=click.Choice(["text", "json"]),
            is_eager=True,
            help="Show the value of every option and where it comes from, then exit.",
            **kept,
        ),
        click.Option(
            ["--config"],
            metavar="FILE",
            is_eager=True,
            help="Use this configuration file before your own.",
            **kept,
        ),
        click.Option(
            ["--no-config"],
            is_flag=True,
            is_eager=True,
            help="Do not read any configuration file.",
            **kept,
        ),
    ]
    if "quiet" in own:
        further.insert(
            2,
            click.Option(
                ["--progress/--no-progress"],
                default=True,
                help="Show progress on stderr if reading takes long (the default), or never.",
                **kept,
            ),
        )
    return [param for param in further if param.name not in own]


def group_options() -> list[click.Parameter]:
    """Return the common options that also work without a command."""
    wanted = ("lang", "color", "show_config", "config", "no_config")
    return [param for param in _common(click.Command(None)) if param.name in wanted]


def before_dashes(args: Sequence[str]) -> list[str]:
    """Return the words before ``--``."""
    return list(args[: args.index("--")]) if "--" in args else list(args)


def chosen_file(args: Sequence[str]) -> str | None:
    """Return the file of ``--config``, which is read before the command line is, or of its variable."""
    chosen = os.environ.get(configuration.CHOSEN) or None
    words = before_dashes(args)
    for index, word in enumerate(words):
        if word == "--config" and index + 1 < len(words):
            chosen = words[index + 1]
        elif word.startswith("--config="):
            chosen = word.removeprefix("--config=")
    return chosen


def spelled_out(args: list[str]) -> list[str]:
    """Add the default value to a bare ``--show-config``: click would take the next word for it."""
    words = before_dashes(args)
    return [*("--show-config=text" if word == "--show-config" else word for word in words), *args[len(words) :]]


def command_first(args: list[str]) -> tuple[list[str], list[str]]:
    """Split off the common options that stand before the command's name; return them and the remaining words."""
    rest, leading = list(args), list[str]()
    while rest:
        if rest[0] in ("--lang", "--color", "--config") and len(rest) > 1:
            leading += rest[:2]
            rest = rest[2:]
        elif rest[0].startswith(("--lang=", "--color=", "--config=")) or rest[0] in ("--no-config", "--debug"):
            leading.append(rest.pop(0))
        else:
            break
    return leading, rest


class Command(TranslatedCommand):
    """A command with configuration, common options and translated help, made from the click command of its module."""

    def __init__(self, plain: click.Command, words: tuple[str, ...], commands: settings.Commands) -> None:
        super().__init__(
            plain.name,
            context_settings=plain.context_settings,
            callback=plain.callback,
            params=[*plain.params, *_common(plain)],
            help=plain.help,
            epilog=plain.epilog,
        )
        self.words = words
        self._commands = commands
        self.settings: dict[str, Setting] = {}
        self.files: list[Layer] = []

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the configuration before the command line, since it provides defaults."""
        words = before_dashes(args)
        if not (extra.get("resilient_parsing") or {"-h", "--help"} & set(words)):
            self.files = [] if "--no-config" in words else configuration.layers(chosen_file(args))
            self.settings, notes = settings.resolve(self, self.words, self.files, self._commands)
            extra["default_map"] = {name: setting.value for name, setting in self.settings.items()}
        else:
            notes = []
        ctx = super().make_context(info_name, spelled_out(args), parent, **extra)
        ctx.meta[f"{_META}notes"] = notes
        return ctx

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; with ``--show-config`` no argument is required."""
        if any(word.startswith("--show-config=") for word in before_dashes(args)):
            self.params = [copy.copy(param) for param in self.params]  # they are the module's
            for param in self.params:
                param.required = False
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click's parser does not say where it was
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command in the chosen language, or show the configuration."""
        if self.words != ("diagnose",):  # which still reads what a pipe holds
            interrupts.take_over()
        choice = ctx.params.get("lang", ctx.meta.get(f"{_META}lang", "auto"))
        language.use(language.resolve(choice))
        if not ctx.params.get("quiet"):
            for template, values in ctx.meta[f"{_META}notes"]:
                language.say(template, **values)
        shown = ctx.meta.get(f"{_META}show_config")
        if shown:
            from nccl_triage.cli import config

            click.echo(
                config.configuration_page({self.words: config.option_rows(ctx, self.settings)}, self.files, shown)
            )
            ctx.exit()
        return super().invoke(ctx)


class CommandGroup(TranslatedCommand, click.Group):
    """A group of commands below the main one, such as ``rules``."""

    def __init__(self, plain: click.Group, words: tuple[str, ...], commands: settings.Commands) -> None:
        inner: dict[str, click.Command] = {
            name: Command(sub, (*words, name), commands) for name, sub in plain.commands.items()
        }
        super().__init__(plain.name, commands=inner, help=plain.help, epilog=plain.epilog)
        self.default_command: str | None = getattr(plain, "default_command", None)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let options that all commands have stand before the command."""
        leading, rest = command_first(args)
        named = rest and (rest[0][:1] != "-" or rest[0] in ("-h", "--help"))
        if self.default_command is not None and not named and not ctx.resilient_parsing:
            rest = [self.default_command, *rest]
        if not rest and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(EXIT_USAGE)
        return super().parse_args(ctx, [*rest[:1], *leading, *rest[1:]])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is answered with the nearest."""
        if args and args[0] not in self.commands and not ctx.resilient_parsing:
            raise _no_such_command(ctx.command_path, args[0], list(self.commands))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the first sentence of their help."""
        rows = [(name, first_line(command)) for name, command in self.commands.items()]
        with formatter.section(language.text("Commands")):
            formatter.write_dl(rows)


def _no_such_command(group: str, name: str, known: list[str]) -> UsageError:
    """Return the error of a command that does not exist, with the nearest one or all of them."""
    import difflib

    near = difflib.get_close_matches(name, known, 1)
    remedy = "did you mean {group} {near}?" if near else "the commands are {names}"
    return UsageError(
        "there is no command {group} {name}",
        group=group,
        name=name,
        near="".join(near),
        names=", ".join(known),
        remedy=remedy,
    )


def first_line(command: click.Command) -> str:
    """Return the first paragraph of a command's help in the reader's language."""
    from nccl_triage.cli.usage import paragraphs

    parts = paragraphs(command.help or "")
    return language.text(" ".join(parts[0].split())) if parts else ""


def adopt(plain: click.Command, words: tuple[str, ...], commands: settings.Commands) -> Command | CommandGroup:
    """Return the ``Command`` or ``CommandGroup`` made from the click command of a module."""
    if isinstance(plain, click.Group):
        return CommandGroup(plain, words, commands)
    return Command(plain, words, commands)


def configuration_of_all(
    commands: Mapping[Words, click.Command], without_files: bool, form: str, chosen: str | None = None
) -> str:
    """Return the configuration of all commands, as it is without any flag but ``--config``."""
    from nccl_triage.cli import config

    found = {}
    files: Sequence[Layer] = []
    for words, command in commands.items():
        assert isinstance(command, Command)
        flags = ["--show-config=text", *(["--no-config"] if without_files else [])]
        flags += [f"--config={chosen}"] if chosen is not None else []
        with command.make_context(" ".join(words), flags) as ctx:
            found[words] = config.option_rows(ctx, command.settings)
            files = command.files
    return config.configuration_page(found, files, form)
