"""``nccl-triage run``: run a command as if it ran alone, and say why it failed if it does."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage import errors
from nccl_triage.cli import completion, history_options, language, launching, options, output

if TYPE_CHECKING:
    from nccl_triage.wrap.keep import Keeper

#: Exit codes as a shell gives them.
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
#: Larger ones stand for signals.
_LAST_PLAIN_CODE = 128
#: Where Kubernetes mounts the termination message of a container, unless its terminationMessagePath is another.
TERMINATION_LOG = "/dev/termination-log"
#: Bytes of it that Kubernetes keeps.
_MESSAGE = 4096
#: Seconds by which the clock of a file server may be behind the local one.
_CLOCK_SLACK = 60.0


@click.command(
    "run",
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
Examples:
  nccl-triage run -- torchrun --nproc-per-node 8 train.py --lr 3e-4
  nccl-triage run --logs outputs/logs --report post-mortem.html -- torchrun --log-dir outputs/logs train.py
  nccl-triage run --log job.log --report post-mortem.html --redact -- srun python train.py

Exit codes: that of CMD, or 128+N if signal N ended it, whatever the diagnosis says; 126 CMD cannot be run, 127 there
is no such command, 2 wrong options (CMD was not started).""",
)
@click.argument(
    "words", metavar="[--] CMD...", nargs=-1, required=True, type=click.UNPROCESSED, shell_complete=completion.words
)
@click.option(
    "--log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep all output in this file; after a failure its last line gives the exit code. Without this "
    "option the output goes to a temporary file, which is removed after a success and with --quiet, and "
    "which loses the middle of very long output.",
)
@click.option(
    "--logs",
    multiple=True,
    metavar="PATH",
    type=click.Path(),
    help="Also read what CMD writes to this folder, such as torchrun's --log-dir (repeatable).",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write an HTML report to this file if CMD fails.",
)
@click.option(
    "--termination-log",
    metavar="FILE|none",
    type=options.ModelPath(),
    default=TERMINATION_LOG,
    show_default=True,
    help="If CMD fails, write the verdict in brief to this file if it exists: Kubernetes shows it as the container's "
    "termination message.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option(
    "--pty/--no-pty",
    default=True,
    help="Give CMD a pseudo-terminal wherever it would have had a terminal, so that it still prints colours "
    "and progress bars (the default), or always a pipe.",
)
@options.rules_options
@options.model_option
@options.language_option
@functools.partial(launching.options, default="never")
@history_options.history_options
@click.option("--redact", is_flag=True, help="Replace host names, addresses, users and paths with stable pseudonyms.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing on stderr except CMD's own output.")
@options.debug_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    log: Path | None,
    report: Path | None,
    force: bool,
    pty: bool,
    **given: Any,
) -> None:
    """Run a command and, if it fails, say why.

    Input and output are passed on unchanged and without delay, and so are signals. After a success nothing is printed.
    After a failure the verdict goes to stderr, since stdout belongs to the command.
    """
    options.refuse_existing((report, log), force)
    started = time.time() - _CLOCK_SLACK
    keeper = _keeper(log, given["quiet"])
    try:
        code, reader_left = _run(words, keeper, pty)
    except BaseException as error:
        keeper.discard()
        if log is not None and isinstance(error, errors.TriageError):
            log.unlink(missing_ok=True)
        raise
    if code == 0 or (reader_left and code == 128 + signal.SIGPIPE):
        keeper.discard()
    else:
        _triage(code, keeper, started, report, force, given)
    ctx.exit(code)


def _keeper(log: Path | None, quiet: bool) -> Keeper:
    """Return where the output is kept; raises OutputError for a ``--log`` that cannot be written."""
    from nccl_triage.wrap import keep

    def failed(error: OSError) -> None:
        if not quiet:
            language.say(
                "the output can no longer be kept ({reason}); its end stays in memory, and the command goes on",
                reason=error.strerror,
            )

    if log is not None:
        try:
            return keep.Keeper(keep.LogFile(log), failed)
        except OSError as error:
            raise errors.OutputError(
                "cannot write {path}",
                path=log,
                cause="{why}",
                remedy="name another file; the command was not started",
                why=error.strerror,
            ) from None
    try:
        return keep.Keeper(keep.TemporaryLog(), failed)
    except OSError as error:
        failed(error)
        return keep.Keeper(None, failed)


def _run(words: tuple[str, ...], keeper: Keeper, pty: bool) -> tuple[int, bool]:
    """Return the exit code of the command, and whether the reader of its output left before its end."""
    from nccl_triage.wrap.child import Pumps, WrappedCommand, open_channels, resize

    def lost(error: OSError) -> None:
        language.say("some output of the command is lost ({reason}); the command goes on", reason=error.strerror)

    both = open_channels(pty)
    pumps = Pumps(both, keeper, lost)
    try:
        command = WrappedCommand(words, both[0].entry, both[1].entry, functools.partial(resize, both))
    except OSError as error:
        raise _cannot_run(words[0], error) from None
    finally:
        for entry in {way.entry for way in both}:
            os.close(entry)
    pumps.start()
    code = command.wait()
    pumps.finish()
    # The exit code is evidence: a process that was killed prints nothing of it.
    keeper.close(f"nccl-triage run: {Path(words[0]).name} exited with code {code}" if code else "")
    return code, pumps.reader_left


def _cannot_run(name: str, error: OSError) -> errors.TriageError:
    if isinstance(error, FileNotFoundError):
        found: errors.TriageError = errors.UsageError(
            "there is no command {name}", name=name, remedy="check its spelling and PATH, or give its full path"
        )
        found.exit_code = EXIT_NOT_FOUND
    else:
        found = errors.UsageError("cannot run {name}", name=name, cause="{why}", why=error.strerror)
        found.exit_code = EXIT_NOT_EXECUTABLE
    return found


def _triage(code: int, keeper: Keeper, started: float, report: Path | None, force: bool, given: dict[str, Any]) -> None:
    """Print the verdict. An error here is reported and costs nothing but the verdict."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _give_up)
    try:
        template, values = _how_it_ended(code)
        if not given["quiet"]:
            language.say(template, **values)
        if keeper.empty and not given["logs"] and code <= _LAST_PLAIN_CODE:
            language.say("it printed nothing, so there is nothing to read")
            told = f"{language.text(template, **values)}\n{language.text('it printed nothing, so there is nothing to read')}"
            _write_termination_message(given["termination_log"], told.encode())
            keeper.discard()
            return
        _diagnose(keeper, started, report, force, given)
    except errors.TriageError as error:
        _print("\n".join(error.lines(language.current())))
    except KeyboardInterrupt:
        language.say("interrupted")
    except Exception as error:
        if given["debug"]:
            import traceback

            _print(traceback.format_exc())
        language.say("the triage failed ({kind}: {error})", kind=type(error).__name__, error=error)
    if given["quiet"]:
        # Nobody would be told where it lies.
        keeper.discard()
    elif keeper.temporary:
        language.say("the output is kept in {path}, secrets included; delete it when you are done", path=keeper.path)
    elif keeper.path is not None:
        language.say("the output is kept in {path}", path=keeper.path)


def _give_up(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _how_it_ended(code: int) -> tuple[str, dict[str, object]]:
    """Return a sentence on the end of the command as a template with its values."""
    if code > _LAST_PLAIN_CODE and code - 128 in signal.valid_signals():
        template = "the command was ended by {signal}"
        return template, {"signal": signal.Signals(code - 128).name}
    template = "the command failed with exit code {code}"
    return template, {"code": code}


def _diagnose(keeper: Keeper, started: float, report: Path | None, force: bool, given: dict[str, Any]) -> None:
    from nccl_triage.api import diagnose
    from nccl_triage.render import render

    paths = [str(path) for path in (keeper.path, *given["logs"]) if path is not None]
    memory = history_options.memory(
        given["history"], given["no_history"], given["quiet"], given["redact"], given["job_name"]
    )
    tail = io.BytesIO(keeper.tail) if keeper.tail else None
    diagnosis = diagnose(
        [*paths, *(["-"] if tail else [])],
        rules_dirs=given["rules_dirs"],
        stdin=tail,
        model=options.chosen_model(given["model_name"]),
        since=started,
        further=[memory.recall],
    )
    document = diagnosis.to_dict(similar=diagnosis.verdict == "unknown" or report is not None)
    lang = language.current()
    shown = output.redacted(document) if given["redact"] else document
    _write_termination_message(given["termination_log"], render(shown, "brief", lang=lang))
    if not given["quiet"]:
        color, width = options.use_color(sys.stderr), options.width_of(sys.stderr)
        _print(render(shown, "text", lang=lang, color=color, width=width, verbose=0).decode())
    if report is None:
        memory.keep(document)
        return
    say = _nothing if given["quiet"] else language.say
    document = launching.verified(document, given["rules_dirs"], given["mode"], given["budget"], say, given["debug"])
    shown = output.redacted(document) if given["redact"] else document
    options.write_file(report, render(shown, "html", lang=lang, color=False, width=None, verbose=0), force)
    if not given["quiet"]:
        language.say("report written to {path}", path=shlex.quote(str(report)))
    memory.keep(document)


def _write_termination_message(name: str, text: bytes) -> None:
    """Write the verdict into the container's termination log, where there is one; a failure costs nothing."""
    path = Path(name)
    if name == "none" or not path.is_file():
        return
    data = text.rstrip(b"\n") + b"\n"
    if len(data) > _MESSAGE:
        # Whole lines: the headline and the most important ones stand first.
        data = (
            data[: data[:_MESSAGE].rfind(b"\n") + 1] or data[: _MESSAGE - 1].decode("utf-8", "ignore").encode() + b"\n"
        )
    with contextlib.suppress(OSError):
        # Not replaced: it is a mount.
        path.write_bytes(data)


def _nothing(text: language.Said) -> None:
    """Discard a note."""


def _print(text: str) -> None:
    try:
        sys.stderr.write(text.rstrip("\n") + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return
