"""The files of a rank: in the run's folder, or in none and carried."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nccl_triage.verify.worker import rank_files
from nccl_triage.verify.worker.rank_files import LOG, RankFiles


def carried(folder: Path, nccl: bool = True) -> RankFiles:
    return rank_files.opened(folder / "elsewhere", 0, carried=True, nccl=nccl)


def test_what_is_carried_lies_in_no_folder(tmp_path: Path) -> None:
    files = carried(tmp_path)
    assert not (tmp_path / "elsewhere").exists()
    os.write(files.output, b"Traceback\n")
    assert files.nccl is not None and files.nccl_name == f"/proc/self/fd/{files.nccl}"
    # As NCCL opens it: by name, from the beginning.
    Path(files.nccl_name).write_text("NCCL INFO Using network Socket\n")
    assert files.inherited == (files.nccl,)
    assert files.contents() == {"log": "Traceback\n", "nccl_log": "NCCL INFO Using network Socket\n"}
    for descriptor in (files.output, files.nccl):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_long_log_is_carried_from_a_whole_line_near_its_end(tmp_path: Path) -> None:
    files = carried(tmp_path, nccl=False)
    lines = [f"line {number}: \N{SNOWMAN}\n" for number in range(40_000)]
    os.write(files.output, "".join(lines).encode())
    text = files.contents()["log"]
    assert LOG - 40 < len(text.encode()) <= LOG
    assert "".join(lines).endswith(text) and text.startswith("line ")


def test_a_log_without_line_breaks_is_carried_all_the_same(tmp_path: Path) -> None:
    files = carried(tmp_path, nccl=False)
    os.write(files.output, b"\xff" + b"." * LOG)
    assert files.contents() == {"log": "." * LOG}


def test_of_a_long_log_of_nccl_both_ends_are_carried(tmp_path: Path) -> None:
    """The network stands at its beginning, the failure at its end."""
    files = carried(tmp_path)
    assert files.nccl is not None
    lines = ["NCCL INFO Using network IB\n", *(f"retry {number}\n" for number in range(90_000)), "NCCL WARN failed\n"]
    os.write(files.nccl, "".join(lines).encode())
    told = files.contents()["nccl_log"].splitlines(keepends=True)
    assert (told[0], told[-1]) == (lines[0], lines[-1])
    assert LOG < len("".join(told)) <= 2 * LOG
    assert set(told) <= set(lines), "in whole lines"


def test_files_of_the_folder_are_the_users_alone_and_begin_anew(tmp_path: Path) -> None:
    for _ in range(2):
        files = rank_files.opened(tmp_path / "r", 3, carried=False, nccl=True)
        os.write(files.output, b"now\n")
        assert files.nccl_name == str(tmp_path / "r" / "rank-3.nccl.log") and files.inherited == ()
        assert files.contents() == {}
        files.close()
    made = {path.name: path for path in (tmp_path / "r").iterdir()}
    assert set(made) == {"rank-3.log", "rank-3.nccl.log"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in made.values())
    assert made["rank-3.log"].read_text() == "now\n"
