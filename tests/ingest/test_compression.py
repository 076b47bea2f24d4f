from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from nccl_triage.ingest import compression
from nccl_triage.ingest.compression import FORMATS, open_stream, read_up_to

from .helpers import Pieces

_CHANCE = random.Random(1)
TEXT = b"".join(b"step %d loss %.6f\n" % (number, _CHANCE.random()) for number in range(60_000))


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data)


def _zstd_plain(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3, write_checksum=False, write_content_size=False).compress(data)


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "zstd": _zstd,
}


@pytest.fixture(params=["isal", "zlib"])
def gzip_module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to unpack gzip; None in sys.modules makes an import fail."""
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "isal.igzip_lib", None)
    return str(request.param)


def unpack(data: bytes | io.RawIOBase) -> tuple[bytes, list[str]]:
    problems: list[str] = []
    raw: Any = io.BytesIO(data) if isinstance(data, bytes) else data
    with open_stream(raw, problems) as stream:
        return stream.read(), problems


def common_length(one: bytes, two: bytes) -> int:
    """Return how many bytes two texts begin with in common."""
    size = min(len(one), len(two))
    return next((at for at in range(size) if one[at] != two[at]), size)


def test_the_fallback_is_really_another_one(gzip_module: str) -> None:
    member = compression._gzip_member()
    assert isinstance(member, compression._ZlibMember) == (gzip_module == "zlib")


@pytest.mark.parametrize("name", PACK)
def test_each_format_is_unpacked(name: str) -> None:
    assert unpack(PACK[name](TEXT)) == (TEXT, [])


@pytest.mark.parametrize("name", PACK)
def test_a_pipe_that_delivers_little_is_unpacked(name: str) -> None:
    data = PACK[name](TEXT[:20_000])
    assert unpack(Pieces(data[at : at + 7] for at in range(0, len(data), 7))) == (TEXT[:20_000], [])


@pytest.mark.parametrize("name", PACK)
def test_archives_in_a_row_are_one_log(name: str) -> None:
    pack = PACK[name]
    assert unpack(pack(b"one\n") + pack(b"") + pack(TEXT) + pack(b"end\n")) == (
        b"one\n" + TEXT + b"end\n",
        [],
    )


@pytest.mark.parametrize("name", PACK)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])
def test_a_truncated_archive_gives_what_it_holds(name: str, share: float) -> None:
    packed = PACK[name](TEXT)
    found, problems = unpack(packed[: int(len(packed) * share)])
    assert TEXT.startswith(found)
    # bzip2 and zstd hold back one block each, 900 kB and 128 KiB.
    lost = {"bzip2": 900_000, "zstd": 131_072}.get(name, 40_000)
    assert len(found) >= len(TEXT) * share - lost
    assert problems == [f"the {name} data ends early: the file is truncated"]


def test_truncated_gzip_by_both_modules(gzip_module: str) -> None:
    packed = gzip.compress(TEXT)
    found, problems = unpack(packed[: len(packed) // 2])
    assert TEXT.startswith(found) and len(found) > 0.45 * len(TEXT)
    assert problems == ["the gzip data ends early: the file is truncated"]


def test_gzip_without_its_last_eight_bytes(gzip_module: str) -> None:
    """Checksum and length are missing, the text is whole."""
    assert unpack(gzip.compress(TEXT)[:-8]) == (TEXT, ["the gzip data ends early: the file is truncated"])


@pytest.mark.parametrize("name", PACK)
def test_a_damaged_archive_gives_what_comes_before(name: str) -> None:
    packed = bytearray(PACK[name](TEXT))
    middle = len(packed) // 2
    packed[middle : middle + 64] = bytes(255 - byte for byte in packed[middle : middle + 64])
    found, problems = unpack(bytes(packed))
    assert len(problems) == 1 and problems[0].startswith(f"the {name} data is damaged (")
    if name != "bzip2":  # its one block is lost as a whole
        assert common_length(found, TEXT) > 0.3 * len(TEXT)


def test_damaged_gzip_by_both_modules(gzip_module: str) -> None:
    packed = bytearray(gzip.compress(TEXT))
    middle = len(packed) // 2
    packed[middle : middle + 64] = bytes(255 - byte for byte in packed[middle : middle + 64])
    found, problems = unpack(bytes(packed))
    assert len(problems) == 1 and "damaged" in problems[0]
    assert common_length(found, TEXT) > 0.4 * len(TEXT)


@pytest.mark.parametrize("name", PACK)
def test_no_flipped_byte_raises(name: str) -> None:
    packed = PACK[name](TEXT[:5000])
    for at in range(0, len(packed), max(1, len(packed) // 150)):
        wrong = bytearray(packed)
        wrong[at] ^= 0x55
        found, _ = unpack(bytes(wrong))
        assert len(found) < 1_000_000


@pytest.mark.parametrize("name", PACK)
def test_what_follows_an_archive_is_told(name: str) -> None:
    found, problems = unpack(PACK[name](b"log\n") + b"appended by hand\n")
    assert found == b"log\n"
    assert problems == [f"what follows the {name} data is not {name} and was not read"]


@pytest.mark.parametrize("name", ["gzip", "xz", "bzip2"])
def test_zeros_behind_an_archive_are_padding(name: str) -> None:
    assert unpack(PACK[name](b"log\n") + bytes(512)) == (b"log\n", [])


@pytest.mark.parametrize("name", PACK)
def test_a_bomb_takes_little_memory(name: str) -> None:
    size = 300_000_000
    if name == "gzip":
        packer = zlib.compressobj(9, wbits=31)
        bomb = b"".join(packer.compress(bytes(10_000_000)) for _ in range(30)) + packer.flush()
    else:
        bomb = PACK[name](bytes(10_000_000)) * 30
    problems: list[str] = []
    buffer = bytearray(1 << 18)
    tracemalloc.start()
    try:
        total = 0
        with open_stream(io.BytesIO(bomb), problems) as stream:
            while found := stream.readinto(buffer):  # type: ignore[attr-defined]
                total += found
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == size and not problems
    assert peak < 16e6


def test_zstd_without_checksum_and_size() -> None:
    assert unpack(_zstd_plain(TEXT)) == (TEXT, [])
    assert unpack(_zstd_plain(b"")) == (b"", [])


def test_zstd_that_is_cut_before_its_checksum() -> None:
    found, problems = unpack(_zstd(TEXT)[:-2])
    assert (found, len(problems)) == (TEXT, 1)


def test_zstd_skippable_frames_are_skipped() -> None:
    """As pzstd writes them in front."""
    skip = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"\1\2\3\4"
    assert unpack(skip + _zstd(b"one\n") + skip + _zstd(b"two\n")) == (b"one\ntwo\n", [])


def test_zstd_frames_of_many_shapes() -> None:
    for size in (0, 1, 255, 256, 70_000, 300_000):
        for data in (bytes(size), random.Random(size).randbytes(size), TEXT[:size]):
            stored = zstandard.ZstdCompressor(level=19, write_content_size=bool(size % 2)).compress(data)
            assert unpack(stored) == (data, [])


def test_a_format_whose_module_is_missing_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression.CompressionFormat, "available", lambda self: self.name != "zstd")
    problems: list[str] = []
    for _ in range(2):
        assert open_stream(io.BytesIO(_zstd(b"x")), problems).read() == b""
    assert problems == ["zstd-compressed, and the Python module zstandard is not installed"]
    assert [form.module for form in FORMATS if form.module] == ["zstandard"]


@pytest.mark.parametrize(
    "text", [b"", b"B", b"BZh3 is the name of the job\n", b"\x1f", b"(Actor pid=1) x\n", b"plain\n"]
)
def test_text_is_passed_through(text: bytes) -> None:
    assert unpack(text) == (text, [])
    assert unpack(Pieces(bytes([byte]) for byte in text)) == (text, [])


def test_a_stream_that_can_seek_is_returned_itself() -> None:
    raw = io.BytesIO(b"skipped\nread")
    raw.seek(8)
    stream = open_stream(raw, [])
    assert stream is raw and stream.read() == b"read"


def test_the_stream_of_the_caller_can_stay_open() -> None:
    for data in (b"text", gzip.compress(b"text")):
        raw = io.BytesIO(data)
        with open_stream(raw, [], close=False) as stream:
            assert stream.read() == b"text"
        assert not raw.closed
        with open_stream(io.BytesIO(data), []) as stream:
            pass
        assert stream.closed


def test_the_file_is_closed_with_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"text"))
    raw = path.open("rb", buffering=0)
    with open_stream(raw, []) as stream:
        stream.read(2)
    assert raw.closed


def test_errors_of_reading_are_raised() -> None:
    def failing() -> Any:
        yield gzip.compress(TEXT)[:2000]
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        unpack(Pieces(failing()))


def test_read_up_to_collects_pieces() -> None:
    assert read_up_to(Pieces([b"a", b"bc", b"def"]), 4) == b"abcd"
    assert read_up_to(io.BytesIO(b"ab"), 4) == b"ab"
