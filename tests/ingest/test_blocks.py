from __future__ import annotations

import io
import random
import tracemalloc

import pytest

from nccl_triage.ingest.blocks import CUT_MARK, BlockReader, LineBlock
from nccl_triage.ingest.decode import LineReader
from nccl_triage.observations.store import SourceInfo

from .helpers import Pieces, Repeated


def blocks_of(stream: object, max_line: int = 64, block: int = 256) -> tuple[list[LineBlock], SourceInfo]:
    info = SourceInfo(path="x")
    if isinstance(stream, bytes):
        stream = io.BytesIO(stream)
    return list(BlockReader(stream, info, max_line, block)), info  # type: ignore[arg-type]


def test_blocks_are_the_stream_cut_at_newlines() -> None:
    data = b"".join(b"line %d\n" % number for number in range(1000))
    blocks, info = blocks_of(data)
    assert len(blocks) > 10
    assert b"".join(block.data for block in blocks) == data
    assert all(block.data.endswith(b"\n") for block in blocks)
    assert (info.bytes, info.lines, info.tail_cut, info.problems) == (len(data), 1000, False, [])


def test_each_block_knows_its_first_line_and_its_offset() -> None:
    data = b"".join(b"%s\n" % (b"x" * (number % 60)) for number in range(700))
    for block in blocks_of(data)[0]:
        assert data[block.offset : block.offset + len(block.data)] == block.data
        assert block.first_line == 1 + data.count(b"\n", 0, block.offset)


def test_any_division_into_reads_gives_the_same_lines() -> None:
    chance = random.Random(5)
    data = b"".join(b"n%d %s\r\n" % (i, b"y" * chance.randrange(50)) for i in range(400)) + b"the end"
    whole = b"".join(block.data for block in blocks_of(data)[0])
    for seed in range(20):
        chance = random.Random(seed)
        pieces, at = [], 0
        while at < len(data):
            size = chance.choice((1, 2, 3, 17, 100, 300))
            pieces.append(data[at : at + size])
            at += size
        found, info = blocks_of(Pieces(pieces))
        assert b"".join(block.data for block in found) == whole == data
        assert (info.lines, info.tail_cut) == (401, True)


def test_a_pipe_is_passed_on_as_it_comes() -> None:
    """A log that is being written is shown without waiting for a full buffer."""
    seen: list[str] = []

    def writer() -> object:
        for number in range(3):
            seen.append(f"written {number}")
            yield b"line %d\n" % number

    for block in BlockReader(Pieces(writer()), SourceInfo("x")):  # type: ignore[arg-type]
        seen.append(block.data.decode().strip())
    assert seen == ["written 0", "line 0", "written 1", "line 1", "written 2", "line 2"]


def test_an_over_long_line_keeps_its_beginning_and_its_end() -> None:
    data = b"before\nSTART" + b"-" * 5000 + b"FINISH\nafter\n"
    blocks, info = blocks_of(data)
    lines = b"".join(block.data for block in blocks).split(b"\n")
    assert [lines[0], lines[2], lines[3]] == [b"before", b"after", b""]
    assert lines[1].startswith(b"START---") and lines[1].endswith(b"---FINISH") and CUT_MARK in lines[1]
    assert len(lines[1]) == 64 + len(CUT_MARK)
    assert info.problems == ["1 line longer than 64 bytes: beginning and end kept, middle removed"]
    after = next(block for block in blocks if block.data.startswith(b"after"))
    assert (after.first_line, after.offset) == (3, data.index(b"after"))


@pytest.mark.parametrize("length", [63, 64, 65, 100, 191, 192, 193, 256, 257, 1000])
def test_lines_are_cut_only_beyond_the_limit(length: int) -> None:
    blocks, info = blocks_of(b"a\n" + b"x" * length + b"\nb\n")
    lines = b"".join(block.data for block in blocks).split(b"\n")
    assert (lines[0], lines[2]) == (b"a", b"b")
    assert (lines[1] == b"x" * length) == (length <= 64) == (not info.problems)


def test_cutting_splits_no_character() -> None:
    data = "训".encode() * 200 + b"\n"
    for shift in range(4):
        blocks, _ = blocks_of(b"x" * shift + data)
        text = b"".join(block.data for block in blocks).decode("utf-8")  # raises on a split character
        assert set(text) <= set("x训\n" + CUT_MARK.decode())


def test_a_line_of_100_megabytes_takes_little_memory() -> None:
    info = SourceInfo(path="x")
    stream = Repeated(b"abcdefgh", 100_000_000, end=b"RuntimeError: at the end\nnext\n")
    tracemalloc.start()
    try:
        lines = list(LineReader(stream, info))  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16e6
    assert [line.number for line in lines] == [1, 2]
    assert lines[0].text.startswith("abcdefgh") and lines[0].text.endswith("RuntimeError: at the end")
    assert lines[1].text == "next"
    assert lines[1].offset == 100_000_000 + len("RuntimeError: at the end\n")
    assert (info.bytes, info.lines) == (100_000_030, 2)
    assert info.problems == ["1 line longer than 65536 bytes: beginning and end kept, middle removed"]


def test_100_megabytes_of_nul_bytes_take_little_memory() -> None:
    """A log truncated by copying, while its writer kept its position, begins with a hole."""
    info = SourceInfo(path="x")
    stream = Repeated(b"\0", 100_000_000, end=b"first\nsecond\n")
    tracemalloc.start()
    try:
        lines = list(LineReader(stream, info))  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16e6
    assert [(line.number, line.text) for line in lines] == [(1, "first"), (2, "second")]
    assert lines[1].offset == 100_000_006
    assert info.problems == ["100000000 NUL bytes removed"]


def test_a_redrawn_line_is_cut_behind_a_carriage_return() -> None:
    data = b"first\n" + b"".join(b"state %04d\r" % number for number in range(200)) + b"done\nlast\n"
    blocks, info = blocks_of(data)
    assert b"".join(block.data for block in blocks) == data
    assert not info.problems
    assert {block.first_line for block in blocks if block.data.startswith(b"state")} == {2}
    assert max(len(block.data) for block in blocks) <= 256


def test_crlf_is_never_torn_apart() -> None:
    for width in range(40, 65):
        data = (b"x" * width + b"\r\n") * 50
        blocks, _ = blocks_of(data)
        assert b"".join(block.data for block in blocks) == data
        assert not any(block.data.startswith(b"\n") for block in blocks)


def test_nul_bytes_are_left_out_and_offsets_stay_true() -> None:
    data = b"one\n\0\0two\0\nthree\n\0\0\0four\nfive\n"
    blocks, info = blocks_of(data)
    assert b"".join(block.data for block in blocks) == data.replace(b"\0", b"")
    assert info.problems == ["6 NUL bytes removed"]
    lines = list(LineReader(io.BytesIO(data), SourceInfo("x")))
    found = {line.text: line.offset for line in lines}
    assert found == {
        "one": 0,
        "two": data.index(b"\0\0two"),
        "three": data.index(b"three"),
        "four": data.index(b"\0\0\0four"),
        "five": data.index(b"five"),
    }


def test_offsets_stay_true_whatever_is_left_out() -> None:
    """Against the plain definition: a line begins behind the newline before it."""
    for seed in range(60):
        chance = random.Random(seed)
        rows = []
        for _ in range(40):
            row = bytearray(b"z" * chance.choice((0, 5, 30, 64, 65, 300, 900)))
            for _ in range(chance.choice((0, 0, 0, 1, 3))):
                row.insert(chance.randrange(len(row) + 1), 0)
            rows.append(bytes(row))
        data = b"\n".join(rows) + b"\n"
        starts = [0]
        for row in rows[:-1]:
            starts.append(starts[-1] + len(row) + 1)
        cuts = [data[at : at + 37] for at in range(0, len(data), 37)]
        for stream in (io.BytesIO(data), Pieces(cuts)):
            lines = list(LineReader(stream, SourceInfo("x"), max_line=64, block=256))  # type: ignore[arg-type]
            assert [line.number for line in lines] == list(range(1, 41))
            assert [line.offset for line in lines] == starts, seed


def test_an_error_while_reading_ends_the_stream_with_a_problem() -> None:
    def failing() -> object:
        yield b"kept\n"
        raise OSError(5, "Input/output error")

    blocks, info = blocks_of(Pieces(failing()))  # type: ignore[arg-type]
    assert [block.data for block in blocks] == [b"kept\n"]
    assert info.problems == ["reading stopped: Input/output error"]


def test_problems_are_told_when_the_reader_is_left_early() -> None:
    info = SourceInfo(path="x")
    reader = iter(BlockReader(io.BytesIO(b"a\0\n" * 1000), info, 64, 256))
    next(reader)
    reader.close()  # type: ignore[attr-defined]
    assert len(info.problems) == 1 and "NUL" in info.problems[0]


def test_a_limit_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="max_line"):
        BlockReader(io.BytesIO(), SourceInfo("x"), max_line=4)


def test_an_empty_stream_has_no_blocks() -> None:
    assert blocks_of(b"") == ([], SourceInfo(path="x"))


def test_readers_that_are_at_work_together_share_no_buffer() -> None:
    logs = [b"".join(b"%d: line %d\n" % (log, number) for number in range(90)) for log in range(6)]
    for _ in range(3):  # the buffers of the first ones serve the next
        readers = [iter(BlockReader(io.BytesIO(log), SourceInfo(path="x"), 64, 256)) for log in logs]
        found = [b"" for _ in logs]
        while any(block := [next(reader, None) for reader in readers]):
            for number, one in enumerate(block):
                found[number] += one.data if one is not None else b""
        assert found == logs
