"""``--follow``: read the logs of a job while it runs, until Ctrl-C or the end of the pipe."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from nccl_triage import errors
from nccl_triage.cli import language, options
from nccl_triage.cli.output import Document, OutputOptions
from nccl_triage.stopping import Stop

if TYPE_CHECKING:
    from nccl_triage.cli.live import VerdictCommand
    from nccl_triage.cli.progress import StatusLine
    from nccl_triage.follow.follower import Follower
    from nccl_triage.follow.watch import JobWatch
    from nccl_triage.history.memory import Memory

#: How many usual steps without progress are suspicious.
HANG_AFTER = 10.0
#: Seconds between two reads of the logs: while they grow, and after a long silence.
SOON, LATE = 0.2, 2.0
#: After so many bytes the next read follows at once: a full pipe would block the job.
_BUSY = 32 << 10
#: Seconds after Ctrl-C in which the rest of a pipe is still read.
_FAREWELL = 5.0


def follow_options(function: Any) -> Any:
    """Add ``--follow``, ``--hang-after`` and ``--on-verdict``."""
    for option in (
        click.option(
            "--on-verdict",
            metavar="CMD",
            help="With --follow: run this command, without a shell, for every verdict; it gets the JSON "
            "document on standard input. See docs/following.md.",
        ),
        click.option(
            "--hang-after",
            type=click.FloatRange(2, 10_000),
            metavar="N",
            help="With --follow: suspect a hang after N times the usual step time without progress, but not "
            "before a minute has passed (default: 10).",
        ),
        click.option(
            "--follow",
            "following",
            is_flag=True,
            help="Keep reading while the job runs; print a verdict as soon as there is one, and whenever it "
            "changes. Ctrl-C stops it.",
        ),
    ):
        function = option(function)
    return function


def refuse_alone(ctx: click.Context) -> None:
    """Raise UsageError for options that need ``--follow``."""
    for key, name in (("hang_after", "--hang-after"), ("on_verdict", "--on-verdict")):
        if ctx.get_parameter_source(key) is click.core.ParameterSource.COMMANDLINE:
            raise errors.UsageError("{name} needs --follow", name=name, remedy="add --follow, or drop this option")


class _Stop(Stop):
    """Ctrl-C and similar signals: the first ends the following, the second ends everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def wait(self, seconds: float) -> None:
        """Sleep, unless a stop was requested."""
        select.select([self._reader], [], [], seconds)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals, and close the pipe at the end."""
        try:
            with super().listening():
                yield
        finally:
            os.close(self._reader)
            os.close(self._writer)

    def _news(self) -> None:
        os.write(self._writer, b"!")


def run(
    paths: tuple[str, ...],
    stdin: BinaryIO | None,
    wish: OutputOptions,
    folders: tuple[Path, ...],
    model_name: str | None,
    hang_after: float | None,
    command: str | None,
    memory: Memory,
    links: bool = False,
) -> Document:
    """Follow the logs to the end and return the last document."""
    from nccl_triage.classifier import model as models
    from nccl_triage.cli.live import Announcer, VerdictCommand, command_words
    from nccl_triage.cli.progress import StatusLine
    from nccl_triage.engine import load
    from nccl_triage.follow.follower import Follower
    from nccl_triage.follow.watch import JobWatch

    hook = VerdictCommand(command_words(command), wish.tell) if command is not None else None
    stop = _Stop()
    rules, model = load.load(folders), options.chosen_model(model_name)
    with stop.listening(), StatusLine(wish.quiet) as line:
        try:
            follower = Follower(paths, stdin, rules, links=links)
            announcer = Announcer(wish, hook, line)
            watch = JobWatch(
                follower,
                rules,
                models.shipped() if model == "shipped" else model,
                announcer,
                hang_after or HANG_AFTER,
                memory.recall,
            )
            _begin(follower, wish)
            _loop(follower, watch, hook, line, stop, wish)
            document = watch.finish()
            if hook is not None:
                hook.finish()
            return document
        finally:
            if hook is not None:
                hook.kill()


def _begin(follower: Follower, wish: OutputOptions) -> None:
    if len(follower.logs) == 1:
        wish.tell("following {path}; Ctrl-C ends it with the last verdict", path=follower.logs[0].name)
    elif follower.logs:
        wish.tell("following {count} logs; Ctrl-C ends it with the last verdict", count=len(follower.logs))
    elif follower.missing is not None:
        wish.tell("there is nothing to read yet; waiting (Ctrl-C ends it)")
        for text in follower.missing.lines(wish.lang)[1:2]:
            wish.say({"en": text, "zh": text})


def _loop(
    follower: Follower, watch: JobWatch, hook: VerdictCommand | None, line: StatusLine, stop: _Stop, wish: OutputOptions
) -> None:
    pause, deadline, shown = SOON, float("inf"), 0.0
    while not follower.over:
        came = follower.poll()
        if stop.asked:
            # Closing a pipe kills its writer, which may still say why it ends.
            if follower.piped and deadline == float("inf"):
                wish.tell(
                    "waiting for the end of the pipe, {seconds:g} s at most; Ctrl-C again ends at once",
                    seconds=_FAREWELL,
                )
            deadline = min(deadline, time.monotonic() + (_FAREWELL if follower.piped else 0.0))
            if time.monotonic() >= deadline:
                return
        if not follower.over:  # or the end says it
            watch.step()
        if hook is not None:
            hook.poll()
        if line.visible and time.monotonic() - shown >= 1.0:
            line.show(_status(follower, watch))
            shown = time.monotonic()
        pause = SOON if came else min(LATE, pause * 1.2)
        if stop.asked:
            time.sleep(SOON)
        elif not (follower.behind or came > _BUSY):
            stop.wait(min(pause, SOON) if follower.piped else pause)


def _status(follower: Follower, watch: JobWatch) -> str:
    """Return the state of the job in one line."""
    from nccl_triage.render.phrases import duration

    heartbeats = follower.heartbeats
    ranks = {process.last.context.rank for process in heartbeats.processes.values()} - {None}
    parts = [language.text("following, logs: {count}", count=len(follower.logs))]
    if ranks:
        parts.append(language.text("ranks: {count}", count=len(ranks)))
    steps = [
        step
        for process in heartbeats.processes.values()
        if process.step is not None and (step := process.step.number("step")) is not None
    ]
    if steps:
        parts.append(language.text("step {step}", step=int(max(steps))))
    if heartbeats.advanced is not None:
        age = duration(max(0.0, time.time() - heartbeats.advanced), language.current())
        parts.append(language.text("progress {age} ago", age=age))
    if watch.hang_suspected:
        parts.append(language.text("hang suspected"))
    return ", ".join(parts)
