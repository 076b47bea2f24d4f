"""Assemble Python tracebacks out of interleaved streams; the innermost first exception is the evidence.

A block belongs to one process (``PeeledLine.key``). Chained exceptions ("direct cause", "during handling") become
one event whose ``type`` and ``message`` are those of the first exception and whose ``last_type`` is the one printed
last. Ray prints the remote traceback without a header below ``ray.exceptions.RayTaskError(X): ray::f() (pid=, ip=)``;
pid and ip of that header name the failing actor. Formats: CPython ``traceback.py``, Ray ``exceptions.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.kinds import Produced
from nccl_triage.parsers import traceback_lines
from nccl_triage.parsers.stateful import SILENCE, SILENCE_AFTER, PeeledLine, StreamKey

#: Lines between the header of a rank and its traceback.
_NEAR = 2
#: Lines between a header and the traceback; Hydra lists the overrides there.
_BELOW, _OVERRIDES = 3, 500
#: Lines of an exception's message kept.
MAX_MESSAGE_LINES = 12
#: Lines after which an unfinished block is given up.
MAX_BLOCK_LINES = 5000
#: Blocks held open at once; the oldest is closed first.
MAX_OPEN = 4096


@dataclass(slots=True)
class _Exception:
    type: str
    message: str
    line: int
    end_line: int
    file: str | None = None
    file_line: str | None = None
    function: str | None = None
    raised_in: str | None = None
    #: The package that raised it, if no frame is the user's own.
    inside: str | None = None
    loading: bool = False
    #: Python prints the type alone, without a colon, where there is no message.
    mute: bool = False
    #: Whether it was raised while the one before was handled, and not because of it.
    instead: bool = False
    #: Lines of its stream behind the one with its type.
    lines: int = 0


@dataclass(slots=True)
class _Block:
    source: str
    start: int
    context: Context
    frames: list[re.Match[str]] = field(default_factory=list)
    chain: list[_Exception] = field(default_factory=list)
    in_frames: bool = True
    chained: bool = False
    #: The last link between exceptions says that the next one only came up while another was handled.
    instead: bool = False
    seen: int = 0
    task: str | None = None
    user_frames: list[str] = field(default_factory=list)
    collective: str | None = None
    #: Whether it is called without a process group.
    of_all: bool = False
    #: The last line of its stream.
    heard: int = 0
    #: The first frame below the header of the exception that got out: the last one of a chain.
    outermost: re.Match[str] | None = None
    #: What the line above says: ignored, uncaught (by a launcher that prints it), logged.
    fate: str | None = None
    #: Whether a record about ordinary work follows.
    goes_on: bool = False
    #: It is printed by another process than the one that raised.
    relayed: bool = False

    def over(self, number: int) -> bool:
        """Tell whether nothing more belongs to the block at a line, since its stream has said nothing for long."""
        complete = self.chain and not self.in_frames and not self.chained
        return number > self.heard + (SILENCE_AFTER if complete else SILENCE)

    def hands_on(self) -> bool:
        """Drop the last exception if it only hands on that of a worker or replica, whose own traceback follows."""
        handed_on = bool(self.chain) and traceback_lines.HANDED_ON.match(self.chain[-1].message) is not None
        if handed_on:
            self.chain.pop()
        return handed_on

    def of_ray_task(self, header: re.Match[str]) -> None:
        """Take the process that Ray's header names for the one that raised."""
        self.task = header["task"]
        self.context.pid, self.context.address = int(header["pid"]), header["ip"]


#: Levels of records about ordinary work.
_AT_WORK = ("INFO", "I", "DEBUG", "D")
#: Signature id of an assembled traceback.
TRACEBACK = "python.traceback"


def lines_of(event: Event) -> tuple[int, int] | None:
    """Return the first and the last line of an assembled traceback; None for other events."""
    first, _, last = event.fields.get("block", "").partition("-")
    return (int(first), int(last)) if last else None


class TracebackParser:
    """See the module; one instance per source."""

    PRODUCES: ClassVar[dict[str, Produced]] = {
        TRACEBACK: Produced(
            "exception",
            "A Python traceback, assembled; type and message are those of its first exception.",
            ("type", "qualified_type", "message", "last_type", "last_message", "chain", "user_frames", "block"),
            (
                "file",
                "file_line",
                "function",
                "raised_in",
                "inside",
                "loading",
                "collective",
                "members",
                "task",
                "fate",
                "relayed",
                "below",
            ),
        )
    }
    OPENERS: ClassVar[tuple[str, ...]] = (
        "(most recent call last):", "ray::", "Original Traceback", " Error Snippet]:", "Exception ignored ", "Error in atexit.",
        "--- Logging error ---", traceback_lines.EXECUTING,
    )  # fmt: skip
    KEEP_BY: ClassVar[tuple[str, ...]] = ("type",)

    def __init__(self) -> None:
        self._open: dict[StreamKey, _Block] = {}
        #: The rank that the last header named, and its line.
        self._named: dict[StreamKey, tuple[int, int]] = {}
        #: What the last header above a traceback says of it, and its line.
        self._headed: dict[StreamKey, tuple[str, int]] = {}

    def is_open(self) -> bool:
        """See ``StatefulParser``."""
        return bool(self._open)

    def feed(self, line: PeeledLine) -> list[Event]:
        """See ``StatefulParser``."""
        key = line.key()
        block = self._open.get(key)
        events: list[Event] = []
        if block is not None:
            if block.over(line.number):
                events, block = self._close(key), None
            else:
                block.heard = line.number
        if (snippet := traceback_lines.SNIPPET.match(line.text)) is not None:
            if len(self._named) >= MAX_OPEN:
                self._named.clear()
            self._named[key] = (int(snippet[1]), line.number)
        if (head := traceback_lines.fate_below(line.text)) is not None:
            if len(self._headed) >= MAX_OPEN:
                self._headed.clear()
            self._headed[key] = (head, line.number)
            return [*events, *self._close(key)]
        if traceback_lines.starts_traceback(line.text):
            child, outer = None, block if block is not None and block.frames and not block.chain else None
            original = block is not None and line.text.startswith("Original Traceback") and block.hands_on()
            if block is not None and not (
                original or block.chained or (block.in_frames and not block.frames and not block.chain)
            ):
                child = _spawned_child(block)
                events.extend(self._close(key))
                block = None
            if block is None:
                block = self._begin(line, key, events)
                if child is not None and block.context.rank is None:
                    block.context.local_rank = child
                if outer is not None:
                    # Ray raises in the driver what a task raised: below the driver's own frames.
                    block.start, block.outermost, block.fate = outer.start, outer.outermost, outer.fate
            if block.chained and block.task is None:
                block.outermost = None
            block.in_frames, block.chained = True, False
            block.frames = []
            return events
        if block is None:
            return events
        block.seen += 1
        if block.seen > MAX_BLOCK_LINES or not self._take(block, line):
            block.goes_on = line.context.level in _AT_WORK
            events.extend(self._close(key))
            if line.context.level is not None:
                self._headed[key] = ("logged", line.number)  # the next traceback may stand right below
        return events

    def give_up(self, number: int) -> list[Event]:
        """See ``StatefulParser``."""
        over = [key for key, block in self._open.items() if block.over(number)]
        return [event for key in over for event in self._close(key)]

    def finish(self) -> list[Event]:
        """See ``StatefulParser``."""
        events: list[Event] = []
        for key in list(self._open):
            events.extend(self._close(key))
        return events

    def _begin(self, line: PeeledLine, key: StreamKey, events: list[Event]) -> _Block:
        if len(self._open) >= MAX_OPEN:
            events.extend(self._close(next(iter(self._open))))
        block = _Block(source=line.source, start=line.number, context=line.context.copy(), heard=line.number)
        self._open[key] = block
        if (gathered := traceback_lines.GATHERED.search(line.text)) is not None:
            block.context.rank, block.context.pid, block.relayed = int(gathered[1]), None, True
        head, above = self._headed.pop(key, ("", 0))
        if above and line.number - above <= (_OVERRIDES if head == "uncaught" else _BELOW):
            block.fate = head
        elif line.context.level is not None or traceback_lines.RECORD.match(line.text):
            block.fate = "logged"
        rank, named = self._named.pop(key, (0, 0))
        if named and line.number - named <= _NEAR:
            block.context.rank, block.context.pid, block.relayed = rank, None, True
        header = traceback_lines.RAY_HEADER.search(line.text)
        if header is not None:
            block.of_ray_task(header)
        return block

    def _take(self, block: _Block, line: PeeledLine) -> bool:
        """Add a line to the block; False when the block ended before it."""
        text = line.text
        stripped = text.strip()
        if not stripped:
            return True
        if stripped in (traceback_lines.DIRECT_CAUSE, traceback_lines.DURING_HANDLING):
            block.chained, block.instead = True, stripped == traceback_lines.DURING_HANDLING
            return True
        header = traceback_lines.RAY_HEADER.search(text) if stripped.startswith(("ray::", "ray.exceptions.")) else None
        if header is not None:
            block.of_ray_task(header)
            return True
        frame = traceback_lines.FRAME.match(text)
        if frame is not None:
            if not block.in_frames:
                # Ray repeats remote frames after a header without a Traceback line.
                if block.chain and not block.chained and block.task is None:
                    return False
                block.in_frames, block.frames = True, []
            if block.outermost is None:
                block.outermost = frame
            block.frames.append(frame)
            if not traceback_lines.LIBRARY.search(frame["file"]):
                block.user_frames.append(f"{frame['file']}:{frame['line']} {frame['function'] or ''}".strip())
            return True
        if block.in_frames:
            call = traceback_lines.COLLECTIVE.search(text)
            if call is not None:
                block.collective = call[1]
                block.of_all = traceback_lines.of_all_ranks(call[1], text[call.end() :])
            found = traceback_lines.EXCEPTION.match(stripped) if not text.startswith("    ") else None
            if found is None and block.frames and not text.startswith((" ", "\t")):
                found = traceback_lines.CUSTOM_EXCEPTION.match(stripped)
            if found is not None:
                self._exception(block, found, line)
                return True
            return (
                bool(traceback_lines.CODE_LINE.match(text))
                or not block.frames
                or text.startswith((" ", "\t", "|", "+"))
            )
        if block.chain and len(block.chain[-1].message) < 2000:
            return self._continue_message(block, line, stripped)
        return False

    @staticmethod
    def _exception(block: _Block, found: re.Match[str], line: PeeledLine) -> None:
        part = found.groupdict()
        user = [frame for frame in block.frames if not traceback_lines.LIBRARY.search(frame["file"])]
        last = user[-1] if user else (block.frames[-1] if block.frames else None)
        kind, message = traceback_lines.once(part["type"], (part.get("message") or "").strip())
        if part.get("inner") and kind.endswith("RayTaskError"):
            kind = part["inner"]
        block.chain.append(
            _Exception(
                type=kind,
                message=message,
                line=line.number,
                end_line=line.number,
                file=last["file"] if last is not None else None,
                file_line=last["line"] if last is not None else None,
                function=last["function"] if last is not None else None,
                raised_in="{file} {function}".format(**block.frames[-1].groupdict()) if block.frames else None,
                inside=traceback_lines.package_inside(block.frames),
                mute=part.get("message") is None,
                instead=block.instead,
                loading=any(
                    traceback_lines.LOADING.search("{file} {function}".format(**frame.groupdict()))
                    for frame in block.frames
                ),
            )
        )
        block.in_frames = block.instead = False

    @staticmethod
    def _continue_message(block: _Block, line: PeeledLine, stripped: str) -> bool:
        current = block.chain[-1]
        # Lines of others may stand between where it is certain that the message goes on.
        current.lines += 1
        goes_on = line.text.startswith((" ", "\t")) or traceback_lines.MORE.search(current.message) is not None
        if (current.lines if goes_on else line.number - current.line) > MAX_MESSAGE_LINES:
            return False
        if stripped.startswith(("Exception raised from", "frame #")):
            current.end_line = line.number
            return True
        if current.mute:
            return False
        level = line.context.level
        if level is not None and (block.context.level is None or level in ("INFO", "WARNING", "W", "I")):
            return False  # the next record of a logger
        if not traceback_lines.continues_message(current.message, stripped, line.text):
            return False
        current.message = f"{current.message}\n{stripped}" if current.message else stripped
        current.end_line = line.number
        return True

    def _close(self, key: StreamKey) -> list[Event]:
        block = self._open.pop(key, None)
        if block is None or not block.chain:
            return []
        first, last = _telling(block.chain), block.chain[-1]
        if (remote := traceback_lines.REMOTE.match(first.message)) is not None:
            block.context.rank, block.context.pid, block.relayed = int(remote[1]), None, True
        fields = {
            "type": first.type.rsplit(".", 1)[-1],
            "qualified_type": first.type,
            "message": first.message[:2000],
            "last_type": last.type.rsplit(".", 1)[-1],
            "last_message": last.message[:600],
            "chain": str(len(block.chain)),
            "user_frames": "\n".join(block.user_frames[-6:]),
        }
        for name, value in (("file", first.file), ("file_line", first.file_line), ("function", first.function),
                            ("raised_in", first.raised_in), ("inside", first.inside)):  # fmt: skip
            if value:
                fields[name] = value
        if first.loading:
            fields["loading"] = "yes"
        if block.collective:
            fields["collective"] = block.collective
        if block.of_all:
            fields["members"] = "all"
        if block.task:
            fields["task"] = block.task
        fields["block"] = f"{block.start}-{last.end_line}"
        if fate := block.fate or traceback_lines.fate_of(block.outermost):
            fields["fate"] = fate
        if block.relayed:
            fields["relayed"] = "yes"
        if block.goes_on:
            fields["below"] = "work"
        text = f"{first.type}: {first.message}" if first.message else first.type
        return [
            Event(
                signature=TRACEBACK,
                source=block.source,
                line=first.line,
                end_line=first.end_line,
                text=text[:2000],
                context=block.context,
                role="cascade",
                fields=fields,
            )
        ]


def _telling(chain: Sequence[_Exception]) -> _Exception:
    """Return the exception of a chain that tells what happened.

    One that is the direct cause of others comes first; what was raised while another was handled takes its place. Whoever
    presses Ctrl-C interrupts, whatever else is raised on the way out.
    """
    for one in chain:
        if one.type == "KeyboardInterrupt":
            return one
    begins = max((index for index, one in enumerate(chain) if one.instead), default=0)
    return chain[begins]


def _spawned_child(block: _Block) -> int | None:
    """Return the child whose traceback comes next, when this block was its launcher's."""
    found = traceback_lines.SPAWNED.search(block.chain[-1].message) if block.chain else None
    return int(found[1]) if found is not None else None
