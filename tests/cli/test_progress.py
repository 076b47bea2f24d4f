"""Progress on stderr: a bar on terminals, a line now and then elsewhere, and never on stdout."""

from __future__ import annotations

import gzip
import io
import os
import pty
import sys
from pathlib import Path

import pytest

from nccl_triage import diagnose
from nccl_triage.cli import language, progress
from nccl_triage.ingest import watched
from tests.prefix_reading import find_sources

LINES = b"step 1/20 loss 5.1\n" * 15_000


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


class Terminal(io.StringIO):
    def __init__(self, terminal: bool = True) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def fileno(self) -> int:
        raise OSError


def test_a_bar_appears_after_a_second_and_is_removed(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with progress.Progress(False) as shown:
        shown.bytes(10, 100)
        assert terminal.getvalue() == ""
        clock.now += 1.5
        shown.bytes(50_000_000, 100_000_000)
        first = terminal.getvalue()
        shown.bytes(50_000_001, 100_000_000)  # too soon for another state
        assert terminal.getvalue() == first
        clock.now += 0.5
        shown.bytes(75_000_000, 100_000_000)
    text = "reading [############------------] 50 %  50 MB of 100 MB  33 MB/s  0:01 left"
    assert first == f"\r{text}"
    last = "\r" + " " * len(terminal.getvalue().split("\r")[2]) + "\r"
    assert terminal.getvalue().endswith(last)


def test_lines_now_and_then_without_a_terminal(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal(terminal=False))
    with progress.Progress(False) as shown:
        for _ in range(130):
            clock.now += 0.5
            shown.bytes(int(clock.now * 1e6), 1_000_000_000)
    assert stream.getvalue().splitlines() == [
        "nccl-triage: read 130 MB of 1.0 GB (13 %), 4.3 MB/s, 3:20 left",
        "nccl-triage: read 160 MB of 1.0 GB (16 %), 2.7 MB/s, 5:15 left",
    ]


def test_a_second_reading_has_a_speed_of_its_own(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal(terminal=False))
    with progress.Progress(False) as shown:
        for done in (0, 900_000_000, 0, 50_000_000):
            clock.now += 40
            shown.bytes(done, 1_000_000_000)
    assert stream.getvalue().splitlines()[-1] == "nccl-triage: read 50 MB of 1.0 GB (5 %), 1.2 MB/s, 12:40 left"


def test_the_good_run_is_read_with_progress(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.log", tmp_path / "bad.log"
    good.write_bytes(LINES)
    bad.write_bytes(LINES[: len(LINES) // 2])
    told: list[tuple[int, int | None]] = []
    diagnose(bad, baseline=good, progress=lambda done, total: told.append((done, total)), model=None)
    assert list(dict.fromkeys(total for _, total in told)) == [len(LINES), len(LINES) // 2]
    assert (len(LINES), len(LINES)) in told


def test_quiet_and_no_progress(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    with progress.Progress(True) as shown:
        clock.now += 100
        shown.bytes(1, 2)
    monkeypatch.setattr(
        progress.base, "remembered", lambda name, default=None: False if name == "progress" else default
    )
    with progress.Progress(False) as shown:
        clock.now += 100
        shown.bytes(1, 2)
    assert stream.getvalue() == ""


def test_a_terminal_that_goes_away_is_nobodys_problem(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    with progress.Progress(False) as shown:
        clock.now += 2
        shown.bytes(1, 2)
        clock.now += 2
        shown.bytes(2, 2)


def test_states() -> None:
    assert progress.state(0, 1000, 2.0, 80) == "reading [------------------------] 0 %  0 B of 1.0 kB  0 B/s  ? left"
    assert progress.state(500, None, 2.0, 80) == "read 500 B, 250 B/s"
    assert progress.state(5000, 4000, 2.0, None) == "read 5.0 kB, 2.5 kB/s"  # the file has grown meanwhile
    assert progress.state(500, 1000, 7200.0, None) == "read 500 B of 1.0 kB (50 %), 0 B/s, 2:00:00 left"
    for room in (10, 20, 40, 60, 80, 200):
        assert language.columns(progress.state(500, 1000, 2.0, room)) < room
    assert progress.state(500, 1000, 2.0, 60).startswith("reading 50 %  500 B of")
    assert progress.state(500, 1000, 2.0, 12) == "50 %"


def test_states_in_chinese() -> None:
    language.use("zh")
    try:
        shown = progress.state(50_000_000, 100_000_000, 2.0, 80)
        assert shown == "正在读取 [############------------] 50%  50 MB / 100 MB  25 MB/秒  剩余 0:02"
        assert language.columns(shown) < 80
    finally:
        language.use("en")


def test_compressed_files_count_as_they_lie(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.log", tmp_path / "b.log.gz"
    plain.write_bytes(LINES)
    packed.write_bytes(gzip.compress(LINES))
    total = plain.stat().st_size + packed.stat().st_size
    for jobs in (1, 2):
        told: list[tuple[int, int | None]] = []
        diagnose([plain, packed], progress=lambda done, of: told.append((done, of)), jobs=jobs)  # noqa: B023
        assert {of for _, of in told} == {total}
        assert told[-1][0] == max(done for done, _ in told) == total


def test_reading_is_told_while_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(LINES)
    told: list[int] = []
    diagnose(path, progress=lambda done, of: told.append(done))
    assert len({done for done in told if 0 < done < len(LINES)}) > 1


def test_of_a_pipe_nobody_knows_the_size() -> None:
    told: list[tuple[int, int | None]] = []
    diagnose("-", stdin=io.BytesIO(LINES), progress=lambda done, of: told.append((done, of)))
    assert {of for _, of in told} == {None}
    assert told[-1][0] == len(LINES)


def test_watched_streams_give_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(LINES))
    (source,), _ = find_sources([str(path)], None)
    seen: list[int] = []
    with source.open(watched.Watch(seen.append)) as stream:
        assert stream.read() == LINES
    assert sum(seen) >= path.stat().st_size
    with source.open() as stream:
        assert stream.read() == LINES
    assert watched.listen(io.BytesIO(b"abc"), watched.Watch(seen.append)).read() == b"abc"


def test_nothing_of_it_is_on_stdout(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(LINES * 3)
    reader, writer = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        os.dup2(writer, 1)
        program = "from nccl_triage.cli import main, progress\nprogress.DELAY = progress.REFRESH = 0.0\nmain()"
        os.execv(sys.executable, [sys.executable, "-c", program, str(path)])
    os.close(writer)
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break
    with os.fdopen(reader, "rb") as stream:
        result = stream.read()
    os.close(terminal)
    assert os.waitpid(pid, 0)[1] == 0
    assert b"\rreading [#" in shown
    assert b"\r" not in result
    assert b"reading" not in result
