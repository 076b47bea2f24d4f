"""The database under real trouble: many writers, full disks, files that are none, and data that nobody wrote so."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nccl_triage.errors import HistoryError
from nccl_triage.history import memory, store
from nccl_triage.history.incidents import Input, JobIdentity

from .made import NOW, failed, healthy

ROOT = Path(__file__).parents[2]


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "below" / "history.sqlite"
    one = failed(pci="3b:00", gpu=2, inputs=(Input("/logs/a.log", 100, 10, ("ab", "cd")),))
    assert store.readable(path) is None
    with store.writable(path) as history:
        number = history.keep(one)
        history.keep(healthy(0.5))
        assert history.incident(number) == replace(one, id=number)
        assert [found.verdict for found in history.incidents()] == ["healthy", "diagnosed"]
        assert [found.verdict for found in history.incidents(until=NOW - 80000)] == ["diagnosed"]
        assert history.forget([number, 999]) == 1
        assert history.incident(number) is None
    rest = sqlite3.connect(path)
    assert rest.execute("SELECT count(*) FROM culprit").fetchone() == (0,), "nothing of it stays behind"
    assert rest.execute("SELECT count(*) FROM input").fetchone() == (0,)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def log(*marks: str) -> Input:
    return Input("/logs/train.log", 0, 0, marks)


def test_the_same_log_counts_once_and_the_fuller_account_stays(tmp_path: Path) -> None:
    with store.writable(tmp_path / "history.sqlite") as history:
        first = history.keep(failed(inputs=(log("a", "b"),), lines=10, status="possible"))
        again = history.keep(failed(inputs=(log("a", "b", "c", "d"),), lines=40))
        assert again == first, "it grew"
        assert history.keep(failed(inputs=(log("a", "b"),), lines=10, status="possible")) == first
        assert [(found.lines, found.status) for found in history.incidents()] == [(40, "established")]
        other = history.keep(failed(inputs=(log("x", "y"),)))
        assert other != first
        assert history.same([log("a", "b", "c")]) == {first}
        assert history.same([log("q"), log()]) == set()


def test_another_id_or_name_is_another_job_whatever_its_logs_say(tmp_path: Path) -> None:
    one = failed(inputs=(log("a", "b"),))
    with store.writable(tmp_path / "history.sqlite") as history:
        for number in ("4711_1", "4711_2", "4711_2"):
            history.keep(replace(one, job_id=number))
        assert sorted(str(kept.job_id) for kept in history.incidents()) == ["4711_1", "4711_2"]
        assert history.same([log("a", "b")], JobIdentity(id="4711_9")) == set()
        assert len(history.same([log("a", "b")])) == 2, "nothing says that it is another one"
    with store.writable(tmp_path / "named.sqlite") as history:
        for name in ("nightly", "weekly", "nightly"):
            history.keep(replace(one, job=name))
        assert sorted(str(kept.job) for kept in history.incidents()) == ["nightly", "weekly"]


def test_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST", 3)
    with store.writable(tmp_path / "history.sqlite") as history:
        for days in (5, 1, 4, 2, 3):
            history.keep(failed(days=days))
        assert [round((NOW - one.happened) / 86400) for one in history.incidents()] == [1, 2, 3]


@pytest.fixture
def quick() -> Iterator[Path]:
    """Return a folder in memory where there is one: what is tested is who writes when, not the disk."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


def test_two_hundred_processes_write_at_once_and_none_waits_long(quick: Path) -> None:
    path = quick / "history.sqlite"
    children = []
    for number in range(200):
        child = os.fork()
        if not child:
            code = 1
            try:
                one = failed(host=f"gpu{number}", inputs=(log(f"mark-{number}"),))
                memory.keep(path, replace(one, recorded=NOW + number), timeout=0.05)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * 200
    with store.writable(path) as history:
        history.take_in()
        hosts = [one.culprits[0].host for one in history.incidents()]
    assert sorted(hosts, key=str) == sorted((f"gpu{number}" for number in range(200)), key=str)
    assert list(store.waiting_folder(path).glob("*")) == []
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_who_finds_it_busy_leaves_a_file_that_the_next_writer_takes_in(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with store.writable(path) as history:
        history.keep(failed(host="first"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    late = failed(host="late", days=2, pci="3b:00", inputs=(log("m", "n"),))
    memory.keep(path, late, timeout=0.01)
    other.execute("ROLLBACK")
    (file,) = store.waiting_folder(path).iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = file.read_bytes()
    for junk in (b"[]", b"{", b'{"hosts": 3}', b"null"):
        (store.waiting_folder(path) / f"{junk!r}.json".replace("/", "")).write_bytes(junk)
    memory.keep(path, failed(host="next", days=3))
    assert list(store.waiting_folder(path).iterdir()) == []
    file.write_bytes(again)  # as if that writer had been killed before it could remove the file
    memory.keep(path, failed(host="last", days=4))
    with store.readable(path) or pytest.fail("it is there") as history:
        found = history.incidents()
    assert [one.culprits[0].host for one in found] == ["first", "late", "next", "last"]
    assert replace(found[1], id=0, inputs=late.inputs) == late


_FILL = """
import resource, signal, sys
from pathlib import Path
from nccl_triage.errors import HistoryError
from nccl_triage.history import store
from tests.history.made import failed
path, room = Path(sys.argv[1]), int(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
kept = 0
try:
    for number in range(5000):
        with store.writable(path) as history:
            history.keep(failed(host=f"gpu{number}" * 40))
        kept += 1
except HistoryError as error:
    print(kept, error.message)
"""


@pytest.mark.parametrize("room", [0, 5000, 60_000])
def test_a_disk_without_room_is_said_and_what_was_kept_stays_readable(tmp_path: Path, room: int) -> None:
    path = tmp_path / "history.sqlite"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'analyzer'}"}
    command = [sys.executable, "-c", _FILL, str(path), str(room)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=True)
    kept, said = done.stdout.strip().split(" ", 1)
    assert "cannot be written" in said
    assert "disk" in said
    with store.readable(path) or pytest.fail("it is there") as history:
        assert len(history.incidents()) == int(kept)
    assert int(kept) > 0 or room < 60_000


def test_what_is_no_history_is_refused_and_not_touched(tmp_path: Path) -> None:
    good = tmp_path / "good.sqlite"
    with store.writable(good) as history:
        for days in range(60):
            history.keep(failed(days=days))
    data = good.read_bytes()
    (tmp_path / "text").write_text("this is a note that somebody wrote, and no database\n" * 20)
    (tmp_path / "half").write_bytes(data[: len(data) // 2])
    (tmp_path / "turned").write_bytes(data[:4096] + bytes(byte ^ 0x5A for byte in data[4096:]))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    for name in ("text", "half", "turned", "pipe", "folder", "circle"):
        path = tmp_path / name
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(HistoryError) as problem, store.writable(path) as history:
            history.keep(failed())
            history.incidents()
        assert str(path) in problem.value.message, name
        assert problem.value.remedy, name
        assert problem.value.lines("zh")[0].count("历史") == 1, name
        assert (path.read_bytes() if path.is_file() else b"") == before, name


def test_a_link_is_followed_and_what_it_makes_is_private(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target.sqlite")
    with store.writable(tmp_path / "link") as history:
        history.keep(failed())
    assert stat.S_IMODE((tmp_path / "target.sqlite").stat().st_mode) == 0o600
    assert (tmp_path / "link").is_symlink()


def test_one_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    path = tmp_path / "home" / "history.sqlite"
    with store.writable(path) as history:
        history.keep(failed())
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        with store.readable(path) or pytest.fail("it is there") as history:
            assert len(history.incidents()) == 1
            with pytest.raises(HistoryError, match="cannot be written: it may not be written"):
                history.keep(failed())
    finally:
        path.parent.chmod(0o700)


def test_a_writer_that_does_not_finish_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with store.writable(path) as history:
        history.keep(failed())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(HistoryError, match="other programs keep writing to it"):
        store.writable(path, timeout=0.1).keep(failed())
    other.execute("ROLLBACK")
    with store.writable(path) as history:
        history.keep(failed())


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE incident SET happened = 'yesterday'", "UPDATE incident SET happened = 9e99", "UPDATE incident SET hosts = '{'",
        "UPDATE incident SET software = '[1]'", "UPDATE culprit SET rank = 'first'", "UPDATE incident SET hosts = x'ff00fe'",
    ],
)  # fmt: skip
def test_values_that_nobody_writes_are_no_crash(tmp_path: Path, change: str) -> None:
    path = tmp_path / "history.sqlite"
    with store.writable(path) as history:
        history.keep(failed())
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    with store.readable(path) or pytest.fail("it is there") as history, pytest.raises(HistoryError, match="damaged"):
        history.incident(1)
