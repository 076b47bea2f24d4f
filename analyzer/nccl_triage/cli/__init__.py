"""The command line: one file a command; heavy imports stay inside the commands.

``nccl-triage PATH..`` is ``nccl-triage diagnose PATH..``. Exit codes are those of ``errors``.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import os
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from nccl_triage import errors, interrupts
from nccl_triage._version import __version__
from nccl_triage.cli import base, configuration, language, usage
from nccl_triage.cli.language import columns
from nccl_triage.cli.usage import TranslatedCommand

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: command -> (module, one line of help). Completion and --help read this table without importing the commands.
COMMANDS: dict[str, tuple[str, str]] = {
    "diagnose": ("diagnose", "Name the root cause of a failed or hanging job (the default)."),
    "hang": ("hang", "Look at the processes of a hanging job, and say who is elsewhere."),
    "verify": ("verify", "Rerun the failed collective to confirm or refute the diagnosis."),
    "run": ("run", "Run a command and, if it fails, say why."),
    "preflight": ("preflight", "Check hosts, paths and collectives before a job starts."),
    "doctor": ("doctor", "Examine this host, or every node of a Ray cluster."),
    "render": ("render", "Show a saved report.json in any format."),
    "why": ("why", "Say why the verdict is what it is, or what became of a line."),
    "explain": ("explain", "Explain a problem, cause, message, variable, number or advice."),
    "similar": ("similar", "Find public threads about failures that look alike."),
    "history": ("history", "Show earlier diagnoses, what recurs, which hosts to leave out."),
    "mcp": ("mcp", "Serve diagnoses to a coding agent (MCP)."),
    "timeouts": ("timeouts", "Compute a timeout, and say what sets it and where."),
    "rules": ("rules", "List, show and test rules."),
    "evaluate": ("evaluate", "Score the diagnoses of labelled cases."),
    "model": ("model", "Train and evaluate the classifier on labelled incidents."),
    "completion": ("completion", "Print the script that completes commands in bash, zsh or fish."),
}


@functools.cache
def _module_command(name: str) -> click.Command:
    """Import one command."""
    command: click.Command = importlib.import_module(f"nccl_triage.cli.{COMMANDS[name][0]}").command
    return command


@functools.cache
def every_command() -> dict[tuple[str, ...], click.Command]:
    """Return all commands by their words, those of groups such as ``rules list`` included; imports them all."""
    found: dict[tuple[str, ...], click.Command] = {}
    for name in COMMANDS:
        command = base.adopt(_module_command(name), (name,), every_command)
        if isinstance(command, click.Group):
            found |= {(name, below): inner for below, inner in command.commands.items()}
        else:
            found[(name,)] = command
    return found


class DefaultGroup(TranslatedCommand, click.Group):
    """A group whose unknown first word is an argument of ``diagnose``."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Determine the language first, since errors are printed in it."""
        language.use(language.resolve(_language(args)))
        return super().make_context(info_name, args, parent, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in reading order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        return base.adopt(_module_command(cmd_name), (cmd_name,), every_command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Complete the first word: a command, an option of the group or of ``diagnose``, or a file."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            default = click.Context(self.get_command(ctx, "diagnose") or self, parent=ctx)
            found = [*super().shell_complete(ctx, incomplete), *default.command.shell_complete(default, incomplete)]
            return list({item.value: item for item in found}.values())
        commands = [(name, text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        items: list[CompletionItem[Any]] = [CompletionItem(name, help=language.text(text)) for name, text in commands]
        return [*items, CompletionItem(incomplete, type="file")]

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write how the program is used without a command, and with one."""
        prefix = language.text("Usage:") + " "
        formatter.write_usage(ctx.command_path, "[OPTIONS] PATHS...", prefix)
        formatter.write_usage(ctx.command_path, "COMMAND [OPTIONS] ...", " " * columns(prefix))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the main options of ``diagnose``, the default command, then the commands."""
        diagnose = self.get_command(ctx, "diagnose")
        params = [*(diagnose.params if diagnose is not None else ()), *self.get_params(ctx)]
        known = {usage.key_of(param): param for param in params}
        listed = [known[name] for name in MAIN_OPTIONS]
        with formatter.section(language.text("Options")):
            rows = [record for param in listed if (record := usage.shown_option(param, ctx))]
            formatter.write_dl([*rows, ("...", language.text("See all of them: nccl-triage diagnose --help"))])
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section(language.text("Commands")):
            formatter.write_dl([(name, language.text(text)) for name, (_, text) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``diagnose`` in front unless the first word is a command or an option of the group."""
        leading, rest = base.command_first(base.spelled_out(args))
        if not rest and not ctx.resilient_parsing and not sys.stdin.isatty():
            rest = ["diagnose", "-"]
        elif rest and rest[0] not in (*COMMANDS, "--help", "-h", "--version") and not _is_show_config(rest):
            if not ctx.resilient_parsing:
                _refuse_mistyped(rest[0])
            rest = ["diagnose", *rest]
        args = [rest[0], *leading, *rest[1:]] if rest and rest[0] in COMMANDS else [*leading, *rest]
        return super().parse_args(ctx, args)


def _is_show_config(words: list[str]) -> bool:
    return len(words) == 1 and words[0].startswith("--show-config=")


def _language(args: list[str]) -> str:
    """Return the value of ``--lang`` from flag, variable or file; a broken file is reported later."""
    found = language.asked(args)
    if found is None:
        entry = configuration.Environment().get((), "lang")
        found = str(entry.value) if entry is not None else None
    if found is None and "--no-config" not in args:
        try:
            entries = (layer.get((), "lang") for layer in configuration.layers(base.chosen_file(args)))
            found = next((str(entry.value) for entry in entries if entry is not None), None)
        except errors.TriageError:
            pass
    return found if found in language.CHOICES else "auto"


def _refuse_mistyped(word: str) -> None:
    """Raise UsageError for a word that is no file but nearly a command; what remains is a file for ``diagnose``."""
    if not re.fullmatch(r"[a-z][a-z-]{2,19}", word) or os.path.lexists(word):
        return
    import difflib

    near = difflib.get_close_matches(word, COMMANDS, 1, 0.7)
    if near:
        raise errors.UsageError(
            "there is no file or command called {name}",
            name=word,
            near=near[0],
            remedy="did you mean nccl-triage {near}?",
        )


#: The options that the help of the program lists.
MAIN_OPTIONS = (
    "report", "output", "chosen", "following", "baseline", "redact", "verbose", "want_code", "lang", "version", "help",
)  # fmt: skip
#: Errors of a full disk.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
#: Set by the completion scripts (``completion.VARIABLE``; the module is imported only when it is needed).
_COMPLETE = "_NCCL_TRIAGE_COMPLETE"
EPILOG = """\b
Examples:
  nccl-triage logs/trainer.log
  nccl-triage run_dir/ --report post-mortem.html
  grep NCCL trainer.log | nccl-triage
  nccl-triage diagnose ./rules        (a file named like a command)

Exit codes: 0 analysed; with --exit-code 0 no failure seen, 1 cause found, 3 failure of unknown cause;
2 usage or unreadable input, 4 verification contradicts the diagnosis, 70 bug, 130 Ctrl-C, 141 closed pipe."""


@click.group(
    cls=DefaultGroup,
    invoke_without_command=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="nccl-triage")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Name the root cause and the culprit rank of a failed distributed training job, with the lines that prove it.

    PATHS are log files, folders, globs, or - for standard input.
    """
    if ctx.invoked_subcommand is not None:
        return
    shown = base.remembered("show_config")
    if shown:
        flags = base.remembered("no_config"), shown, base.remembered("config")
        click.echo(base.configuration_of_all(every_command(), *flags))
        ctx.exit()
    click.echo(ctx.get_help(), err=True)
    ctx.exit(errors.EXIT_USAGE)


cli.params += base.group_options()


def _debug() -> bool:
    return "--debug" in sys.argv or os.environ.get("NCCL_TRIAGE_DEBUG") == "1"


def _leave(code: int) -> NoReturn:
    """Exit without letting the interpreter complain about a closed pipe."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = errors.EXIT_CLOSED_PIPE
        _forget_output()
    except OSError as error:
        code = errors.EXIT_USAGE
        _forget_output()
        _complain(_no_room(error).lines(language.current()))
    sys.exit(code)


def _forget_output() -> None:
    """Discard the remaining output: its reader is gone or the disk is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _no_room(error: OSError) -> errors.OutputError:
    return errors.OutputError("cannot write the result", cause="{why}", why=error.strerror or error)


def _open_closed_streams() -> None:
    """Open standard streams that the caller has closed on /dev/null, so that no file of ours takes their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with the code of how it ended."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    words = sys.argv[1:] if args is None else args
    try:
        if os.environ.get(_COMPLETE):
            from nccl_triage.cli import completion

            click.echo(completion.answer(cli, words), nl=False)
            _leave(errors.EXIT_OK)
        # Not cli.main(): it answers a closed pipe with exit code 1 before anybody can say 141.
        with cli.make_context("nccl-triage", words) as context:
            cli.invoke(context)
        _leave(errors.EXIT_OK)
    except click.exceptions.Exit as exit_:
        _leave(exit_.exit_code)
    except click.ClickException as error:
        _complain(usage.usage_error(error).lines(language.current()))
        _leave(errors.EXIT_USAGE)
    except errors.TriageError as error:
        if _debug():
            raise
        _complain(error.lines(language.current()))
        _leave(error.exit_code)
    except BrokenPipeError:
        _forget_output()
        sys.exit(errors.EXIT_CLOSED_PIPE)
    except (KeyboardInterrupt, click.Abort) as error:
        interrupts.ignore()
        name = interrupts.name_of(error)
        _complain([language.text("ended by {signal}", signal=name) if name else language.text("interrupted")])
        _leave(interrupts.code_of(error))
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            _forget_output()
            _complain(_no_room(error).lines(language.current()))
            _leave(errors.EXIT_USAGE)
        if _debug():
            raise
        _complain(_bug(error).lines(language.current()))
        _leave(errors.EXIT_BUG)


def _bug(error: Exception) -> errors.TriageError:
    return errors.TriageError(
        "this is a bug in nccl-triage {version}: {kind}: {text}",
        version=__version__,
        kind=type(error).__name__,
        text=error,
        remedy="run again with --debug and report what it prints, together with the log if you may share it",
    )


def _complain(lines: list[str]) -> None:
    """Print an error on standard error; its first word is red on a terminal."""
    from nccl_triage.cli import options

    lines = [language.harmless(line) for line in lines]
    if options.use_color(sys.stderr):
        first, colon, rest = lines[0].partition(":")
        lines = [click.style(first, fg="red", bold=True) + colon + rest, *lines[1:]]
    with contextlib.suppress(OSError):
        click.echo("\n".join(lines), err=True, color=True)
