"""Ranks that gather in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.verify.worker import gathering
from nccl_triage.verify.worker.gathering import Gathering


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "LOOK", 0.0)
    monkeypatch.setattr(gathering, "GLANCE", 0.0)


def ranks(folder: Path, world: int = 3, attempt: str = "7.1") -> list[Gathering]:
    return [Gathering(folder, rank, world, attempt) for rank in range(world)]


def test_nobody_goes_before_all_are_ready(tmp_path: Path) -> None:
    zero, one, two = ranks(tmp_path)
    for each in (zero, one):
        each.say("ready")
        assert [rank.answer() for rank in (zero, one, two)] == [None, None, None]
    assert zero.missing == (2,)
    two.say("ready")
    assert [rank.answer() for rank in (one, two)] == [None, None], "rank 0 alone decides"
    assert [rank.answer() for rank in (zero, one, two)] == ["go", "go", "go"]


def test_a_rank_that_will_never_be_ready_sends_all_home(tmp_path: Path) -> None:
    zero, one, two = ranks(tmp_path)
    zero.say("ready")
    two.give_up("rank 2 ended before it was ready")
    assert [rank.answer() for rank in (zero, one)] == ["rank 2 ended before it was ready"] * 2


def test_rank_0_speaks_for_all(tmp_path: Path) -> None:
    zero, one, _ = ranks(tmp_path)
    zero.give_up("rank 1, 2 was not ready within 90 s")
    assert one.answer() == "rank 1, 2 was not ready within 90 s"


def test_what_an_earlier_start_left_does_not_count(tmp_path: Path) -> None:
    for each in ranks(tmp_path, attempt="7.0"):
        each.say("ready")
        each.answer()
    Gathering(tmp_path, 0, 3, "7.0").answer()
    assert (tmp_path / "go.json").exists()
    zero, one, two = ranks(tmp_path)
    assert [rank.answer() for rank in (zero, one, two)] == [None, None, None]
    for each in (zero, one, two):
        each.clear()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"attempt": 5}', "\xff"])
def test_what_is_no_answer_is_none(tmp_path: Path, text: str) -> None:
    zero, one, two = ranks(tmp_path)
    (tmp_path / "ready-2.json").write_text(text, encoding="latin-1")
    (tmp_path / "go.json").write_text(text, encoding="latin-1")
    zero.say("ready")
    assert (zero.answer(), one.answer()) == (None, None)
    assert two.answer() is None


def test_a_folder_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    zero, _, _ = ranks(tmp_path / "gone")
    zero.say("ready")
    zero.clear()
    assert zero.answer() is None


def test_looks_are_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of ranks look at one file system."""
    monkeypatch.setattr(gathering, "GLANCE", 60.0)
    zero, one = ranks(tmp_path, world=2)
    assert one.answer() is None
    zero.say("ready")
    one.say("ready")
    assert (zero.answer(), one.answer()) == ("go", None)
