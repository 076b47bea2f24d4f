"""Files and filtered logs are told by what they hold."""

from __future__ import annotations

import gzip
import io
import pickle
import random
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest

from nccl_triage.ingest import sniff
from nccl_triage.ingest.sniff import looks_filtered


def kind_of(folder: Path, data: bytes) -> str:
    path = folder / "x"
    path.write_bytes(data)
    return sniff.classify(path)[0]


def _tar() -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        member = tarfile.TarInfo("rank0.log")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"text\n"))
    return target.getvalue()


def _zip() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("rank0.log", "text\n")
    return target.getvalue()


def _number(_: bytes) -> str:
    """Name a case by its place: archives hold the time, and all workers must collect the same names."""
    return "case"


TEXT = b"step 1 loss 2.0\n" * 50


@pytest.mark.parametrize(
    "data",
    [
        TEXT,
        b"x",
        "训练失败\n".encode() * 40,
        "训练失败\n".encode("gbk") * 40,
        "caf\xe9\n".encode("latin-1") * 40,
        ("\ufeff" + "step 1 loss 2\n" * 40).encode("utf-16-le"),
        ("step 1 loss 2\n" * 40).encode("utf-16-be"),
        b"\x1b[36m(Actor pid=1)\x1b[0m x\x08\r\n" * 40,
        TEXT + b"\0" * 20 + TEXT,
        bytes(100_000) + TEXT,  # a hole, then text
        b"nohup: ignoring input\n" + bytes(100_000) + TEXT,
        gzip.compress(TEXT),
    ],
    ids=_number,
)
def test_text(tmp_path: Path, data: bytes) -> None:
    assert kind_of(tmp_path, data) == "text"


@pytest.mark.parametrize(
    "data",
    [
        random.Random(1).randbytes(5000),
        b"\x7fELF" + TEXT,
        b"\x89PNG\r\n\x1a\n" + TEXT,
        pickle.dumps({"entries": [{"state": "scheduled", "seq": n} for n in range(99)]}, protocol=2),
        bytes(range(256)) * 10,
        b"tensor\0\1\0\0\0\0\0\0\7data\0\0\0\0" * 20,
        bytes(9000),
        zlib.compress(random.Random(2).randbytes(5000)),
        gzip.compress(random.Random(3).randbytes(5000)),
    ],
    ids=_number,
)
def test_binary(tmp_path: Path, data: bytes) -> None:
    assert kind_of(tmp_path, data) == "binary"


@pytest.mark.parametrize("data", [_zip(), _tar(), gzip.compress(_tar()), b"7z\xbc\xaf\x27\x1c\0\4"], ids=_number)
def test_archives(tmp_path: Path, data: bytes) -> None:
    assert kind_of(tmp_path, data) == "archive"


def test_empty_files(tmp_path: Path) -> None:
    assert kind_of(tmp_path, b"") == "empty"
    assert kind_of(tmp_path, gzip.compress(b"")) == "empty"


def test_an_archive_of_which_nothing_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(TEXT)[:11])
    kind, why, _ = sniff.classify(path)
    assert (kind, why) == ("unreadable", "the gzip data ends early: the file is truncated")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sniff.classify(tmp_path / "none")


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (b'{"log":"x\\n","stream":"stderr","time":"2025-06-03T14:14:31Z"}', True),
        (b'{"asctime": "2025-06-03", "levelname": "INFO", "message": "step"}', True),
        (b'{"MESSAGE":"Xid 79","__REALTIME_TIMESTAMP":"1748960071123456"}', True),
        (b'{"prompt": "why?", "text": "because"}', False),
        (b'{"train_batch_size": 8}', False),
        (b"{", False),
        (b'["message", "level"]', False),
        (b"", False),
    ],
)
def test_json_logs_and_other_json(first: bytes, expected: bool) -> None:
    assert sniff.looks_like_json_log(first + b"\n{}\n") is expected


NCCL = [f"gpu07:4120:4388 [{n}] NCCL INFO Channel {n:02d}/32" for n in range(20)]


def test_lines_that_share_the_searched_word() -> None:
    assert looks_filtered(NCCL)
    assert looks_filtered(["[rank1]: RuntimeError: a", "ERROR b", "an error c"])


def test_separators_of_grep_do_not_count() -> None:
    assert looks_filtered([*NCCL, "--", *NCCL])


def test_one_other_line_is_enough_against() -> None:
    assert not looks_filtered([*NCCL, "step 1 loss 2.0"])


def test_a_blank_line_is_enough_against() -> None:
    """NCCL prints one before each WARN; grep would have dropped it."""
    assert not looks_filtered([*NCCL, "", *NCCL])


def test_a_traceback_is_enough_against() -> None:
    assert not looks_filtered([*NCCL, "Traceback (most recent call last): NCCL"])
    assert not looks_filtered([*NCCL, '  File "nccl.py", line 3, in f'])
    assert not looks_filtered([*NCCL, '[rank3]:   File "nccl.py", line 3, in f'])
    assert not looks_filtered([*NCCL, "frame #1: ncclAllReduce"])


def test_words_that_all_lines_of_a_program_share_do_not_count() -> None:
    assert not looks_filtered([f"2025-06-03 14:14:3{n} INFO [rank0] step {n}" for n in range(9)])


def test_a_few_lines_show_nothing() -> None:
    assert not looks_filtered([])
    assert not looks_filtered(NCCL[:2])
    assert looks_filtered(NCCL[:3])
