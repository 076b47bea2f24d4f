"""Which encoding a log has, and reading the ones that are not UTF-8.

PowerShell and some Windows tools write UTF-16; programs on Chinese systems write GBK (a subset of GB18030).
Everything else is read as UTF-8, with bad bytes replaced and counted.
"""

from __future__ import annotations

import codecs
import io
from typing import Any

from nccl_triage.lazy_regex import lazily

#: Longer marks first: the mark of UTF-32-LE begins with that of UTF-16-LE.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
BOM = codecs.BOM_UTF8
#: Bytes wanted before the pattern of NULs says anything.
PATTERN_SAMPLE = 64
_READ = 1 << 17
#: Good UTF-8 bytes that cannot be chance.
_SURE = 24
_HIGH = bytes(range(128, 256))
_BAD = lazily("[\udc80-\udcff]")
_NON_ASCII = lazily("[^\x00-\x7f]+")
#: Punctuation, full-width forms and the blocks of progress bars: in GBK, not all of them in GB 2312.
_SYMBOLS = lazily("[\u2000-\u206f\u2500-\u25ff\u3000-\u303f\uff00-\uffef]+")


def wide_encoding(sample: bytes) -> str | None:
    """Return the name of the UTF-16 or UTF-32 encoding that a stream beginning with ``sample`` has, or None.

    Without a byte order mark the NULs decide: in UTF-16 every other byte of ASCII text is one.
    """
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    sample = sample[:4096]
    if len(sample) < 8:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = len(sample) // 2
    # A third, because half of a Chinese line may have no NUL; the other half must be (almost) free of them.
    if odd * 3 >= half and even * 50 <= half:
        return "utf-16-le"
    if even * 3 >= half and odd * 50 <= half:
        return "utf-16-be"
    return None


def needs_longer_sample(sample: bytes) -> bool:
    """Tell whether ``wide_encoding`` and the test for a mark need more bytes to be believed."""
    if len(sample) < 4:
        return sample[:1] in (b"", b"\xff", b"\xfe", b"\xef", b"\0") or b"\0" in sample
    return len(sample) < PATTERN_SAMPLE and b"\0" in sample


def decode_utf8(data: bytes) -> tuple[str, int]:
    """Decode UTF-8, a replacement character for each bad byte, and return the text and how many were bad."""
    try:
        return data.decode("utf-8"), 0
    except UnicodeDecodeError:
        return _BAD.subn("\ufffd", data.decode("utf-8", "surrogateescape"))


def guess_narrow(data: bytes) -> str | None:
    """Return "utf-8" or "gb18030" for data with bytes above 127, or None when there is too little to tell.

    GB18030 is chosen only when many such bytes are bad UTF-8, all of them are good GB18030, and nearly all
    its characters are common ones (GB 2312): Latin-1 text decodes as GBK too, but to rare characters. Many
    means a fifth, as up to half of the pairs of a short Chinese text happen to be good UTF-8.
    """
    high = len(data) - len(data.translate(None, _HIGH))
    bad = decode_utf8(data)[1]
    if bad * 5 < high:
        return "utf-8" if high - bad >= _SURE else None
    try:
        # Incremental, since the last character of a file that was cut off may be incomplete.
        text = codecs.getincrementaldecoder("gb18030")().decode(data)
    except UnicodeDecodeError:
        return None
    characters = _SYMBOLS.sub("", "".join(_NON_ASCII.findall(text)))
    common = len(characters.encode("gb2312", "ignore")) // 2
    return "gb18030" if len(characters) >= 2 and common >= 0.9 * len(characters) else None


class Transcoded(io.RawIOBase):
    """A UTF-16 or UTF-32 stream as UTF-8.

    ``replaced`` counts the characters that could not be decoded, ``consumed`` the bytes read.
    """

    def __init__(self, head: bytes, rest: Any, encoding: str) -> None:
        self.replaced = 0
        self.consumed = len(head)
        self._rest = rest
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._pending = memoryview(self._convert(head, False).removeprefix(BOM))
        self._ended = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def _convert(self, data: bytes, final: bool) -> bytes:
        text = self._decoder.decode(data, final)
        self.replaced += text.count("\ufffd")
        return text.encode("utf-8", "replace")

    def readinto(self, buffer: Any) -> int | None:
        """Fill the buffer with UTF-8; 0 at the end, None where a log that grows has no more yet."""
        while not self._pending and not self._ended:
            block = bytearray(_READ)
            size = self._rest(memoryview(block))
            if size is None:
                return None
            self.consumed += size
            self._ended = not size
            self._pending = memoryview(self._convert(bytes(block[:size]), self._ended))
        size = min(len(buffer), len(self._pending))
        buffer[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size
