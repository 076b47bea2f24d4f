"""The command line: one file a command; heavy imports stay inside the commands.

``nccl-triage PATH..`` is ``nccl-triage diagnose PATH..``. Exit codes are those of ``errors``.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, NoReturn

import click

from nccl_triage import errors
from nccl_triage._version import __version__

#: command -> (module, one line of help). Completion and --help read this table without importing the commands.
COMMANDS: dict[str, tuple[str, str]] = {
    "diagnose": ("diagnose", "Name the root cause of a failed or hanging job (the default command)."),
    "verify": ("verify", "Rerun the failed collective and say whether it confirms the diagnosis."),
    "run": ("run", "Run a command, and say why it failed if it does."),
    "preflight": ("preflight", "Check hosts, paths and collectives before a job starts."),
    "render": ("render", "Show a saved report.json in any format."),
    "explain": ("explain", "Explain a cause, a signature or an NCCL/PyTorch variable."),
    "rules": ("rules", "List, show and test rules."),
    "evaluate": ("evaluate", "Score the diagnoses of labelled cases."),
    "model": ("model", "Train and evaluate the classifier on labelled incidents."),
}


class DefaultGroup(click.Group):
    """A group whose unknown first word is an argument of ``diagnose``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in reading order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"nccl_triage.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``diagnose`` in front unless the first word is a command or a group option."""
        if not args and not sys.stdin.isatty():
            args = ["diagnose", "-"]
        elif args and args[0] not in COMMANDS and args[0] not in ("--help", "-h", "--version"):
            args = ["diagnose", *args]
        return super().parse_args(ctx, args)


EPILOG = """\b
Examples:
  nccl-triage logs/trainer.log
  nccl-triage run_dir/ --report post-mortem.html
  grep NCCL trainer.log | nccl-triage
  nccl-triage diagnose ./rules        (a file named like a command)

\b
Exit codes: 0 analysed; with --exit-code 0 healthy, 1 cause found, 3 failure of unknown cause;
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
    """Name the root cause and the culprit rank of a failed distributed training job, with the lines that prove it."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(errors.EXIT_USAGE)


def _debug() -> bool:
    return "--debug" in sys.argv or os.environ.get("NCCL_TRIAGE_DEBUG") == "1"


def _leave(code: int) -> NoReturn:
    """Exit without letting the interpreter complain about a closed pipe."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = errors.EXIT_CLOSED_PIPE
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and exit; every way to end has its code."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    try:
        # Not cli.main(): it answers a closed pipe with exit code 1 before anybody can say 141.
        with cli.make_context("nccl-triage", sys.argv[1:] if args is None else args) as context:
            cli.invoke(context)
        _leave(errors.EXIT_OK)
    except click.exceptions.Exit as exit_:
        _leave(exit_.exit_code)
    except click.UsageError as error:
        error.show()
        _leave(errors.EXIT_USAGE)
    except click.ClickException as error:
        click.echo(f"error: {error.format_message()}", err=True)
        _leave(errors.EXIT_USAGE)
    except errors.TriageError as error:
        if _debug():
            raise
        click.echo("\n".join(error.lines()), err=True)
        _leave(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(errors.EXIT_CLOSED_PIPE)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        _leave(errors.EXIT_INTERRUPTED)
    except Exception as error:
        if _debug():
            raise
        click.echo(
            f"error: this is a bug in nccl-triage {__version__}: {type(error).__name__}: {error}\n"
            "try: run again with --debug and report what it prints, together with the log if you may share it",
            err=True,
        )
        _leave(errors.EXIT_BUG)
