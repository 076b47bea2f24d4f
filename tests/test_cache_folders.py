"""Where what can be made again is kept, and whom it can be trusted from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nccl_triage import cache_folders
from nccl_triage.engine import cache


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user without a home that can be written; returns the folder of temporary files."""
    monkeypatch.setenv("HOME", "/proc/no-home")
    for name in ("XDG_CACHE_HOME", "NCCL_TRIAGE_CACHE", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_without_a_home_rules_are_kept_among_temporary_files(no_home: Path) -> None:
    cache.write("rules-0", b"kept")
    folder = no_home / f"nccl-triage-{os.geteuid()}"
    assert cache.read("rules-0") == b"kept"
    assert [path.name for path in folder.iterdir()] == ["rules-0"]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_with_a_home_they_are_kept_there(no_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(no_home / "home"))
    cache.write("rules-0", b"kept")
    assert (no_home / "home" / ".cache" / "nccl-triage" / "rules-0").exists()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_is_not_taken(no_home: Path, mode: int) -> None:
    folder = no_home / f"nccl-triage-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(mode)
    assert folder not in cache_folders.temporary()


def test_a_link_is_not_taken(no_home: Path) -> None:
    (no_home / "elsewhere").mkdir(mode=0o700)
    folder = no_home / f"nccl-triage-{os.geteuid()}"
    folder.symlink_to(no_home / "elsewhere")
    assert folder not in cache_folders.temporary()


def test_a_folder_that_others_can_exchange_is_not_taken(no_home: Path) -> None:
    folder = no_home / f"nccl-triage-{os.geteuid()}"
    assert folder in cache_folders.temporary()
    no_home.chmod(0o777)
    assert folder not in cache_folders.temporary()
    no_home.chmod(0o1777)  # as /tmp
    assert folder in cache_folders.temporary()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_taken(no_home: Path) -> None:
    folder = no_home / f"nccl-triage-{os.geteuid()}"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    assert folder not in cache_folders.temporary()
    os.chown(folder, 0, 0)
    os.chown(no_home, 12345, 12345)
    assert folder not in cache_folders.temporary()


def test_a_relative_tmpdir_is_not_taken(no_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(no_home)
    monkeypatch.setenv("TMPDIR", ".")
    assert not [path for path in cache_folders.temporary() if not path.is_absolute()]
    assert list(no_home.iterdir()) == []
