"""Each log in a zip archive is a source of its own; what is wrong with an archive is told."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from nccl_triage import diagnose
from nccl_triage.engine import load
from nccl_triage.errors import InputError
from nccl_triage.ingest import archives
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.ingest.sources import Source, find_sources

TEXT = b"[rank0]: step 1\n[rank0]: ValueError: boom\n"


def _zip(path: Path, files: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def _found(path: Path) -> tuple[list[Source], list[str]]:
    return find_sources([str(path)], None, names=LayoutReader(load.load().layouts))


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_sources(tmp_path: Path, kind: int) -> None:
    files = {
        "logs/rank0.log": TEXT,
        "logs/rank1.log.gz": gzip.compress(TEXT * 2),
        "model.pt": b"\0\1" * 99,
        "empty.log": b"",
    }
    sources, notes = _found(_zip(tmp_path / "a.zip", files, kind))
    assert [(s.path, s.info.rank) for s in sources] == [(f"{tmp_path}/a.zip/logs/rank0.log", 0), (f"{tmp_path}/a.zip/logs/rank1.log.gz", 1)]  # fmt: skip
    assert all(source.rereadable and source.only_whole() for source in sources)
    assert [source.open().read() for source in sources] == [TEXT, TEXT * 2]
    assert len(notes) == 2


def test_an_archive_is_diagnosed(tmp_path: Path) -> None:
    found = diagnose(_zip(tmp_path / "a.zip", {"train.log": TEXT})).to_dict()
    assert found["diagnoses"][0]["cause"] == "application-exception"
    assert found["excerpts"][0]["path"].endswith("a.zip/train.log")


def test_a_damaged_archive_is_told(tmp_path: Path) -> None:
    whole = _zip(tmp_path / "a.zip", {"train.log": TEXT}).read_bytes()
    for number, data in enumerate((whole[:60], b"PK\x03\x04" + b"\0" * 100)):
        (tmp_path / f"{number}.zip").write_bytes(data)
        with pytest.raises(InputError, match="no readable input"):
            _found(tmp_path / f"{number}.zip")
    (tmp_path / "b.zip").write_bytes(b"XX" + whole[2:])
    told: list[str] = []
    with (tmp_path / "b.zip").open("rb", buffering=0) as raw:
        assert archives.members(tmp_path / "b.zip")[0][0].open(raw, told).read() == b""
    assert told == ["the zip data is damaged (no such file); the rest was not read"]


def test_no_flipped_byte_raises(tmp_path: Path) -> None:
    whole = _zip(tmp_path / "a.zip", {"train.log": TEXT * 20}).read_bytes()
    for at in range(len(whole)):
        path = tmp_path / "b.zip"
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        for member in archives.members(path)[0]:
            with path.open("rb", buffering=0) as raw:
                assert len(member.open(raw, []).read()) <= member.size


def test_a_list_that_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _zip(tmp_path / "a.zip", {f"{n}.log": TEXT for n in range(50)})
    monkeypatch.setattr(archives, "MAX_LIST", 1000)
    assert archives.members(path)[0] == []
    monkeypatch.undo()
    monkeypatch.setattr(archives, "MAX_UNPACKED", 1000)
    assert archives.members(path) == ([], "an archive: unpack it first")


def test_no_more_is_unpacked_than_the_list_says(tmp_path: Path) -> None:
    path = _zip(tmp_path / "a.zip", {"train.log": b"\n" * 5_000_000})
    (member,), _ = archives.members(path)
    with path.open("rb", buffering=0) as raw:
        assert len(member._replace(size=100).open(raw, []).read()) == 100
