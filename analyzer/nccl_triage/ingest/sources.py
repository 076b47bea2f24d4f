"""What the arguments of a command mean: files, folders, patterns and ``-`` become sources, in a fixed order.

One unreadable file does not stop the others: it becomes a note. Only when nothing readable is left is that an
error.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from nccl_triage.errors import InputError
from nccl_triage.events import SourceInfo
from nccl_triage.ingest import layouts, sniff, torch_error, walk
from nccl_triage.ingest.compression import open_stream, read_up_to

STDIN = "<stdin>"
#: Other names of the same stream.
_STDIN_NAMES = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
#: Notes of one kind that name their file; the rest is counted.
_EXAMPLES = 8

#: Endings of files in a folder that are no logs: weights, data, code, settings, documents, pictures.
_NO_LOG = frozenset(
    " .pt .pth .bin .safetensors .ckpt .pkl .pickle .npy .npz .onnx .gguf .h5 .hdf5 .msgpack .distcp .nsys-rep
    .qdrep" " .ncu-rep .sqlite .db .db-wal .db-shm .parquet .arrow .feather .tfrecord .tfevents .mmap .idx
    .lmdb .mdb .wandb" " .so .o .a .dll .exe .pyc .whl .egg .jar .deb .rpm .zip .tar .tgz .tbz2 .txz .7z .rar
    .iso .img .core .dmp" " .png .jpg .jpeg .gif .webp .svg .ico .pdf .mp3 .mp4 .wav .avi .mov .webm .ttf
    .woff .woff2" " .py .pyi .ipynb .c .cc .cpp .cu .cuh .h .hpp .rs .go .js .ts .css .html .htm .xml .md .rst
    .tex .csv .tsv" " .yaml .yml .toml .cfg .ini .conf .sh .sbatch .slurm .lock .pid .sock .pem .key .crt
    .model .tiktoken" "".split() ) _JSON = frozenset({".json", ".jsonl", ".ndjson"})


@dataclass(slots=True)
class Source:
    """One input. ``path`` is what to call it; ``file`` is what to open, None for standard input.

    ``info`` holds what the path says and is filled further while reading. ``size`` is the size on disk in
    bytes where it is known: of the compressed file if it is one.
    """

    path: str
    info: SourceInfo
    file: Path | None = None
    size: int | None = None
    stdin: BinaryIO | None = field(default=None, repr=False)

    def open(self) -> BinaryIO:
        """Return the bytes of the log, decompressed; torchelastic's error.json as the traceback it holds.

        What is wrong with the compressed data is added to ``info.problems``. Standard input can be opened
        once. Raises InputError when the file has become unreadable.
        """
        try:
            if self.file is None:
                assert self.stdin is not None
                return open_stream(self.stdin, self.info.problems, close=False)
            stream = open_stream(_open(self.file), self.info.problems)
            if torch_error.is_error_file(self.file.name):
                with stream:
                    data = read_up_to(stream, torch_error.MAX_SIZE + 1)
                    if len(data) <= torch_error.MAX_SIZE:
                        return io.BytesIO(torch_error.render(data))
                return open_stream(_open(self.file), self.info.problems)
        except OSError as error:
            raise InputError(
                f"cannot read {self.path}: {walk.reason(error)}",
                cause="the file was there when the inputs were listed and cannot be read any more",
                remedy="run again, or leave this file out",
            ) from error
        return stream


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, path.open("rb", buffering=0))


def display_name(path: str) -> str:
    """Return a path as printable text: names can hold any byte, and end up in terminals and reports."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class _Notes:
    """Notes in the order of their causes; those of one kind are shown a few times, then counted."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._unread: list[str] = []
        self._skipped: dict[str, list[str]] = {}

    def say(self, text: str) -> None:
        if text not in self._texts:
            self._texts.append(text)

    def unread(self, path: str, why: str) -> None:
        self._unread.append(f"cannot read {display_name(path)}: {why}")

    def skipped(self, why: str, path: str) -> None:
        self._skipped.setdefault(why, []).append(display_name(path))

    def texts(self) -> list[str]:
        found = [*self._texts, *self._unread[:_EXAMPLES]]
        if len(self._unread) > _EXAMPLES:
            found.append(f"{len(self._unread) - _EXAMPLES} more could not be read")
        for why, paths in self._skipped.items():
            names = ", ".join(paths[:_EXAMPLES]) + (", ..." if len(paths) > _EXAMPLES else "")
            found.append(f"skipped {len(paths)} {'file' if len(paths) == 1 else 'files'} ({why}): {names}")
        return found


class _Finder:
    def __init__(self, stdin: BinaryIO | None) -> None:
        self.sources: list[Source] = []
        self.notes = _Notes()
        self._stdin = stdin
        self._seen: set[tuple[int, int]] = set()
        self._siblings: dict[str, layouts.Siblings] = {}

    def argument(self, text: str) -> None:
        if text == "-" or (text in _STDIN_NAMES and self._stdin is not None):
            self._add_stdin()
        elif os.path.lexists(text):
            self._path(text, named=True)
        elif walk.has_magic(text):
            paths = walk.expand(text, self.notes.unread)
            if not paths:
                self.notes.say(f"no file matches {display_name(text)}")
            # "*.json" names what it wants, "*" does not.
            ending = os.path.splitext(text)[1]
            for path in paths:
                self._path(path, named=bool(ending) and not walk.has_magic(ending))
        else:
            self.notes.unread(text, "No such file or directory")

    def _add_stdin(self) -> None:
        if self._stdin is None:
            self.notes.say("cannot read standard input: there is none")
        elif all(source.file is not None for source in self.sources):
            self.sources.append(Source(STDIN, SourceInfo(path=STDIN), stdin=self._stdin))

    def _path(self, path: str, *, named: bool) -> None:
        try:
            state = os.stat(path)
        except OSError as error:
            self.notes.unread(path, walk.reason(error))
            return
        if not stat.S_ISDIR(state.st_mode):
            self._file(path, state, named=named)
            return
        found = 0
        for below, below_state in walk.tree(path, self.notes.unread):
            if not stat.S_ISDIR(below_state.st_mode):
                found += 1
                self._file(below, below_state, named=False)
        if not found:
            self.notes.say(f"{display_name(path)} holds no files")

    def _file(self, path: str, state: os.stat_result, *, named: bool) -> None:
        key = (state.st_dev, state.st_ino)
        if key in self._seen:
            return
        self._seen.add(key)
        if stat.S_ISREG(state.st_mode):
            if self._is_log(path, named=named):
                self._add(path, state.st_size)
        elif stat.S_ISFIFO(state.st_mode) and named:
            self._add(path, None)
        else:
            self.notes.skipped("a pipe, socket or device", path)

    def _is_log(self, path: str, *, named: bool) -> bool:
        name = os.path.basename(path)
        plain = layouts.strip_compression(name)
        ending = os.path.splitext(plain)[1].lower()
        dump = layouts.read_path(name).layout == "flight-recorder"
        if not named and not dump and ending in _NO_LOG:
            self.notes.skipped("not logs", path)
            return False
        try:
            kind, why, sample = sniff.classify(path)
        except OSError as error:
            self.notes.unread(path, walk.reason(error))
            return False
        if kind == "empty":
            self.notes.skipped("empty", path)
        elif kind == "unreadable":
            self.notes.unread(path, why)
        elif dump:
            return True
        elif kind != "text":
            self.notes.skipped(why, path)
        elif (
            not named
            and ending in _JSON
            and not (torch_error.is_error_file(name) or sniff.looks_like_json_log(sample))
        ):
            self.notes.skipped("not logs", path)
        else:
            return True
        return False

    def _add(self, path: str, size: int | None) -> None:
        absolute = os.path.abspath(path)
        folder = os.path.dirname(absolute)
        if folder not in self._siblings:
            try:
                names = os.listdir(folder)
            except OSError:
                names = []
            self._siblings[folder] = layouts.Siblings(names)
        info = layouts.read_path(absolute.replace(os.sep, "/"), self._siblings[folder])
        info.path = display_name(path)
        self.sources.append(Source(info.path, info, file=Path(path), size=size))


def find_sources(arguments: Sequence[str], stdin: BinaryIO | None) -> tuple[list[Source], list[str]]:
    """Return the sources that the arguments name, in their order, and notes on what was left out and why.

    An argument is a file, a folder (searched with all below it), a pattern or ``-``. Without arguments
    standard input is read unless it is a terminal. A file reached twice is read once; a named pipe is read
    when it is named, not when a folder holds it. Dumps of torch's flight recorder are returned although they
    may be binary: their layout is ``flight-recorder``. Raises InputError when nothing readable is left.
    """
    finder = _Finder(stdin)
    if arguments:
        for argument in arguments:
            finder.argument(argument)
    elif stdin is not None and not stdin.isatty():
        finder.argument("-")
    notes = finder.notes.texts()
    if not finder.sources:
        raise InputError(
            "no readable input", cause="; ".join(notes[:4]) or "no file was named and nothing is piped in",
            remedy="name log files, a folder of logs or a pattern such as 'logs/**/*.log', or pipe a log into
            '-'", ) layouts.settle([source.info for source in finder.sources]) return finder.sources, notes
