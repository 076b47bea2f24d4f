"""Read gz, xz, bz2 and zst logs, and members of zip archives, as streams; what a name says does not count, only the bytes.

Logs of dead jobs are often cut off in the middle of an archive. Whatever can be unpacked is returned, then
the stream ends and a note says why. Nothing is unpacked ahead of what is asked for, so memory stays bounded
however well the data were compressed.
"""

from __future__ import annotations

import bz2
import importlib
import importlib.util
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

from nccl_triage.lazy_regex import lazily

#: Bytes that decide which format a stream has.
HEAD = 10
_READ = 1 << 17
#: Compressed bytes handed over at a time: what one failing call had unpacked is lost, so it should be little.
_PIECE = 1 << 12
#: The note that the rest of the data is missing.
TRUNCATED = "the file is truncated"
#: xz -9 needs 65 MiB; a file that wants more than this is refused with a note.
_XZ_MEMORY = 192 << 20


class _Member(Protocol):
    """One member (gzip), stream (xz, bz2) or frame (zstd) of an archive."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes | memoryview, max_length: int = -1) -> bytes: ...


class _ZlibMember:
    """``zlib.decompressobj`` with the interface of the other decompressors; ``wbits`` tells what is around the data."""

    def __init__(self, wbits: int = 31) -> None:
        self._object = zlib.decompressobj(wbits=wbits)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._object.eof

    @property
    def unused_data(self) -> bytes:
        return self._object.unused_data

    def decompress(self, data: bytes | memoryview, max_length: int = -1) -> bytes:
        output = self._object.decompress(self._object.unconsumed_tail + bytes(data), max(max_length, 0))
        # zlib can hold output back without holding input back.
        self.needs_input = not self._object.unconsumed_tail and len(output) != max_length
        return output


def _gzip_member() -> _Member:
    try:
        # Three times as fast as zlib. Its threaded reader loses the last blocks of a damaged file.
        igzip: Any = importlib.import_module("isal.igzip_lib")
    except ImportError:
        return _ZlibMember()
    return cast(_Member, igzip.IgzipDecompressor(flag=igzip.DECOMP_GZIP))


def _zstd_member() -> _Member:
    return cast(_Member, importlib.import_module("nccl_triage.ingest.zstd").ZstdMember())


class CompressionFormat(NamedTuple):
    """A compression format: how it begins, how to unpack one member, and the module that this needs."""

    name: str
    magic: re.Pattern[bytes]
    member: Callable[[], _Member]
    module: str | None = None

    def available(self) -> bool:
        """Tell whether the module that unpacks this format is installed."""
        return self.module is None or importlib.util.find_spec(self.module) is not None


FORMATS = (
    CompressionFormat("gzip", lazily(rb"\x1f\x8b\x08"), _gzip_member),
    CompressionFormat("xz", lazily(rb"\xfd7zXZ\x00"), lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)),
    CompressionFormat("bzip2", lazily(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), bz2.BZ2Decompressor),
    CompressionFormat("zstd", lazily(rb"(?s)\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), _zstd_member, "zstandard"),
)

#: What a member of a zip archive is packed with; the archive says so.
DEFLATE = CompressionFormat("zip", lazily(rb"(?!)"), lambda: _ZlibMember(-zlib.MAX_WBITS))

#: Errors of all decompressors; ZstdError and isal's error are subclasses of Exception only.
_DAMAGE = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


def detect(head: bytes) -> CompressionFormat | None:
    """Return the compression format of data that begin with ``head``, or None."""
    return next((known for known in FORMATS if known.magic.match(head)), None)


def _is_damage(error: Exception) -> bool:
    return isinstance(error, _DAMAGE) or type(error).__module__.split(".")[0] in ("zstandard", "igzip_lib")


def read_up_to(stream: Any, size: int) -> bytes:
    """Read ``size`` bytes, or fewer at the end, however small the pieces that a pipe delivers."""
    return b"".join(_pieces(stream, size))


def _pieces(stream: Any, size: int) -> Iterator[bytes]:
    read = stream.read1 if hasattr(stream, "read1") else stream.read
    while size > 0 and (part := read(size)):
        yield part
        size -= len(part)


class _Prefixed(io.RawIOBase):
    """Bytes that were read already, then the rest of a stream that cannot seek."""

    def __init__(self, head: bytes, rest: Any, close_rest: bool, error: OSError | None = None) -> None:
        self._head = head
        self._error = error
        self._rest = rest
        self._close_rest = close_rest
        self._read_rest = getattr(rest, "readinto1", None) or rest.readinto

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._head:
            size = min(len(buffer), len(self._head))
            buffer[:size] = self._head[:size]
            self._head = self._head[size:]
            return size
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return int(self._read_rest(buffer) or 0)

    def close(self) -> None:
        if not self.closed and self._close_rest:
            self._rest.close()
        super().close()


class Limited(io.RawIOBase):
    """Some bytes of a stream, from where it stands."""

    def __init__(self, raw: BinaryIO, size: int) -> None:
        self._raw, self._left = raw, size

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer; 0 at the end."""
        view = memoryview(buffer)[: self._left]
        size = cast(io.RawIOBase, self._raw).readinto(view) or 0
        self._left -= size
        return size

    def close(self) -> None:
        """Close the stream."""
        self._raw.close()
        super().close()


class Unpacked(io.RawIOBase):
    """The text inside a compressed stream, up to where the data end or are damaged."""

    def __init__(self, raw: io.RawIOBase | BinaryIO, form: CompressionFormat, problems: list[str]) -> None:
        self._raw: Any = raw
        self._form = form
        self._problems = problems
        self._member = form.member()
        self._input = memoryview(b"")
        self._pending = memoryview(b"")
        self._produced = 0
        self._done = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close the stream."""
        if not self.closed:
            self._raw.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer; 0 at the end."""
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view):
            if not self._pending:
                self._pending = memoryview(self._next(len(view) - filled))
                if not self._pending:
                    break
            size = min(len(self._pending), len(view) - filled)
            view[filled : filled + size] = self._pending[:size]
            self._pending = self._pending[size:]
            filled += size
        self._produced += filled
        return filled

    def _stop(self, problem: str | None) -> None:
        self._done = True
        if problem and problem not in self._problems:
            self._problems.append(problem)

    def _more_input(self) -> bool:
        if not self._input:
            self._input = memoryview(self._raw.read(_READ) or b"")
        return bool(self._input)

    def _next(self, limit: int) -> bytes:
        """Return some output, or nothing at the end."""
        while not self._done:
            piece = memoryview(b"")
            if self._member.needs_input:
                if not self._more_input():
                    self._stop(f"the {self._form.name} data ends early: {TRUNCATED}")
                    break
                piece, self._input = self._input[:_PIECE], self._input[_PIECE:]
            try:
                output = self._member.decompress(piece, limit)
            except Exception as error:
                if not _is_damage(error):
                    raise
                self._stop(f"the {self._form.name} data is damaged ({error}); the rest was not read")
                break
            if self._member.eof:
                self._next_member()
            if output:
                return output
        return b""

    def _next_member(self) -> None:
        """Begin the next member: rotated logs are often several in one file, some padded with zeros."""
        rest = self._member.unused_data + bytes(self._input)
        self._input = memoryview(rest.lstrip(b"\0"))
        while not self._input and (more := self._raw.read(_READ)):
            self._input = memoryview(more.lstrip(b"\0"))
        if not self._input:
            self._stop(None)
            return
        while len(self._input) < HEAD and (more := self._raw.read(_READ)):
            self._input = memoryview(bytes(self._input) + more)
        if self._form.magic.match(self._input):
            self._member = self._form.member()
        else:
            self._stop(f"what follows the {self._form.name} data is not {self._form.name} and was not read")


def open_stream(raw: BinaryIO, problems: list[str], *, close: bool = True) -> BinaryIO:
    """Return ``raw`` unpacked when it is compressed, else its bytes as they are.

    Truncation, damage and a missing module are appended to ``problems``; only errors of reading ``raw``
    itself (``OSError``) are raised. ``close=False`` leaves ``raw`` open when the result is closed.
    """
    start = raw.tell() if raw.seekable() else None
    head = read_up_to(raw, HEAD)
    form = detect(head)
    if form is None and start is not None and close:
        raw.seek(start)
        return raw
    if form is None:
        return put_back(head, raw, close=close)
    if not form.available():
        problem = f"{form.name}-compressed, and the Python module {form.module} is not installed"
        if problem not in problems:
            problems.append(problem)
        return io.BytesIO()
    return cast(BinaryIO, io.BufferedReader(Unpacked(_Prefixed(head, raw, close), form, problems), 1 << 16))


def put_back(head: bytes, stream: BinaryIO, *, close: bool = True, error: OSError | None = None) -> BinaryIO:
    """Return a stream that gives what was read of it again first; ``close=False`` leaves it open when that is closed.

    ``error`` is raised behind what was read, as it was when that was read first.
    """
    return cast(BinaryIO, io.BufferedReader(_Prefixed(head, stream, close, error), 1 << 16))


def look_ahead(stream: BinaryIO, size: int) -> tuple[bytes, BinaryIO]:
    """Return the first bytes of a stream, fewer where it ends or fails, and one that gives them again."""
    parts: list[bytes] = []
    failed = None
    try:
        for part in _pieces(stream, size):
            parts.append(part)
    except OSError as error:
        failed = error
    head = b"".join(parts)
    return head, put_back(head, stream, error=failed)
