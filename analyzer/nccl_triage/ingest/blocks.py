"""Cut a byte stream into blocks of whole lines, in memory that does not grow with the input or its lines.

A block is UTF-8 (UTF-16 and GBK are converted), free of NUL bytes, of the byte order mark and of what lines got on their
way (``typesetting``), and ends where a line ends. A line that is only redrawn with carriage returns can be megabytes long; such a line is cut
behind a carriage return, and the next block goes on with the same line number. What has neither kind of end
within ``max_line`` bytes loses its middle.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, BinaryIO, NamedTuple

from nccl_triage.byte_search import Newlines
from nccl_triage.ingest import encodings
from nccl_triage.ingest.typesetting import undone
from nccl_triage.observations.store import SourceInfo

MAX_LINE = 65536
BLOCK = 262144
#: Stands for the middle of an over-long line.
CUT_MARK = b" [... cut ...] "


class LineBlock(NamedTuple):
    r"""Whole lines as UTF-8 bytes.

    ``first_line`` is the number (from 1) of the line that the block begins with: the line of position ``p``
    is ``first_line + data.count(b"\n", 0, p)``. ``offset`` is where the block begins in the (unpacked)
    stream; for UTF-16 in its UTF-8 form.
    """

    data: bytes
    first_line: int
    offset: int


#: Buffers of readers that have come to their end: of thousands of files each would cost its pages anew.
_spare: list[bytearray] = []
_MOST_SPARE = 4


def _buffer(size: int) -> bytearray:
    try:
        found = _spare.pop()
    except IndexError:
        return bytearray(size)
    return found if len(found) == size else bytearray(size)


class Problems:
    """What went wrong with a stream, counted while reading and told in ``SourceInfo.problems`` at the end."""

    def __init__(self, max_line: int) -> None:
        self.max_line = max_line
        self.bad_bytes = 0
        self.bad_characters = 0
        self.nuls = 0
        self.cut_lines = 0
        self.encoding: str | None = None
        self.failure: str | None = None

    def texts(self) -> list[str]:
        """Return the problems as sentences, the stable ones first."""
        found: list[str] = []
        if self.encoding:
            found.append(f"read as {self.encoding.upper()}")
        if self.bad_bytes:
            verb = "was" if self.bad_bytes == 1 else "were"
            found.append(f"{_count(self.bad_bytes, 'byte')} {verb} not valid UTF-8")
        if self.bad_characters:
            found.append(f"{_count(self.bad_characters, 'character')} could not be decoded")
        if self.nuls:
            found.append(f"{_count(self.nuls, 'NUL byte')} removed")
        if self.cut_lines:
            what = _count(self.cut_lines, "line")
            found.append(f"{what} longer than {self.max_line} bytes: beginning and end kept, middle removed")
        if self.failure:
            found.append(self.failure)
        return found


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _continues(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _shorten(line: bytes, limit: int) -> bytes:
    """Cut the middle out of a line; keep its end-of-line bytes and split no UTF-8 character."""
    body = line.rstrip(b"\r\n")
    end, start = limit // 2, len(body) - limit // 2
    # A character has three continuation bytes at most; more of them are no UTF-8 anyway.
    for _ in range(3):
        end -= _continues(body[end])
        start += _continues(body[start])
    return body[:end] + CUT_MARK + body[start:] + line[len(body) :]


class BlockReader:
    """Iterate the blocks of a stream once and fill ``bytes``, ``lines`` and ``tail_cut`` of ``info``.

    Errors of reading (``OSError``) end the stream and are told in ``info.problems``. A stream may say with None, as
    raw streams do, that it has no more yet: then comes an empty block, and the next one may bring more. A stream that is
    a later part of a log begins with its line ``first_line``.
    """

    def __init__(
        self,
        stream: BinaryIO,
        info: SourceInfo,
        max_line: int = MAX_LINE,
        block: int = BLOCK,
        first_line: int = 1,
    ) -> None:
        if max_line < 16:
            raise ValueError("max_line must be at least 16")
        self.info = info
        self.problems = Problems(max_line)
        self._max_line = max_line
        self._size = max(block, 2 * max_line + 64)
        self._buffer = bytearray()
        # One system call a read: a pipe that is being written hands over what it has.
        source: Any = stream
        self._source = getattr(source, "readinto1", None) or source.readinto
        self._wide: encodings.Transcoded | None = None
        self._narrow: str | None = None
        self._line = first_line
        self._newlines = Newlines()
        # (position in the buffer, bytes of the stream that are missing there)
        self._gaps: list[tuple[int, int]] = []
        self._told: list[str] = []

    def __iter__(self) -> Iterator[LineBlock]:
        """Yield the blocks in order."""
        try:
            yield from self._blocks()
        finally:
            self.tell()
            if len(_spare) < _MOST_SPARE and self._buffer:
                _spare.append(self._buffer)
            self._buffer = bytearray()  # of thousands of files, some readers wait for the collector of cycles

    def tell(self) -> None:
        """Write the problems into ``info``; again when blocks were decoded after the last one was read."""
        known = self.info.problems
        for text in self._told:
            known.remove(text)
        self._told = [text for text in self.problems.texts() if text not in known]
        known.extend(self._told)

    def _blocks(self) -> Iterator[LineBlock]:
        have, base = yield from self._start()
        buffer, view = self._buffer, memoryview(self._buffer)
        fresh, waits = 0, False
        while True:
            cut = buffer.rfind(b"\n", fresh, have)
            if cut < 0 and waits and have:
                # Progress bars may be redrawn for hours before their line ends.
                cut = buffer.rfind(b"\r", 0, have - 1)
            if cut < 0 and have == len(buffer):
                # Not the last byte, which may be the first half of "\r\n".
                cut = buffer.rfind(b"\r", 0, have - 1)
                if cut < 0:
                    have = self._squeeze(have)
            if cut >= 0:
                data = bytes(view[: cut + 1])
                gaps = [gap for gap in self._gaps if gap[0] <= cut]
                yield from self._split(data, base, gaps)
                base += len(data) + sum(size for _, size in gaps)
                self._gaps = [(at - cut - 1, size) for at, size in self._gaps[len(gaps) :]]
                view[: have - cut - 1] = bytes(view[cut + 1 : have])
                have -= cut + 1
            if waits:
                kept = bytes(view[:have])
                view.release()
                del buffer
                yield from self._wait(base)
                buffer, view = self._buffer, memoryview(self._buffer)
                view[:have] = kept
            fresh = have
            size = self._read(view[have:])
            waits = size is None
            if size == 0:
                break
            have += self._drop_nuls(have, size or 0)
        if have:
            yield from self._split(bytes(view[:have]), base, self._gaps)
            self.info.lines += 1
            self.info.tail_cut = True

    def _wait(self, base: int) -> Iterator[LineBlock]:
        """Say that there is no more yet; of thousands of logs that wait, none keeps its buffer."""
        self._buffer = bytearray()
        yield LineBlock(b"", self._line, base)
        self._buffer = bytearray(self._size)

    def _start(self) -> Generator[LineBlock, None, tuple[int, int]]:
        """Read the first bytes, decide about UTF-16; return how many are buffered and their offset."""
        self._buffer = _buffer(self._size)
        view = memoryview(self._buffer)
        have = 0
        while encodings.needs_longer_sample(bytes(view[:have])) and (size := self._read(view[have:])) != 0:
            have += size or 0
            if size is None:
                kept = bytes(view[:have])
                view.release()
                yield from self._wait(0)
                view = memoryview(self._buffer)
                view[:have] = kept
        sample = bytes(view[:have])
        wide = encodings.wide_encoding(sample)
        if wide:
            self.problems.encoding = wide
            self._wide = encodings.Transcoded(sample, self._source, wide)
            self._source = self._wide.readinto
            self.info.bytes = 0
            return 0, 0
        start = len(encodings.BOM) if sample.startswith(encodings.BOM) else 0
        if start:
            view[: have - start] = sample[start:]
        return self._drop_nuls(0, have - start), start

    def _read(self, into: memoryview) -> int | None:
        try:
            size: int | None = self._source(into)
        except OSError as error:
            self.problems.failure = f"reading stopped: {error.strerror or error}"
            size = 0
        if self._wide is None:
            self.info.bytes += size or 0
        else:
            self.info.bytes = self._wide.consumed
            self.problems.bad_characters = self._wide.replaced
        return size

    def _drop_nuls(self, at: int, size: int) -> int:
        """Remove NULs from freshly read bytes and return how many bytes are left."""
        if self._buffer.find(0, at, at + size) < 0:
            return size
        fresh = bytes(self._buffer[at : at + size])
        clean = fresh.translate(None, b"\0")
        self.problems.nuls += size - len(clean)
        self._buffer[at : at + len(clean)] = clean
        # One gap a line is exact: bytes lost in a line shift only the lines behind it.
        position = at
        for piece in fresh.split(b"\n"):
            lost = piece.count(0)
            if lost:
                self._gaps.append((position, lost))
            position += len(piece) - lost + 1
        return len(clean)

    def _squeeze(self, have: int) -> int:
        """Drop the middle of a line that fills the buffer and return how many bytes are left."""
        # Together more than max_line, so that the line counts as cut when its end is found.
        limit = self._max_line
        kept = bytes(self._buffer[:limit]) + bytes(self._buffer[have - limit // 2 : have])
        lost = have - len(kept) + sum(size for _, size in self._gaps)
        self._gaps = [(0, lost)]
        self._buffer[: len(kept)] = kept
        return len(kept)

    def _split(self, data: bytes, offset: int, gaps: list[tuple[int, int]]) -> Iterator[LineBlock]:
        """Yield ``data`` in pieces that begin at a known offset: behind each gap begins a new one."""
        start = 0
        for at, size in gaps:
            # Gaps of one line add up.
            if at >= start:
                stop = self._segment_end(data, at)
                yield from self._whole_lines(data[start:stop], offset + start)
                start = stop
            offset += size
        if start < len(data):
            yield from self._whole_lines(data[start:] if start else data, offset + start)

    def _whole_lines(self, data: bytes, offset: int) -> Iterator[LineBlock]:
        """Yield ``data``, over-long lines shortened in blocks of their own."""
        limit, start, at = self._max_line, 0, 0
        while len(data) - at > limit:
            end = max(data.rfind(b"\n", at, at + limit + 1), data.rfind(b"\r", at, at + limit + 1))
            if end >= 0:
                at = end + 1
                continue
            stop = self._segment_end(data, at + limit)
            if at > start:
                yield self._block(data[start:at], offset + start)
            if len(data[at:stop].rstrip(b"\r\n")) > limit:
                self.problems.cut_lines += 1
                yield self._block(_shorten(data[at:stop], limit), offset + at)
            else:
                yield self._block(data[at:stop], offset + at)
            start = at = stop
        if start < len(data):
            yield self._block(data[start:] if start else data, offset + start)

    @staticmethod
    def _segment_end(data: bytes, at: int) -> int:
        """Return the position behind the line end, or carriage return, that follows ``at``."""
        newline = data.find(b"\n", at)
        stop = len(data) if newline < 0 else newline
        redraw = data.find(b"\r", at, stop)
        if 0 <= redraw < stop - 1 or (redraw >= 0 and newline < 0):
            return redraw + 1
        return min(stop + 1, len(data))

    def _block(self, data: bytes, offset: int) -> LineBlock:
        if self._narrow is None and self._wide is None and not data.isascii():
            self._narrow = encodings.guess_narrow(data)
            if self._narrow == "gb18030":
                self.problems.encoding = "gb18030"
        block = LineBlock(undone(self._utf8(data)), self._line, offset)
        newlines = self._newlines.count(data, 0, len(data))
        self._line += newlines
        self.info.lines += newlines
        return block

    def _utf8(self, data: bytes) -> bytes:
        if self._narrow != "gb18030":
            return data
        text = data.decode("gb18030", "replace")
        self.problems.bad_characters += text.count("\ufffd")
        return text.encode("utf-8", "replace")
