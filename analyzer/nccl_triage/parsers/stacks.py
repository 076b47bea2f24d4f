"""Assemble the stacks of processes that hang, as engineers dump them: one event per process, of its main thread.

Forms, each read from what the program prints:

- ``py-spy dump --pid`` (https://github.com/benfred/py-spy; ``ray stack`` runs it): ``Process 812: python train.py``,
  ``Thread 812 (idle): "MainThread"``, frames ``    wait (threading.py:320)``, the innermost first; with ``--native``
  frames of libraries, with ``--locals`` indented values.
- CPython's ``faulthandler`` (``Python/traceback.c``): ``Timeout (0:10:00)!`` or none, ``Thread 0x... (most recent call
  first):``, frames ``  File "x.py", line 9 in f``. The main thread is the last. Below ``Fatal Python error`` stand the
  stacks of a crash; they tell nothing of a hang and are left out.
- ``pystack remote`` (https://github.com/bloomberg/pystack): ``Traceback for thread 812 (python) [] (most recent call
  last):``, frames ``    (Python) File "x.py", line 9, in f``, the outermost first, each with its source line.
- gdb's ``thread apply all bt``: ``Thread 1 (Thread 0x7f... (LWP 812) "python"):``, frames ``#3  0x... in f () from lib``.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import ClassVar

from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.kinds import Produced
from nccl_triage.parsers.stateful import SILENCE_AFTER, PeeledLine, StreamKey

SIGNATURE = "python.stack"
MAIN = "MainThread"

_PROCESS = lazily(r"^Process (?P<pid>\d{1,10}): (?P<command>\S.{0,2000})$")
_PY_SPY = lazily(
    r'^Thread (?:(?:0x[0-9A-Fa-f]+|\d+) )?\((?P<state>active|idle)(?:\+gil)?\)(?:: "(?P<name>[^"]{0,80})")?\s*$'
)
_FAULTHANDLER = lazily(
    r"^(?:Current t|T)hread 0x[0-9a-f]+(?: \[[^\]]{1,40}\])?(?: \([^)]{1,80}\))? \(most recent call first\):"
)
_TIMEOUT = lazily(r"^Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!$")
_PYSTACK = lazily(
    r"^Traceback for thread (?P<tid>\d{1,10})(?: \([^)]{0,80}\))? \[[^\]]{0,80}\] \(most recent call last\):"
)
_GDB = lazily(
    r'^Thread (?P<number>\d+) \((?:Thread 0x[0-9a-f]+ )?\(?LWP (?P<pid>\d{1,10})\)?(?: "(?P<name>[^"]{0,80})")?\):?\s*$'
)

_PY_SPY_FRAME = lazily(r"^ {2,8}(?P<function>\S.{0,200}?) \((?P<path>[^()\s][^()]{0,400}?)(?::(?P<line>\d+))?\)\s*$")
_FILE_FRAME = lazily(
    r'^\s{0,8}(?:\((?:Python|C)\) )?File "(?P<path>[^"]{1,400})", line (?P<line>\d+),? in (?P<function>\S.{0,200}?)\s*$'
)
_GDB_FRAME = lazily(
    r"^#\d+\s+(?:0x[0-9a-f]+ in )?(?P<function>[^\s(]+(?: ?<[^>]*>)?) ?\(.{0,2000}\)(?: (?:from|at) (?P<path>[^\s:]{1,400})(?::(?P<line>\d+))?)?\s*$"
)
#: What stands among frames without being one: values of ``--locals``, source lines, "..." of a stack that was cut.
_BETWEEN = lazily(r"^\s{5,}\S|^\s*\.\.\.\s*$|^Python v\d|^\s*Arguments:\s*$|^\s*Locals:\s*$")
_LIBRARIES = lazily(r"^.*/(?:site-packages|dist-packages|lib/python3\.\d+)/")
_LOCAL_RANK = lazily(r"--local[-_]rank[= ](?P<rank>\d{1,5})\b")

#: The path of a frame as it is shown, and what stands in place of one for code that has no file.
_PLACE = lazily(r"\((?P<path>[^()]*)\)$")
_NO_FILE = lazily(r"^$|^<|\.so[.\d]*$")

#: Frames kept of a stack, and characters of each.
MAX_FRAMES = 40
MAX_FRAME = 200
#: Lines after which a dump is closed: a stack is not that deep.
MAX_LINES = 4000
#: Dumps open at once; the oldest is closed first.
MAX_OPEN = 1024


@dataclass(slots=True)
class _Thread:
    """One thread; frames as they stand in the dump."""

    tool: str
    name: str | None = None
    state: str | None = None
    #: Each with its line.
    frames: list[tuple[str, int]] = field(default_factory=list)
    end_line: int = 0
    deeper: int = 0

    def innermost_first(self) -> list[tuple[str, int]]:
        return self.frames[::-1] if self.tool == "pystack" else self.frames

    @property
    def is_main(self) -> bool:
        """Whether the frames begin where a program does, not where a thread does."""
        stack = self.innermost_first()
        return bool(stack) and not self.deeper and not stack[-1][0].startswith(("_bootstrap (", "Thread._bootstrap ("))

    @property
    def trains(self) -> bool:
        return any("torch/" in frame for frame, _ in self.frames)


@dataclass(slots=True)
class _Dump:
    """The threads of one process, so far."""

    source: str
    context: Context
    command: str | None = None
    fatal: bool = False
    threads: list[_Thread] = field(default_factory=list)
    seen: int = 0
    heard: int = 0

    def chosen(self) -> _Thread | None:
        """Return the thread that does the process's work: the main one, unless only another runs PyTorch."""
        threads = [thread for thread in self.threads if thread.frames]
        named = [thread for thread in threads if thread.name == MAIN]
        # faulthandler and pystack print the main thread last, gdb prints it last, too (its number is 1).
        main = named or [thread for thread in threads if thread.is_main] or threads
        if not main:
            return None
        working = [] if main[-1].trains else [thread for thread in threads if thread.trains and thread.tool == "py-spy"]
        return (working or main)[-1]


class StackParser:
    """See the module; one instance per source."""

    PRODUCES: ClassVar[dict[str, Produced]] = {
        SIGNATURE: Produced(
            "exception.frame",
            "Where a process stands: the stack of its main thread, dumped from outside or by itself.",
            ("tool", "frames", "threads"),
            ("command", "thread", "state", "cut"),
        )
    }
    OPENERS: ClassVar[tuple[str, ...]] = (
        "hread 0x", "Fatal Python error", "(active)", "(idle)", "(active+gil)", "(idle+gil)",
        "Traceback for thread", "(LWP ",
        # Not "Process " alone: storms are full of "Process group watchdog thread terminated".
        *(f"Process {digit}" for digit in range(1, 10)),
    )  # fmt: skip
    #: Where dumps tell no process, those that stand elsewhere are kept; equal ones are counted.
    KEEP_BY: ClassVar[tuple[str, ...]] = ("frames",)

    def __init__(self) -> None:
        self._open: dict[StreamKey, _Dump] = {}

    def is_open(self) -> bool:
        """See ``StatefulParser``."""
        return bool(self._open)

    def feed(self, line: PeeledLine) -> list[Event]:
        """See ``StatefulParser``."""
        key = line.key()
        dump = self._open.get(key)
        if dump is not None and line.number - dump.heard > SILENCE_AFTER:
            return [*self._close(key), *self.feed(line)]
        text = line.text
        if dump is not None:
            dump.seen += 1
            dump.heard = line.number
            if not text.strip():
                return []
            if dump.threads and self._frame(dump.threads[-1], line):
                return [] if dump.seen < MAX_LINES else self._close(key)
        begun = self._begins(line, dump)
        if begun is not None:
            done = [] if begun is dump else self._close(key)
            begun.heard = line.number
            if begun is not dump:
                if len(self._open) >= MAX_OPEN:
                    done += self._close(next(iter(self._open)))
                self._open[key] = begun
            return done
        if dump is None or (_BETWEEN.search(text) and dump.seen < MAX_LINES):
            return []
        return self._close(key)

    def give_up(self, number: int) -> list[Event]:
        """See ``StatefulParser``."""
        over = [key for key, dump in self._open.items() if number - dump.heard > SILENCE_AFTER]
        return [event for key in over for event in self._close(key)]

    def finish(self) -> list[Event]:
        """See ``StatefulParser``."""
        return [event for key in list(self._open) for event in self._close(key)]

    @staticmethod
    def _begins(line: PeeledLine, dump: _Dump | None) -> _Dump | None:
        """Return the dump that a line begins, or goes on with another thread; None for any other line."""
        text = line.text
        if (found := _PROCESS.match(text)) is not None:
            begun = _Dump(line.source, line.context.copy(), found["command"])
            begun.context.pid = int(found["pid"])
            local = _LOCAL_RANK.search(found["command"])
            if local is not None and begun.context.local_rank is None:
                begun.context.local_rank = int(local["rank"])
            return begun
        if _TIMEOUT.match(text):
            return _Dump(line.source, line.context.copy())
        if "Fatal Python error" in text:
            return _Dump(line.source, line.context.copy(), fatal=True)
        if (found := _PY_SPY.match(text)) is not None:
            thread = _Thread("py-spy", found["name"], found["state"])
            same = dump is not None and not (thread.name == MAIN and dump.threads)
        elif _FAULTHANDLER.match(text):
            thread = _Thread("faulthandler")
            same = dump is not None and not (dump.threads and dump.threads[-1].is_main)
        elif (found := _PYSTACK.match(text)) is not None:
            thread = _Thread("pystack")
            same = dump is not None and not (dump.threads and dump.threads[-1].is_main)
        elif (found := _GDB.match(text)) is not None:
            thread = _Thread("gdb", MAIN if found["number"] == "1" else found["name"])
            same = dump is not None and not (dump.threads and dump.threads[-1].name == MAIN)
        else:
            return None
        begun = dump if dump is not None and same else _Dump(line.source, line.context.copy())
        begun.threads.append(thread)
        if thread.tool == "gdb" and thread.name == MAIN and found is not None:
            begun.context.pid = int(found["pid"])
        if thread.tool == "pystack" and found is not None:
            begun.context.pid = whole(found["tid"])  # of the main thread, which comes last, it is the process's
        return begun

    @staticmethod
    def _frame(thread: _Thread, line: PeeledLine) -> bool:
        """Add a line to a thread's stack; False when it is no frame of it."""
        kind = {"py-spy": _PY_SPY_FRAME, "gdb": _GDB_FRAME}.get(thread.tool, _FILE_FRAME)
        found = kind.match(line.text)
        if found is None:
            return False
        thread.end_line = line.number
        if len(thread.frames) >= MAX_FRAMES and thread.tool != "pystack":
            thread.deeper += 1
            return True
        # Of pystack's the innermost come last.
        thread.frames = [*thread.frames, (_shown(found), line.number)][-MAX_FRAMES:]
        return True

    def _close(self, key: StreamKey) -> list[Event]:
        dump = self._open.pop(key, None)
        thread = dump.chosen() if dump is not None and not dump.fatal else None
        if dump is None or thread is None:
            return []
        stack = thread.innermost_first()
        frames = [frame for frame, _ in stack]
        # The first frame from the inside that tells something, and is no library's wait.
        telling = next((number for number, frame in enumerate(frames) if not is_standard(frame)), 0)
        line = stack[telling][1]
        fields = {"tool": thread.tool, "frames": "\n".join(frames), "threads": str(len(dump.threads))}
        for name, value in (("command", dump.command), ("thread", thread.name), ("state", thread.state)):
            if value:
                fields[name] = value
        if not thread.is_main and thread.name is None:
            fields["cut"] = "1"
        return [
            Event(
                signature=SIGNATURE,
                source=dump.source,
                line=line,
                end_line=max(line, thread.end_line),
                text=" < ".join(frames[telling : telling + 4]),
                context=dump.context,
                fields=fields,
            )
        ]


def is_standard(frame: str) -> bool:
    """Tell whether a frame is of Python's standard library, or of code that has no file of its own."""
    found = _PLACE.search(frame)
    if found is None or _NO_FILE.search(found["path"]):
        return True
    path = found["path"].rpartition(":")[0] or found["path"]
    return path.removesuffix(".py").split("/")[0] in sys.stdlib_module_names


def _shown(frame: re.Match[str]) -> str:
    """Return a frame as ``function (path:line)``, the path without the folder of the interpreter's libraries."""
    path = _LIBRARIES.sub("", frame["path"] or "")
    place = f"{path}:{frame['line']}" if frame["line"] else path
    return f"{frame['function']} ({place})"[:MAX_FRAME]
