"""One verifier at a time, in one folder."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.errors import OutputError, UsageError
from nccl_triage.verify import session

SOURCE = Path(session.__file__).parents[2]
HOLDER = """
import sys
sys.path.insert(0, {source!r})
from pathlib import Path
from nccl_triage.verify.session import lock
with lock(Path({folder!r})):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a second process that holds the lock until its input ends."""
    program = HOLDER.format(source=str(SOURCE), folder=str(folder))
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Give the user a runtime folder and a temporary one of the test's own."""
    found = {name: tmp_path / name for name in ("runtime", "temporary")}
    for path in found.values():
        path.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(found["runtime"]))
    monkeypatch.setattr(tempfile, "tempdir", str(found["temporary"]))
    return found


def test_two_processes_contend(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        started = time.monotonic()
        with pytest.raises(UsageError) as caught, session.lock(tmp_path):
            pytest.fail("two verifiers at once")
        assert time.monotonic() - started < 1.0
        assert caught.value.message == f"another verifier runs here (pid {other.pid})"
        assert "--wait" in str(caught.value.remedy)
        other.communicate("")
    with session.lock(tmp_path) as held:
        assert held.note is None
        assert names(tmp_path) == [f"nccl-triage-verify-{os.getuid()}.lock"]
        assert held.paths[0].read_text() == f"{os.getpid()}\n"
        assert stat.S_IMODE(held.paths[0].stat().st_mode) == 0o600
    assert names(tmp_path) == []


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        other.send_signal(signal.SIGKILL)
        other.wait(10)
        assert names(tmp_path)  # its file is still there
        with session.lock(tmp_path) as held:
            assert held.paths[0].read_text() == f"{os.getpid()}\n"
    assert names(tmp_path) == []


def test_one_may_wait_for_the_other(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        threading.Timer(0.3, other.kill).start()
        started = time.monotonic()
        with session.lock(tmp_path, wait=20.0) as held:
            assert 0.2 < time.monotonic() - started < 10.0
            assert held.paths


def test_waiting_has_an_end(tmp_path: Path) -> None:
    with holder(tmp_path):
        started = time.monotonic()
        with pytest.raises(UsageError, match="another verifier"), session.lock(tmp_path, wait=0.3):
            pytest.fail("two verifiers at once")
        assert 0.3 <= time.monotonic() - started < 5.0


def test_an_error_inside_frees_the_lock(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), session.lock(tmp_path):
        raise KeyboardInterrupt
    with session.lock(tmp_path):
        assert names(tmp_path)


def test_both_usual_folders_are_locked(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with session.lock() as held:
        assert [path.parent for path in held.paths] == [places["runtime"], places["temporary"]]
    with holder(places["temporary"]):  # as a batch job, which has no runtime folder
        with pytest.raises(UsageError), session.lock():
            pytest.fail("two verifiers at once")
        assert names(places["runtime"]) == []
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with session.lock() as held:
        assert [path.parent for path in held.paths] == [places["temporary"]]


def test_another_folder_serves_when_one_cannot_be_written(places: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with session.lock(tmp_path / "file") as held:
        assert [path.parent for path in held.paths] == list(places.values())
        assert held.note is None


def test_without_any_folder_it_goes_on_with_a_note(places: dict[str, Path]) -> None:
    for path in places.values():
        path.rmdir()
    with session.lock() as held:
        assert held.paths == ()
        assert "no folder for a lock" in str(held.note)


def test_a_link_in_its_place_is_not_followed(places: dict[str, Path], tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (places["runtime"] / f"nccl-triage-verify-{os.getuid()}.lock").symlink_to(victim)
    with session.lock() as held:
        assert [path.parent for path in held.paths] == [places["temporary"]]
    assert victim.read_text() == "precious"


def test_a_temporary_workspace_goes_away(places: dict[str, Path]) -> None:
    with session.workspace(None, False) as folder:
        assert folder.parent == places["temporary"]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "run").mkdir()
        (folder / "run" / "rank-0.log").write_text("x")
        (folder / "outside").symlink_to(places["runtime"])
        (places["runtime"] / "kept").touch()
    assert names(places["temporary"]) == []
    assert names(places["runtime"]) == ["kept"]
    with pytest.raises(KeyboardInterrupt), session.workspace(None):
        raise KeyboardInterrupt
    assert names(places["temporary"]) == []


def test_a_temporary_workspace_can_be_kept(places: dict[str, Path]) -> None:
    with session.workspace(None, True) as folder:
        (folder / "rank-0.log").write_text("x")
    assert names(folder) == ["rank-0.log"]


def test_what_a_killed_session_left_is_removed_by_the_next(places: dict[str, Path]) -> None:
    make = "from nccl_triage.verify import session\nwith session.workspace(None) as folder: print(folder, flush=True); input()"
    environment = {**os.environ, "TMPDIR": str(places["temporary"]), "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([sys.executable, "-c", make], **pipes) as killed:
        assert killed.stdout is not None
        left = Path(killed.stdout.readline().strip())
        with session.workspace(None):
            assert left.is_dir(), "it still runs"
        killed.kill()
        killed.wait()
    (places["temporary"] / "nccl-triage-verify-kept").mkdir()
    assert left.is_dir()
    with session.workspace(None):
        assert not left.exists()
    assert names(places["temporary"]) == ["nccl-triage-verify-kept"], "no session says that it was its"


def test_a_wanted_workspace_stays(tmp_path: Path) -> None:
    wanted = tmp_path / "new" / "logs"
    with session.workspace(wanted, False) as folder:
        (folder / "rank-0.log").write_text("x")
    assert names(wanted) == ["rank-0.log"]
    assert stat.S_IMODE(wanted.stat().st_mode) == 0o700


def test_a_wanted_workspace_must_be_empty(tmp_path: Path) -> None:
    (tmp_path / "old.log").write_text("old")
    with pytest.raises(UsageError, match="not empty") as caught, session.workspace(tmp_path, False):
        pytest.fail("mixed logs")
    assert "--force" in str(caught.value.remedy)
    with session.workspace(tmp_path, False, force=True) as folder:
        assert (folder / "old.log").read_text() == "old"
    assert names(tmp_path) == ["old.log"]


def test_a_file_is_no_workspace(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError), session.workspace(tmp_path / "file", False):
        pytest.fail("a file")


def test_no_temporary_folder_at_all(places: dict[str, Path]) -> None:
    places["temporary"].rmdir()
    with pytest.raises(OutputError) as caught, session.workspace(None, False):
        pytest.fail("nowhere")
    assert "TMPDIR" in str(caught.value.remedy)
