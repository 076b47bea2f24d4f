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
from nccl_triage.render.words import culprit_name, word
from nccl_triage.stopping import Stop

if TYPE_CHECKING:
    from nccl_triage.cli.live import VerdictCommand
    from nccl_triage.cli.progress import StatusLine
    from nccl_triage.follow.follower import Follower
    from nccl_triage.follow.job_state import JobState
    from nccl_triage.follow.watch import JobWatch
    from nccl_triage.history.memory import Memory

#: How many usual steps without progress are suspicious.
HANG_AFTER = 10.0
#: Seconds between two reads of the logs: while they grow, and after a long silence.
SOON, LATE = 0.2, 2.0
#: The least seconds between two states of the status line, and the most: its times go on like a clock.
REDRAWN, TICK = 0.3, 1.0
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
    from nccl_triage.follow.job_state import JobGlance

    pause, deadline, shown, glance = SOON, float("inf"), 0.0, JobGlance(follower)
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
        if line.visible and time.monotonic() - shown >= REDRAWN:
            line.show(status(glance.look(time.time()), watch.hang_suspected, line.room))
            shown = time.monotonic()
        pause = SOON if came else min(LATE, pause * 1.2)
        if stop.asked:
            time.sleep(SOON)
        elif not (follower.behind or came > _BUSY):
            most = SOON if follower.piped else TICK if line.visible else LATE
            stop.wait(min(pause, most))


#: What stands between two parts of the status line, the seconds without a step from which they are told, and the hosts.
_BAR, _STALLED, _HOSTS = " | ", 5.0, 4


def status(state: JobState, hang_suspected: bool, room: int) -> str:
    """Return the state of the job in one line of at most ``room`` columns: what matters most comes first."""
    lang = language.current()
    parts = [language.text("hang suspected")] if hang_suspected else []
    if state.step is not None:
        total = state.total is not None and state.total >= state.step
        parts.append(
            language.text("step {step}/{total}" if total else "step {step}", step=state.step, total=state.total)
        )
    if state.usual is not None and state.step is not None:
        seconds = f"{state.usual:.2g}" if state.usual < 10 else f"{state.usual:.0f}"
        parts.append(language.text("{seconds} s per step", seconds=seconds))
    slow = state.slowest
    if slow is not None:
        name = culprit_name({"rank": slow.rank, "host": slow.host}, lang)
        if slow.step is not None:
            parts.append(language.text("slowest: {name}, step {step}", name=name, step=slow.step))
        else:
            parts.append(language.text("slowest: {name}, {ratio}x as long", name=name, ratio=f"{slow.ratio or 0:.2g}"))
    if state.advanced is not None and state.advanced >= _STALLED:
        parts.append(language.text("progress {age} ago", age=_age(state.advanced)))
    shown = ""
    for part in parts:
        shown = _joined(shown, language.harmless(part), room)
    shown = _joined(shown, _last_lines(state, room - language.columns(shown + _BAR)), room)
    counts = [language.text("ranks: {count}", count=state.ranks)] if state.ranks else []
    for part in [*counts, language.text("logs: {count}", count=state.logs)]:
        shown = _joined(shown, part, room)
    return shown


def _joined(shown: str, part: str, room: int) -> str:
    """Return a line with one more part, or without it where there is no room."""
    longer = f"{shown}{_BAR}{part}" if shown and part else shown + part
    return longer if language.columns(longer) <= room else shown


def _last_lines(state: JobState, room: int) -> str:
    """Return how long ago each host wrote, as many as there is room for, the most silent first."""
    if not state.hosts:
        return ""
    if state.hosts[0].host is None:
        return language.text("last line: {ages} ago{more}", ages=_age(state.hosts[0].seconds), more="")
    comma, told, found = word("list_comma", language.current()), list[str](), ""
    for number, (host, seconds) in enumerate(state.hosts[:_HOSTS], 1):
        told.append(f"{language.harmless(str(host))} {_age(seconds)}")
        more = f", +{len(state.hosts) - number}" if number < len(state.hosts) else ""
        longer = language.text("last line: {ages} ago{more}", ages=comma.join(told), more=more)
        if language.columns(longer) > room:
            break
        found = longer
    return found


def _age(seconds: float) -> str:
    """Return a time in its largest unit, at least a second."""
    from nccl_triage.render.phrases import duration

    unit = next((unit for unit in (3600.0, 60.0) if seconds >= unit), 1.0)
    return duration(max(1.0, seconds // unit) * unit, language.current())
