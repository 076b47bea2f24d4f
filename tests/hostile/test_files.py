"""Files that are no files, that grow, shrink and vanish while they are read, and names that mean to do harm."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest

from nccl_triage import diagnose
from nccl_triage.errors import InputError
from tests.hostile.trials import ERROR, failing
from tests.prefix_reading import find_sources

LOG = b"".join(failing(3))


def test_a_folder_of_traps_is_read_for_its_log(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(LOG)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "away").symlink_to("/nowhere/at/all")
    (tmp_path / "null.log").symlink_to("/dev/zero")
    (tmp_path / "tty.log").symlink_to("/dev/tty")
    (tmp_path / "memory.log").symlink_to("/proc/self/mem")
    os.mkfifo(tmp_path / "fifo.log")
    found, notes = find_sources([str(tmp_path)], None)
    assert [source.file for source in found] == [tmp_path / "job.log"]
    told = "\n".join(notes)
    assert "a link back to a folder above it" in told
    assert "1 file (a pipe, socket or device)" in told
    assert "4 files (links that lead out of the folder" in told
    assert all(name in told for name in ("self", "away", "memory.log", "null.log", "tty.log"))
    found, notes = find_sources([str(tmp_path)], None, links=True)
    assert [source.file for source in found] == [tmp_path / "job.log"]
    told = "\n".join(notes)
    assert "3 files (a pipe, socket or device)" in told
    assert "1 file (kernel files, not logs)" in told


def test_names_cannot_reach_a_terminal_or_another_folder(tmp_path: Path) -> None:
    for name in (b"\x1b[2Jrank0.log", b"..\xff..%2f..rank1.log", b"a\nb rank2.log", "\u202egol.txt".encode()):
        (tmp_path / os.fsdecode(name)).write_bytes(LOG)
    (tmp_path / "$(touch pwned) `id`.log").write_bytes(LOG)
    (tmp_path / "-oProxyCommand=x.log").write_bytes(LOG)
    document = diagnose(tmp_path).to_dict()
    paths = [item["path"] for item in document["inputs"]]
    assert len(paths) == 6
    assert all(path.isprintable() for path in paths)
    assert not (tmp_path / "pwned").exists()


class Changing(io.RawIOBase):
    """A stream that does something between reads: what a file on a shared disk goes through."""

    def __init__(self, pieces: list[bytes | OSError]) -> None:
        self._pieces = pieces

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        if not self._pieces:
            return 0
        piece = self._pieces.pop(0)
        if isinstance(piece, OSError):
            raise piece
        buffer[: len(piece)] = piece  # type: ignore[index]
        return len(piece)


def test_a_disk_that_fails_gives_what_was_read() -> None:
    stream = Changing([LOG, OSError(116, "Stale file handle"), b"never read\n"])
    document = diagnose("-", stdin=stream).to_dict()  # type: ignore[arg-type]
    assert document["diagnoses"]
    assert document["inputs"][0]["problems"] == ["reading stopped: Stale file handle"]


def test_a_file_that_shrinks_grows_and_vanishes_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(LOG * 2000)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            os.truncate(path, 700)
            with path.open("ab") as stream:
                stream.write(LOG * 500)

    writer = threading.Thread(target=change)
    writer.start()
    try:
        document = diagnose(path).to_dict()
    finally:
        stop.set()
        writer.join()
    assert document["diagnoses"]
    gone = find_sources([str(path)], None)[0][0]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        gone.open()


def test_a_file_that_vanishes_between_finding_and_reading_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nccl_triage.execution import engines
    from nccl_triage.ingest import sources

    (tmp_path / "a.log").write_bytes(LOG)
    (tmp_path / "b.log").write_bytes(ERROR % (7, 7))

    def finding(*given: object, **more: object) -> object:
        found = sources.find_sources(*given, **more)  # type: ignore[arg-type]
        (tmp_path / "b.log").unlink()
        return found

    monkeypatch.setattr(engines, "find_sources", finding)
    document = diagnose(tmp_path).to_dict()
    assert document["diagnoses"]
    assert ["cannot be read: No such file or directory"] in [item["problems"] for item in document["inputs"]]


def test_a_device_is_refused() -> None:
    with pytest.raises(InputError):
        find_sources(["/dev/zero"], None)


def test_dumps_of_the_flight_recorder_are_never_unpickled(tmp_path: Path) -> None:
    """A pickle runs what it names: ours, if anybody loaded it, would leave a file behind."""
    trap = tmp_path / "trap"
    code = f"cos\nsystem\n(S'touch {trap}'\ntR.".encode()
    dump = b"\x80\x02}(X\x07\0\0\0versionX\x04\0\0\x002.10X\x09\0\0\0pg_config"
    for name in ("nccl_trace_rank_0", "nccl_trace_rank_1.pkl", "rank_2.log"):
        (tmp_path / name).write_bytes(code)
        (tmp_path / f"fr_{name}").write_bytes(dump + code)
    (tmp_path / "job.log").write_bytes(LOG)
    assert diagnose(tmp_path).to_dict()["diagnoses"]
    assert not trap.exists()
