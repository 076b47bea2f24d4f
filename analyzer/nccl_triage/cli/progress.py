"""Progress of reading, on stderr: a bar on a terminal after a second, elsewhere a line every half minute."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from nccl_triage.cli import base, language

if TYPE_CHECKING:
    from typing_extensions import Self

#: Seconds before the bar appears, and between two updates.
DELAY, REFRESH = 1.0, 0.1
#: Seconds between two lines where there is no terminal.
INTERVAL = 30.0
_BAR = 24
#: Share of the whole that must be read before the remaining time is estimated.
_TELLING = 0.02
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


class StatusLine:
    """A line of the terminal that is redrawn, and removed at the end."""

    def __init__(self, quiet: bool) -> None:
        self._show = not quiet and bool(base.remembered("progress", True)) and sys.stderr is not None
        self._terminal = self._show and sys.stderr.isatty()
        self._width = 0

    def __enter__(self) -> Self:
        language.before_notes(self.erase)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        language.before_notes(None)
        self.erase()

    @property
    def visible(self) -> bool:
        """Whether there is a terminal that shows it."""
        return self._terminal and self._show

    @property
    def room(self) -> int:
        """The columns that there are for it now."""
        return room_of() - 1

    def show(self, text: str) -> None:
        """Show a text, as far as there is room, on a terminal only."""
        if self.visible:
            room = self.room
            while language.columns(text) > room:
                text = text[:-1]
            self._draw(text)

    def erase(self) -> None:
        """Make room for other output."""
        if self._width:
            self._draw("")

    def _draw(self, text: str) -> None:
        """Replace the current line, without escape sequences, which not every terminal supports."""
        width = language.columns(text)
        # No further than the terminal is wide now: it may have become narrower, and become wide again.
        covered = min(self._width, self.room)
        try:
            sys.stderr.write("\r" + text + " " * (covered - width) + ("" if text else "\r"))
            sys.stderr.flush()
        except OSError:
            self._show = False
        self._width = width if covered == self._width else self._width


class Progress(StatusLine):
    """Shows the progress of reading."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet)
        self._started = time.monotonic()
        self._done = 0
        self._next = self._started + (DELAY if self._terminal else INTERVAL)

    def bytes(self, done: int, total: int | None) -> None:
        """Report the bytes read so far, and those that there are if that is known."""
        if not self._show:
            return
        now = time.monotonic()
        if done < self._done:
            self._started = now  # another reading: the good run's logs are read before those of the job
        self._done = done
        if now < self._next:
            return
        if self._terminal:
            self._next = now + REFRESH
            self._draw(state(done, total, now - self._started, room_of()))
        else:
            self._next = now + INTERVAL
            language.say(state(done, total, now - self._started, None))


def state(done: int, total: int | None, seconds: float, room: int | None) -> str:
    """Return the progress as text, with a bar when there are ``room`` columns."""
    rate = done / seconds if seconds > 0 else 0.0
    speed = language.text("{amount}/s", amount=_amount(rate))
    if not total or done > total:
        return language.text("read {done}, {speed}", done=_amount(done), speed=speed)
    share = done / total
    figures = {
        "done": _amount(done),
        "total": _amount(total),
        "percent": int(100 * share),
        "speed": speed,
        "left": _clock((total - done) / rate) if share >= _TELLING else "?",
    }
    if room is None:
        return language.text("read {done} of {total} ({percent} %), {speed}, {left} left", **figures)
    for size in (_BAR, 0):
        filled = int(share * size)
        bar = "[" + "#" * filled + "-" * (size - filled) + "] " if size else ""
        line = language.text("reading {bar}{percent} %  {done} of {total}  {speed}  {left} left", bar=bar, **figures)
        if language.columns(line) < room:
            return line
    return f"{int(100 * share)} %"


def room_of() -> int:
    """Return the columns of the terminal on stderr."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _amount(size: float) -> str:
    unit, factor = next((u for u in _UNITS if size >= u[1]), _UNITS[-1])
    value = size / factor
    return f"{value:.1f} {unit}" if value < 10 and factor > 1 else f"{value:.0f} {unit}"


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
