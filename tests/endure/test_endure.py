"""``make endure``, as short as a test may be: cases of one seed, a small day, some processes at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.engine import cache
from tests.endure import cases, following, fuzzing, together


def test_cases_of_a_seed_hold() -> None:
    found = fuzzing.run("a1", 60, most=50)
    assert found.failures == []
    assert set(found.kinds) == {"log", "folder", "recorder", "report"}


def test_a_case_hangs_on_its_seed_and_number_alone() -> None:
    for number in range(12):
        assert cases.make("seed", number).files == cases.make("seed", number).files
    assert cases.make("seed", 1).files != cases.make("other", 1).files


def _raises(case: cases.Case) -> bytes:
    raise KeyError("a defect")


def _takes_long(case: cases.Case) -> bytes:
    while True:
        pass


def _varies(case: cases.Case) -> bytes:
    return str(len(_seen) + bool(_seen.append(case))).encode()


_seen: list[cases.Case] = []


@pytest.mark.parametrize(
    ("run", "says"), [(_raises, "KeyError"), (_takes_long, "more than"), (_varies, "the second output differs")]
)
def test_what_is_wrong_with_a_case_is_found(
    run: object, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fuzzing, "LIMIT", 0.1)
    monkeypatch.setattr(fuzzing, "KEPT", tmp_path)
    monkeypatch.setattr(cases, "make", lambda seed, number: cases.Case("log", {"log": b"step 1"}, run))  # type: ignore[arg-type]
    found = fuzzing.run("seed", 60, most=1)
    assert len(found.failures) == 1
    assert (tmp_path / "seed-0" / "log").read_bytes() == b"step 1"
    assert says in (tmp_path / "seed-0" / "wrong.txt").read_text()


def test_growing_memory_is_found() -> None:
    assert fuzzing.Outcome("seed", memory=[100.0, 101.0, 180.0, 190.0]).growth > fuzzing.GROWTH
    assert fuzzing.Outcome("seed", memory=[100.0, 190.0, 101.0, 102.0]).growth < fuzzing.GROWTH
    assert following.Day([60.0] * 12 + [100.0] * 12, [3], 5, 5).wrong() == ["memory grew by 40 MB"]
    assert following.Day([60.0] * 24, [3], 5, 4).wrong() == ["of 5 bytes 4 were read"]


@pytest.mark.parametrize(("style", "whole"), [("numbers", True), ("dates", False)])
def test_a_day_of_rotation_is_read_once_in_little_memory(style: following.Style, whole: bool, tmp_path: Path) -> None:
    day = following.simulate(tmp_path, style, whole, per_minute=400, hours=8)
    assert day.wrong() == []
    assert len(day.memory) == 8


def test_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    assert together.histories(tmp_path, 8) == []


def test_entries_of_five_versions_stay_beside_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TRIAGE_CACHE", str(tmp_path))
    names = []
    for version in range(together.VERSIONS):
        monkeypatch.setattr(cache, "__version__", str(version))
        names += [
            cache.name(kind, str(n)) for kind in ("rules", "hyperscan") for n in range(3 if kind == "hyperscan" else 1)
        ]
        for name in names[-4:]:
            cache.write(name, name.encode())
    assert [cache.read(name) for name in names] == [name.encode() for name in names]
