"""The cache is never trusted: an entry that is not what was written counts as absent, and is made again."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nccl_triage.engine import cache

ROOT = Path(__file__).parents[2]
LOG = ROOT / "corpus" / "written" / "logs" / "S001-openrlhf-broadcast-two-networks.log"
SECRET = "hunter2x7"


def flip(data: bytearray, dice: random.Random) -> None:
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def cut(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data)) :]


def lose(data: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(data))
    del data[start : start + dice.randrange(1, 4096)]


def zero(data: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(data))
    end = min(len(data), start + dice.randrange(1, 4096))
    data[start:end] = bytes(end - start)


def add(data: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(data) + 1)
    data[start:start] = dice.randbytes(dice.randrange(1, 64))


def swap(data: bytearray, dice: random.Random) -> None:
    a, b = dice.randrange(len(data)), dice.randrange(len(data))
    data[a : a + 40], data[b : b + 40] = data[b : b + 40], data[a : a + 40]


DAMAGES: list[Callable[[bytearray, random.Random], None]] = [flip, cut, lose, zero, add, swap]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NCCL_TRIAGE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_entry_is_absent(damage: Callable[[bytearray, random.Random], None], folder: Path) -> None:
    dice = random.Random(7)
    content = b'{"rows": []}' * 300 + dice.randbytes(2000)
    cache.write("x-1", content)
    whole = (folder / "x-1").read_bytes()
    for _ in range(100):
        data = bytearray(whole)
        damage(data, dice)
        (folder / "x-1").write_bytes(data)
        assert cache.read("x-1") == (content if bytes(data) == whole else None)
    cache.write("x-1", content)
    assert cache.read("x-1") == content


def test_an_entry_of_another_name_is_absent(folder: Path) -> None:
    cache.write("x-1", b"{}")
    (folder / "x-1").rename(folder / "x-2")
    assert cache.read("x-2") is None


def test_what_is_no_file_is_absent_and_not_waited_for(folder: Path) -> None:
    folder.mkdir()
    os.mkfifo(folder / "x-1")
    (folder / "x-2").mkdir()
    (folder / "x-3").symlink_to("/dev/zero")
    for entry in ("x-1", "x-2", "x-3"):
        assert cache.read(entry) is None
        cache.write(entry, b"{}")
    assert cache.read("x-1") == cache.read("x-3") == b"{}"


@pytest.mark.parametrize("text", ["[]", "{", "", "null"])
def test_a_table_is_an_object(text: str, folder: Path) -> None:
    cache.write("x-1", text.encode())
    assert cache.read_table("x-1") is None


def diagnose(folder: Path, log: Path, *more: str) -> tuple[int, bytes]:
    environment = {**os.environ, "NCCL_TRIAGE_CACHE": str(folder)}
    command = [sys.executable, "-m", "nccl_triage", str(log), "-v", "--no-history", "--no-config", *more]
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60, cwd=folder.parent)
    assert done.stderr == b""
    return done.returncode, done.stdout


def test_whatever_happens_to_the_cache_the_answer_is_the_same(folder: Path) -> None:
    log = folder.parent / "x.log"
    log.write_bytes(LOG.read_bytes().replace(b"NCCL WARN", f"NCCL WARN DB_PASSWORD={SECRET}".encode()))
    first = diagnose(folder, log)
    assert first[0] == 0
    assert SECRET.encode() not in first[1] and b"[secret:password]" in first[1]
    entries = {path: path.read_bytes() for path in folder.iterdir()}
    kinds = {path.name.partition("-")[0] for path in entries}
    assert kinds >= {"anchors", "rules", "secrets"}
    dice = random.Random(3)
    texts = [b"", b"{}", b'{"rows": []}']
    for round_ in range(3):
        for path, whole in entries.items():
            data = bytearray(whole)
            dice.choice(DAMAGES)(data, dice)
            path.write_bytes((bytes(data), texts[round_])[dice.randrange(2)])
        assert diagnose(folder, log) == first
        assert [path.name for path in entries if cache.read(path.name) is None] == []


def aged(path: Path, days: float) -> Path:
    path.touch()
    at = time.time() - days * 86_400
    os.utime(path, (at, at))
    return path


def test_entries_that_no_run_used_are_deleted_and_other_files_stay(folder: Path) -> None:
    folder.mkdir()
    old = [aged(folder / cache.name(kind, "old"), 31) for kind in ("rules", "knowledge_codes")]
    half = aged(folder / "draft-abc12345", 1)
    stay = [aged(folder / name, 400) for name in ("notes-2024.txt", "tmpabcd1234", "rules-of-mine", f"x-{'g' * 24}")]
    stay += [aged(folder / cache.name("rules", "used"), 29), aged(folder / "draft-new", 0)]
    stay.append(folder / "old-0123456789abcdef01234567")
    aged(stay[-1], 400).unlink()
    stay[-1].mkdir()
    os.utime(stay[-1], (0, 0))  # no file: it stays, and stops nothing
    cache.write(cache.name("anchors"), b"new")
    assert not [path for path in (*old, half) if path.exists()]
    assert [path for path in stay if not path.exists()] == []


def test_the_least_recently_used_entries_of_a_kind_are_deleted(folder: Path) -> None:
    folder.mkdir()
    entries = [aged(folder / cache.name("rules", str(days)), days) for days in range(1, 9)]
    other = aged(folder / cache.name("anchors"), 8)
    cache.write(cache.name("rules"), b"new")
    assert [path.exists() for path in entries] == [True] * 5 + [False] * 3
    assert other.exists()


def test_runs_that_write_at_the_same_time_leave_a_whole_cache(folder: Path) -> None:
    program = (
        "import sys\nfrom nccl_triage.engine import cache\n"
        "for n in range(150):\n"
        "    name = cache.name('rules', str(n % 7))\n"
        "    cache.write(name, name.encode() * 99)\n"
        "    assert cache.read(name) in (None, name.encode() * 99)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "analyzer")}
    runs = [subprocess.Popen([sys.executable, "-W", "error", "-c", program], env=environment) for _ in range(4)]
    assert [run.wait(120) for run in runs] == [0] * 4
    assert 1 <= len(list(folder.iterdir())) <= 7
    assert not [path for path in folder.iterdir() if cache.read(path.name) is None]
