r"""Lines that are JSON records: which of them can be searched as they lie.

Docker, log stores and structured loggers wrap a line as ``{"log": "...\n", "stream": "stderr", ...}``. Literals stand in it
as they stand in the line, unless the record has escapes: then it must be unpacked before anything can be said of it. The
newline at the end of a message is an escape that hides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage.lazy_regex import lazily

#: How a line begins that is a record.
STARTS = ('{"', "{ ", "{\t")
FIRST_BYTES = tuple(start.encode() for start in STARTS)
#: The same behind another line.
NEXT_BYTES = tuple(b"\n" + start for start in FIRST_BYTES)
_NEWLINE = b'\\n"'
_ESCAPE = lazily(rb'\\(?!n"|\\)|\\\\')


def hides(raw: bytes) -> bool:
    """Tell whether a line is a record with escapes, in which literals may be hidden."""
    return raw.startswith(FIRST_BYTES) and raw.count(b"\\") != raw.count(_NEWLINE)


def escapes(data: bytes) -> Iterator[int]:
    """Yield where escapes end that may hide something, in records and elsewhere."""
    if data.count(b"\\") != data.count(_NEWLINE):
        for found in _ESCAPE.finditer(data):
            yield found.end()
