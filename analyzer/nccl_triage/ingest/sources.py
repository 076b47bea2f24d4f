"""What the arguments of a command mean: files, folders, patterns and ``-`` become sources, in a fixed order.

One unreadable file does not stop the others: it becomes a note. Only when nothing readable is left is that an
error.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from os import fsencode, stat_result
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from nccl_triage import messages, tool_reports
from nccl_triage.errors import InputError
from nccl_triage.ingest import layouts, rotation, sniff, walk, watched
from nccl_triage.ingest.compression import HEAD, detect, look_ahead, open_stream, read_up_to
from nccl_triage.ingest.layout_conditions import Siblings, strip_compression
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.ingest.watched import Watch
from nccl_triage.observations.store import SourceInfo
from nccl_triage.tool_reports import ToolReport

if TYPE_CHECKING:
    from nccl_triage.ingest.archives import Member

#: Notes of one kind that name their file; the rest is counted.
_EXAMPLES = 8


def display_name(path: Path | str) -> str:
    """Return a path as printable text: names can hold any byte, and end up in terminals and reports."""
    text = fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class Notes:
    """What was left out and why; of many of one kind some are named and the rest counted."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._unread: list[str] = []
        self._skipped: dict[str, list[str]] = {}

    def say(self, text: str) -> None:
        """Note a sentence, once."""
        if text not in self._texts:
            self._texts.append(text)

    def unread(self, path: Path | str, why: str) -> None:
        """Note that something named or found cannot be read."""
        self._unread.append(f"cannot read {display_name(path)}: {why}")

    def skipped(self, path: Path, why: str) -> None:
        """Note that a file was left out on purpose."""
        self._skipped.setdefault(why, []).append(display_name(path))

    def texts(self) -> list[str]:
        """Return the notes, problems first."""
        found = [*self._texts, *self._unread[:_EXAMPLES]]
        if len(self._unread) > _EXAMPLES:
            found.append(f"{len(self._unread) - _EXAMPLES} more could not be read")
        for why, paths in self._skipped.items():
            if why == sniff.EMPTY and len(paths) == 1:
                found.append(f"{paths[0]} is empty")
                continue
            names = ", ".join(paths[:_EXAMPLES]) + (", ..." if len(paths) > _EXAMPLES else "")
            found.append(f"skipped {len(paths)} {'file' if len(paths) == 1 else 'files'} ({why}): {names}")
        return found


STDIN = "<stdin>"
#: What stands for standard input on a command line.
STDIN_NAMES = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


@dataclass(slots=True)
class Source:
    """One input. ``path`` is what to call it; ``file`` is what to open, None for standard input.

    ``info`` holds what the path says and is filled further while reading. ``size`` is the size on disk in
    bytes, None for a pipe. ``report`` makes lines of what is no log; of a pipe it is known once it is open. ``member``
    is what to open of an archive.
    """

    path: str
    info: SourceInfo
    file: Path | None = None
    size: int | None = None
    stdin: BinaryIO | None = field(default=None, repr=False)
    report: ToolReport | None = None
    member: Member | None = None

    @property
    def rereadable(self) -> bool:
        """Whether ``open`` gives the same bytes again, as it does for a file and not for a pipe."""
        return self.file is not None and self.size is not None

    def only_whole(self) -> bool:
        """Tell whether a file can only be read as a whole: compressed, or made into lines. Raises OSError."""
        if self.report is not None or self.file is None or self.member is not None:
            return True
        with self.file.open("rb", buffering=0) as stream:
            return detect(read_up_to(stream, HEAD)) is not None

    def open(self, watch: Watch | None = None) -> BinaryIO:
        """Return the bytes of the log, decompressed; what is no log as the lines made of it.

        ``watch`` is told how many bytes each read takes from the disk or the pipe. What is wrong with the data is
        added to ``info.problems``. Raises OSError when the file cannot be opened any more.
        """
        stream = self.unpacked(watch)
        if not self.rereadable:
            sample, stream = look_ahead(stream, tool_reports.SAMPLE)
            self.report = tool_reports.recognise(self.file.name if self.file else self.path, sample)
            if self.report is None and sniff.looks_binary(sample):
                # The same rule as for files, of which this is known before any is opened.
                stream.close()
                self.info.problems.append(sniff.BINARY)
                return io.BytesIO()
            if not (sample or self.info.problems or (watch is not None and watch.early)):
                self.info.problems.append(sniff.EMPTY)
        form = self.report
        return stream if form is None else _as_lines(stream, form, self.info)

    def unpacked(self, watch: Watch | None = None) -> BinaryIO:
        """Return the bytes of the file or the pipe, decompressed; raises OSError."""
        if self.file is None:
            return open_stream(watched.listen(self.stdin or io.BytesIO(), watch), self.info.problems, close=False)
        stream = watched.open_file(self.file, watch)
        if self.member is not None:
            stream = self.member.open(stream, self.info.problems)
            if watch is not None:
                watch.count(-self.member.start)  # what was skipped is not read
        return open_stream(stream, self.info.problems)


def _as_lines(stream: BinaryIO, form: ToolReport, info: SourceInfo) -> BinaryIO:
    """Return the lines that a report makes of a stream, which it may turn out not to be for."""
    data, stream = look_ahead(stream, form.max_size + 1)
    lines = form.render(data, info) if len(data) <= form.max_size else None
    if lines is not None:
        stream.close()
        return io.BytesIO(lines)
    if form.is_text:
        return stream
    stream.close()
    problem = f"larger than the limit of {form.max_size >> 20} MiB for such a file; skipped"
    if len(data) > form.max_size and problem not in info.problems:
        info.problems.append(problem)
    return io.BytesIO()


def _is_there(path: Path) -> bool:
    """Tell whether the path names something, readable or not; ``Path.exists`` raises for what is not."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


class _Finder:
    """The sources found so far."""

    def __init__(self, stdin: BinaryIO | None, since: float | None, links: bool, names: LayoutReader | None) -> None:
        self.sources: list[Source] = []
        self.notes = Notes()
        self._stdin = stdin
        self._since = since
        self._links = links
        self._names = names
        self._seen: set[tuple[int, int]] = set()
        self._siblings: dict[Path, Siblings] = {}

    def argument(self, text: str) -> None:
        path = Path(text)
        if text == "-" or (text in STDIN_NAMES and self._stdin is not None):
            self._add_stdin()
        elif text and _is_there(path):
            # Before patterns: a name may hold brackets.
            self._path(path, named=True)
        elif walk.has_magic(text):
            found = walk.expand(text, self.notes.unread, self.notes.skipped, links=self._links)
            if not found:
                self.notes.say(f"no file matches {display_name(text)}")
            for match in found:
                # "*.json" names what it wants, "*" does not.
                self._path(match, named=bool(path.suffix) and not walk.has_magic(path.suffix))
        else:
            self.notes.unread(text, "No such file or directory")

    def _add_stdin(self) -> None:
        if self._stdin is None:
            self.notes.say("cannot read standard input: there is none")
        elif all(source.file is not None for source in self.sources):
            self.sources.append(Source(STDIN, SourceInfo(path=STDIN), stdin=self._stdin))

    def _path(self, path: Path, *, named: bool) -> None:
        try:
            state = path.stat()
        except OSError as error:
            self.notes.unread(path, walk.reason(error))
            return
        if not stat.S_ISDIR(state.st_mode):
            self._file(path, state, named=named)
            return
        if walk.is_kernels(state):
            self.notes.skipped(path, walk.OF_THE_KERNEL)
            return
        if os.path.realpath(path) == "/":
            self.notes.say("/ is the whole file system: name the folder that holds the logs")
            return
        found = False
        for below, below_state in walk.tree(path, self.notes.unread, self.notes.skipped, links=self._links):
            if not stat.S_ISDIR(below_state.st_mode):
                found = True
                if self._since is None or below_state.st_mtime >= self._since:
                    self._file(below, below_state, named=False)
        if not found:
            self.notes.say(f"{display_name(path)} holds no files")

    def _file(self, path: Path, state: stat_result, *, named: bool) -> None:
        key = (state.st_dev, state.st_ino)
        if key in self._seen:
            return
        self._seen.add(key)
        if walk.is_kernels(state) and not stat.S_ISFIFO(state.st_mode):
            # Regular ones among them may wait for ever, as /proc/kmsg does.
            self.notes.skipped(path, walk.OF_THE_KERNEL)
        elif stat.S_ISREG(state.st_mode):
            is_log, report = self._look(path, named=named)
            if is_log:
                self._add(path, state.st_size, report)
        elif stat.S_ISFIFO(state.st_mode) and named:
            self._add(path, None)
        else:
            self.notes.skipped(path, "a pipe, socket or device")

    def _look(self, path: Path, *, named: bool) -> tuple[bool, ToolReport | None]:
        """Tell whether a file is to be read, and what makes lines of one that is no log."""
        name = strip_compression(path.name)
        ending = Path(name).suffix.lower()
        if not named and ending in sniff.NO_LOG and not tool_reports.wants(name):
            self.notes.skipped(path, "not logs")
            return False, None
        try:
            kind, why, sample = sniff.classify(path)
        except OSError as error:
            self.notes.unread(path, walk.reason(error))
            return False, None
        report = tool_reports.recognise(name, sample) if sample else None
        if report is not None and (named or not report.only_named):
            return True, report
        if kind == "unreadable":
            self.notes.unread(path, why)
        elif kind == "archive" and sample.startswith(sniff.ZIP):
            self._unpack(path)
        elif kind != "text":
            self.notes.skipped(path, why)
        elif not named and (ending in sniff.NO_LOG or (ending in sniff.JSON and not sniff.looks_like_json_log(sample))):
            self.notes.skipped(path, "not logs")
        else:
            return True, None
        return False, None

    def _unpack(self, path: Path) -> None:
        """Add the logs of an archive."""
        from nccl_triage.ingest import archives

        members, why = archives.members(path)
        if why is not None:
            self.notes.skipped(path, why)
        folders: dict[Path, list[str]] = {}
        for member in members:
            folders.setdefault((path / member.name).parent, []).append(Path(member.name).name)
        self._siblings.update((folder.absolute(), Siblings(names)) for folder, names in folders.items())
        for member in members:
            self._look_inside(path, member, named=len(members) == 1)

    def _look_inside(self, path: Path, member: Member, *, named: bool) -> None:
        """Add a member of an archive if it is a log."""
        inside = path / member.name
        name = strip_compression(inside.name)
        if not named and Path(name).suffix.lower() in sniff.NO_LOG and not tool_reports.wants(name):
            self.notes.skipped(inside, "not logs")
            return
        problems: list[str] = []
        source = Source(str(inside), SourceInfo(str(inside), problems=problems), path, member.packed, member=member)
        with source.unpacked() as stream:
            sample = read_up_to(stream, tool_reports.SAMPLE)
        kind, why, _ = sniff.kind_of(sample, sniff.without_holes(sample), problems)
        report = tool_reports.recognise(name, sample)
        if report is not None or kind == "text":
            self._add(inside, member.packed, report, path, member)
        else:
            self.notes.skipped(inside, why)

    def _add(
        self,
        path: Path,
        size: int | None,
        report: ToolReport | None = None,
        archive: Path | None = None,
        member: Member | None = None,
    ) -> None:
        info = SourceInfo(path="") if self._names is None else self._read_name(self._names, path)
        info.path = display_name(path)
        self.sources.append(Source(info.path, info, archive or path, size, report=report, member=member))

    def _read_name(self, names: LayoutReader, path: Path) -> SourceInfo:
        # Not resolve(): a link's own name says more than that of what it points to.
        absolute = path.absolute()
        folder = absolute.parent
        if folder not in self._siblings:
            try:
                inside = [entry.name for entry in folder.iterdir()]
            except OSError:
                inside = []
            self._siblings[folder] = Siblings(inside)
        return names.read(absolute.as_posix(), self._siblings[folder])


def _near(arguments: Sequence[str]) -> str | None:
    """Return the file, not named itself, whose name is nearest to that of the first argument that does not exist."""
    import difflib

    missing = next((Path(text) for text in arguments if text and not _is_there(Path(text))), None)
    if missing is None or walk.has_magic(str(missing)):
        return None
    try:
        names = [entry.name for entry in missing.parent.iterdir() if str(entry) not in arguments]
    except OSError:
        return None
    near = difflib.get_close_matches(missing.name, names, 1)
    return display_name(missing.parent / near[0]) if near else None


def find_sources(
    arguments: Sequence[str],
    stdin: BinaryIO | None,
    since: float | None = None,
    *,
    names: LayoutReader | None,
    links: bool = False,
) -> tuple[list[Source], list[str]]:
    """Return the sources that the arguments name, in their order, and notes on what was left out and why.

    An argument is a file, a folder (searched with all below it), a pattern or ``-``. Without arguments
    standard input is read unless it is a terminal. A file reached twice is read once; a named pipe is read
    when it is named, not when a folder holds it. With ``since`` (seconds of the epoch) files in folders that were
    last written before are left out. Links in folders are followed within the folder that was named, with ``links``
    anywhere; what the kernel shows as files is never read. ``names`` reads what their paths say; with None these say nothing. Raises InputError when nothing readable is left.
    """
    finder = _Finder(stdin, since, links, names)
    if arguments:
        for argument in arguments:
            finder.argument(argument)
    elif stdin is not None and not stdin.isatty():
        finder.argument("-")
    notes = finder.notes.texts()
    if not finder.sources:
        raise _nothing_readable(arguments, notes)
    infos = [source.info for source in finder.sources]
    layouts.settle(infos)
    rotation.link(infos)
    return finder.sources, notes


def missing(arguments: Sequence[str]) -> list[str]:
    """Return the arguments that name nothing, where others name something."""
    wanting = [text for text in arguments if not _names_something(text)]
    return wanting if len(wanting) < len(arguments) else []


def _names_something(text: str) -> bool:
    if text in STDIN_NAMES or _is_there(Path(text)):
        return True
    return walk.has_magic(text) and bool(walk.expand(text, lambda path, why: None))


def check_read(arguments: Sequence[str], infos: Collection[SourceInfo], found: Sequence[str] = ()) -> None:
    """Raise InputError when all sources were pipes, of which only their bytes have shown that they are no logs.

    ``found`` are the notes on what was left out before.
    """
    why = [next((why for why in (sniff.BINARY, sniff.EMPTY) if why in info.problems), None) for info in infos]
    if infos and all(why):
        notes = Notes()
        for info, reason in zip(infos, why, strict=True):
            if (info.path, reason) == (STDIN, sniff.EMPTY):
                notes.say("standard input is empty")
            else:
                notes.skipped(Path(info.path), reason or "")
        raise _nothing_readable(arguments, [*found, *notes.texts()])


def _nothing_readable(arguments: Sequence[str], notes: Sequence[str]) -> InputError:
    near = _near(arguments)
    return InputError(
        "no readable input",
        cause="{notes}" if notes else "no file was named and nothing is piped in",
        notes={lang: "; ".join(messages.translated_text(note, lang) for note in notes[:4]) for lang in ("en", "zh")},
        near=near,
        remedy="did you mean {near}?"
        if near
        else "give log files, folders or a pattern such as 'logs/**/*.log', or pipe a log into '-'",
    )
