"""Feed zstd frames to the decompressor one block at a time, so that output stays small and truncation shows.

``zstandard``'s stream reader ends silently where a file is cut off and drops what it had when data are
damaged; its decompression object has no output limit, and 64 KiB of input can hold gigabytes. A zstd block
unpacks to 128 KiB at most, so walking the block headers gives both exact ends and bounded memory.

Source: RFC 8878, sections 3.1.1 (frames) and 3.1.2 (skippable frames).
"""

from __future__ import annotations

import zstandard

#: ``(magic & mask) == value`` of frames that carry no text (pzstd writes one in front).
_SKIPPABLE_MASK = 0xFFFFFFF0
_SKIPPABLE = 0x184D2A50
_RLE_BLOCK = 1


class ZstdMember:
    """One frame, with the interface of ``lzma.LZMADecompressor`` as far as we use it.

    A call returns at most 128 KiB whatever ``max_length`` says. Raises ``zstandard.ZstdError`` when the data
    are damaged or need a window larger than zstandard allows.
    """

    def __init__(self) -> None:
        self.eof = False
        self.needs_input = True
        self.unused_data = b""
        self._input = bytearray()
        self._step = self._header
        self._object: zstandard.ZstdDecompressionObj | None = None
        self._has_checksum = False

    def decompress(self, data: bytes | memoryview, max_length: int = -1) -> bytes:
        """Take compressed bytes and return what the next complete block unpacks to, which may be nothing."""
        self._input += data
        while not self.eof:
            wanted = self._step()
            if wanted is None or len(self._input) < wanted:
                self.needs_input = True
                return b""
            output = self._feed(wanted)
            if output:
                self.needs_input = False
                return output
        return b""

    def _take(self, size: int) -> bytes:
        taken = bytes(self._input[:size])
        del self._input[:size]
        return taken

    def _feed(self, size: int) -> bytes:
        """Consume one element of the frame and move to what must follow it."""
        step, taken = self._step, self._take(size)
        if step == self._skippable:
            self._end()
            return b""
        if step == self._header:
            descriptor = taken[4]
            self._has_checksum = bool(descriptor >> 2 & 1)
            self._object = zstandard.ZstdDecompressor().decompressobj()
            self._step = self._block
        elif step == self._block and taken[0] & 1:
            self._step = self._checksum
        assert self._object is not None
        output = self._object.decompress(taken)
        if step == self._checksum or (self._step == self._checksum and not self._has_checksum):
            self._end()
        return output

    def _end(self) -> None:
        self.eof = True
        self.needs_input = False
        self.unused_data = bytes(self._input)
        self._input.clear()

    # Each of these returns the size of the element at the front, or None when that is not known yet.

    def _header(self) -> int | None:
        if len(self._input) < 5:
            return None
        magic = int.from_bytes(self._input[:4], "little")
        if magic & _SKIPPABLE_MASK == _SKIPPABLE:
            self._step = self._skippable
            return self._skippable()
        descriptor = self._input[4]
        single = descriptor >> 5 & 1
        content_size = (single, 2, 4, 8)[descriptor >> 6]
        dictionary = (0, 1, 2, 4)[descriptor & 3]
        return 5 + (1 - single) + dictionary + content_size

    def _skippable(self) -> int | None:
        if len(self._input) < 8:
            return None
        return 8 + int.from_bytes(self._input[4:8], "little")

    def _block(self) -> int | None:
        if len(self._input) < 3:
            return None
        header = int.from_bytes(self._input[:3], "little")
        return 3 + (1 if header >> 1 & 3 == _RLE_BLOCK else header >> 3)

    def _checksum(self) -> int | None:
        return 4
