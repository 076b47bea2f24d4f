"""Zip archives, as consoles and CI systems hand out logs: each member is a source of its own.

The list of the members is read once, by the standard library; a member is then unpacked where it lies.
"""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from nccl_triage.ingest.compression import DEFLATE, Limited, Unpacked, read_up_to
from nccl_triage.ingest.sniff import ZIP

#: Bytes of the list of members, and of all members unpacked: what overlaps in an archive can be any number of times as large.
MAX_LIST, MAX_UNPACKED = 4 << 20, 64 << 30
#: Signature, what is known from the list already, and the lengths of the name and of the extra field behind it.
_LOCAL = struct.Struct("<4s22xHH")
_ENCRYPTED = 1


class Member(NamedTuple):
    """A file in an archive, and where it lies there."""

    name: str
    start: int
    packed: int
    size: int
    deflated: bool

    def open(self, raw: BinaryIO, problems: list[str]) -> BinaryIO:
        """Return the bytes of the member of an archive; what is wrong with them is added to ``problems``."""
        raw.seek(self.start)
        head = read_up_to(raw, _LOCAL.size)
        signature, name, extra = _LOCAL.unpack(head) if len(head) == _LOCAL.size else (b"", 0, 0)
        if signature != ZIP:
            raw.close()
            problems.append("the zip data is damaged (no such file); the rest was not read")
            return io.BytesIO()
        raw.seek(self.start + _LOCAL.size + name + extra)
        packed = cast(BinaryIO, Limited(raw, self.packed))
        unpacked = cast(BinaryIO, Unpacked(packed, DEFLATE, problems)) if self.deflated else packed
        return cast(BinaryIO, io.BufferedReader(Limited(unpacked, self.size), 1 << 16))


class _Listed(io.FileIO):
    """An archive of which no more is read at once than a list of members may have."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > MAX_LIST:
            raise zipfile.BadZipFile("too many files")
        return super().read(size) or b""


def members(path: Path) -> tuple[list[Member], str | None]:
    """Return the files of an archive that can be read, and why not all; raises OSError."""
    try:
        with _Listed(path) as raw, zipfile.ZipFile(raw) as archive:
            infos, size = [info for info in archive.infolist() if not info.is_dir()], raw.seek(0, io.SEEK_END)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error):
        return [], "damaged or cut off"
    if sum(info.file_size for info in infos) > MAX_UNPACKED:
        return [], "an archive: unpack it first"
    found = [
        Member(info.filename, info.header_offset, info.compress_size, info.file_size, info.compress_type != 0)
        for info in infos
        if info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        and not info.flag_bits & _ENCRYPTED
        and 0 <= info.header_offset < size
    ]
    return found, None if len(found) == len(infos) else "an archive: unpack it first"
