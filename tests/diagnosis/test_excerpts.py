"""Windows of the log: around the evidence, the first fault, and around the first failures where no cause is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage import diagnose

RESET = "box7:1:2 [4] misc/socket.cc:484 NCCL WARN socketProgress: Call to recv from 192.168.7.21<46311> failed : Connection reset by peer\n"
OOM = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"


def marks(path: Path) -> list[int]:
    return [mark for excerpt in diagnose(path).to_dict()["excerpts"] for mark in excerpt["marks"]]


def filler(lines: int) -> str:
    return "".join(f"plain line {number}\n" for number in range(lines))


def test_a_failure_of_unknown_cause_shows_its_first_lines(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(filler(30) + RESET + filler(30))
    assert diagnose(log).verdict == "unknown"
    assert marks(log) == [31]


def test_the_first_fault_is_among_the_lines_shown(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(filler(10) + OOM + filler(40) + RESET)
    assert 11 in marks(log)


def test_windows_that_touch_are_one(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(filler(10) + RESET + filler(3) + RESET + filler(10))
    (excerpt,) = diagnose(log).to_dict()["excerpts"]
    assert (excerpt["first_line"], excerpt["marks"], len(excerpt["lines"])) == (7, [11, 15], 13)


@pytest.mark.parametrize("text", ["plain\n", "step 1 loss 2.0\nstep 2 loss 1.9\n"])
def test_nothing_failed_nothing_shown(tmp_path: Path, text: str) -> None:
    log = tmp_path / "a.log"
    log.write_text(text)
    assert marks(log) == []
