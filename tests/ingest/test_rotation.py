"""Files that a log was rotated into are parts of that log, in the order of time."""

from __future__ import annotations

import pytest

from nccl_triage.ingest import rotation
from nccl_triage.observations.store import SourceInfo
from tests.prefix_reading import read_path


def parts(*paths: str) -> list[str]:
    """Return the parts of the logs that paths name, the oldest first."""
    infos = [read_path(path) for path in paths]
    rotation.link(infos)
    linked = [info for info in infos if info.log is not None or info.part]
    return [info.path for info in sorted(linked, key=lambda info: info.part)]


@pytest.mark.parametrize(
    "older_first",
    [
        ("x/trainer.log.10", "x/trainer.log.2.gz", "x/trainer.log.1", "x/trainer.log"),
        ("x/trainer.log-20251102.xz", "x/trainer.log-20251103", "x/trainer.log"),
        ("x/app.log.2025-11-02", "x/app.log.2025-11-03", "x/app.log"),
        ("x/0.log.20250603-141431.gz", "x/0.log.20250604-020000", "x/0.log"),
        ("x/t.log (part 1, until 14:02:11)", "x/t.log (part 2, until 15:00:00)", "x/t.log"),
    ],
)
def test_parts_follow_each_other(older_first: tuple[str, ...]) -> None:
    assert parts(*older_first[::-1]) == list(older_first)


@pytest.mark.parametrize(
    "paths",
    [
        ("x/trainer.log.1", "x/trainer.log.2"),
        ("x/trainer.log", "y/trainer.log.1"),
        ("x/run.1", "x/run.log"),
        ("x/trainer.log", "x/trainer.log.bak"),
        ("x/nccl.log", "x/nccl.log.4120"),
    ],
)
def test_what_has_no_successor_is_no_part(paths: tuple[str, ...]) -> None:
    assert parts(*paths) == []


def test_a_file_of_a_rank_is_no_part() -> None:
    log, rank = SourceInfo("x/log"), SourceInfo("x/log.1", rank=1, layout="rank-file")
    rotation.link([log, rank])
    assert rank.log is None


def test_a_part_is_of_the_writer_of_its_log() -> None:
    infos = [read_path(path) for path in ("x/gpu07.log", "x/gpu07.log.1")]
    rotation.link(infos)
    assert [info.host for info in infos] == ["gpu07", "gpu07"]
