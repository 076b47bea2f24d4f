"""What is added to a file or a pipe is read once, whatever becomes of the file meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nccl_triage.ingest import tail as tail_module
from nccl_triage.ingest.decode import LineReader
from nccl_triage.ingest.tail import FileTail, PipeTail
from nccl_triage.observations.store import SourceInfo


def read(tail: FileTail | PipeTail) -> bytes | None:
    """Return what has come; None where nothing has, and nothing has ended."""
    buffer, found = bytearray(16), b""
    while size := tail.readinto(buffer):
        found += buffer[:size]
    return found or (None if size is None else b"")


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(data)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_bytes(b"one\n")
    return path


def test_a_file_that_grows_is_read_once(log: Path) -> None:
    tail = FileTail(log)
    assert tail.look() == "grown"
    assert read(tail) == b"one\n"
    assert tail.look() == "none"
    assert read(tail) is None
    append(log, b"two and a line that is longer than the buffer\n")
    assert tail.look() == "grown"
    assert read(tail) == b"two and a line that is longer than the buffer\n"
    append(log, b"three\n")
    tail.ended = True
    assert read(tail) == b"three\n"
    assert read(tail) == b""


def test_few_files_stay_open(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "_MOST_HELD", 5)
    before = len(list(Path("/proc/self/fd").iterdir()))
    tails = [FileTail(log) for _ in range(20)]
    assert {read(tail) for tail in tails} == {b"one\n"}
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 5
    for tail in tails:
        tail.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_what_was_written_before_a_file_was_deleted_is_read(log: Path) -> None:
    tail = FileTail(log)
    read(tail)
    append(log, b"two\n")
    log.unlink()
    assert tail.look() == "gone"
    assert tail.has_more()
    assert read(tail) == b"two\n"
    assert not tail.has_more()


def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(log: Path) -> None:
    tail = FileTail(log)
    log.unlink()
    os.mkfifo(log)  # it may have the inode of the file
    assert read(tail) is None
    assert tail.look() in ("replaced", "cut")
    with pytest.raises(OSError, match="not a regular file"):
        FileTail(log)


def test_a_renamed_file_is_found_and_read_on(log: Path) -> None:
    tail = FileTail(log)
    read(tail)
    append(log, b"two\n")
    moved = log.rename(log.with_name("train.log.1"))
    assert tail.look() == "gone"
    log.write_bytes(b"of the new file\n")
    assert tail.look() == "replaced"
    assert read(tail) == b"two\n", "another file must not be read on"
    assert tail.moved() == moved
    tail.go_to(moved)
    append(moved, b"three\n")
    assert tail.look() == "grown"
    assert read(tail) == b"three\n"


def test_truncation_is_noticed_also_when_the_file_has_grown_again(log: Path) -> None:
    tail = FileTail(log)
    read(tail)
    log.write_bytes(b"")
    assert tail.look() == "cut"
    tail = FileTail(log)
    append(log, b"short\n")
    read(tail)
    with log.open("r+b") as stream:
        stream.truncate(0)
        stream.write(b"longer than before, and something else\n")
    assert tail.look() == "cut"


def test_a_copy_that_goes_on_is_the_same_log(log: Path) -> None:
    """As rsync writes: a new file with the old beginning takes the name."""
    tail = FileTail(log)
    read(tail)
    shutil.copy(log, log.with_name("temporary"))
    append(log.with_name("temporary"), b"two\n")
    log.with_name("temporary").rename(log)
    assert tail.look() == "grown"
    assert read(tail) == b"two\n"


def test_a_file_that_is_gone_and_one_that_never_was(log: Path) -> None:
    tail = FileTail(log)
    log.unlink()
    assert tail.look() == "gone"
    assert tail.moved() is None
    assert read(tail) is None
    tail.ended = True
    assert read(tail) == b""
    with pytest.raises(FileNotFoundError):
        FileTail(log)


def test_stop_reads_to_the_end_that_there_is_now(log: Path) -> None:
    tail = FileTail(log)
    tail.stop()
    append(log, b"too late\n")
    assert read(tail) == b"one\n"


def test_a_pipe_gives_what_it_has() -> None:
    reader, writer = os.pipe()
    tail = PipeTail(reader)
    assert read(tail) is None
    os.write(writer, b"one\n")
    assert read(tail) == b"one\n"
    assert read(tail) is None
    os.close(writer)
    assert read(tail) == b""
    os.close(reader)


def test_a_named_pipe_may_have_no_writer_yet(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    tail = PipeTail.named(path)
    assert read(tail) is None
    writer = os.open(path, os.O_WRONLY)
    assert read(tail) is None
    os.write(writer, b"one\n")
    os.close(writer)
    assert read(tail) == b"one\n"
    assert read(tail) == b""
    tail.close()


def test_a_bar_that_is_redrawn_for_hours_is_not_held_back() -> None:
    reader, writer = os.pipe()
    lines = LineReader(PipeTail(reader), SourceInfo("x"))  # type: ignore[arg-type]
    blocks = lines.iter_blocks()
    os.write(writer, b"begin\n 10%|# | 1/10 [00:01<00:09]\r 20%|## | 2/10 [00:02<00:08]\r 30%|### | 3")
    shown = [line.text for line in lines.lines(next(blocks))]
    shown += [line.text for line in lines.lines(next(blocks))]
    assert shown == ["begin", " 10%|# | 1/10 [00:01<00:09]"]
    assert [line.text for line in lines.held()] == [" 20%|## | 2/10 [00:02<00:08]"]
    assert next(blocks).data == b"", "there is no more yet"
    assert len(lines._reader._buffer) == 0, "of thousands of logs that wait none keeps its buffer"
    os.write(writer, b"/10 [00:03<00:07]\nend\n")
    os.close(writer)
    rest = [line.text for block in blocks for line in lines.lines(block)]
    assert rest == [" 30%|### | 3/10 [00:03<00:07]", "end"]
    os.close(reader)


def test_another_file_may_have_the_inode_of_one_that_is_gone(log: Path) -> None:
    """A rotated log is packed and removed, and the next one gets its inode: it is another log all the same."""
    tail = FileTail(log)
    log.write_bytes(b"step 1/9 loss 3.1\n" * 20)
    buffer = bytearray(1000)
    assert tail.readinto(buffer)
    assert tail.lies_at(log)
    log.unlink()
    log.write_bytes(b"step 2/9 loss 2.9\n" * 30)
    tail.key = FileTail(log).key
    assert not tail.lies_at(log)
    assert tail.moved() is None
