"""Holes of NULs, as crashed hosts and truncation by copying leave them: left out and counted, whatever the way in."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose
from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import InputError
from nccl_triage.follow.follower import Follower
from nccl_triage.ingest import sniff

LOG = Path(__file__).parents[2] / "corpus" / "recorded" / "logs" / "nccl_device_memory_in_init_w4.log"
SIZES = (150, 3_000_000)
Document = dict[str, Any]


def _file(data: bytes, folder: Path, rules: RuleSet) -> Document:
    (folder / "train.log").write_bytes(data)
    return diagnose(folder / "train.log", rules=rules).to_dict()


def _gz(data: bytes, folder: Path, rules: RuleSet) -> Document:
    (folder / "train.log.gz").write_bytes(gzip.compress(data))
    return diagnose(folder / "train.log.gz", rules=rules).to_dict()


def _folder(data: bytes, folder: Path, rules: RuleSet) -> Document:
    (folder / "train.log").write_bytes(data)
    (folder / "core.123").write_bytes(bytes(range(256)) * 10)
    found = diagnose(folder, rules=rules).to_dict()
    assert any("1 file (binary, not a log)" in note for note in found["notes"])
    return found


def _stdin(data: bytes, folder: Path, rules: RuleSet) -> Document:
    return diagnose("-", stdin=io.BytesIO(data), rules=rules).to_dict()


def _packed_stdin(data: bytes, folder: Path, rules: RuleSet) -> Document:
    return _stdin(gzip.compress(data), folder, rules)


def _followed(data: bytes, folder: Path, rules: RuleSet) -> Document:
    """Follow a file that is there, and grows by the other half."""
    path = folder / "train.log"
    path.write_bytes(data[: len(data) // 2])
    follower = Follower([str(folder)], None, rules)
    follower.poll()
    with path.open("ab") as stream:
        stream.write(data[len(data) // 2 :])
    follower.poll()
    return diagnose_observations(follower.finish(), rules).to_dict()


def _told(found: Document) -> tuple[object, ...]:
    first = found["diagnoses"][0]
    return found["verdict"], first["cause"], first["culprits"], [line["line"] for line in first["evidence"]]


@pytest.mark.parametrize("way", [_file, _gz, _folder, _stdin, _packed_stdin, _followed])
@pytest.mark.parametrize("place", ["head", "in a line", "between lines", "end"])
def test_a_hole_is_left_out_and_counted(
    way: Callable[[bytes, Path, RuleSet], Document], place: str, tmp_path: Path, rules: RuleSet
) -> None:
    data = LOG.read_bytes()
    (tmp_path / "whole").mkdir()
    whole = _told(way(data, tmp_path / "whole", rules))
    middle = data.index(b"\n", len(data) // 3) + 1
    at = {"head": 0, "in a line": middle - 9, "between lines": middle, "end": len(data)}[place]
    for size in SIZES:
        folder = tmp_path / str(size)
        folder.mkdir()
        found = way(data[:at] + bytes(size) + data[at:], folder, rules)
        assert _told(found) == whole
        assert f"{size} NUL bytes removed" in found["inputs"][0]["problems"]


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 40, b"\x7fELF" + bytes(9000), bytes(200) + bytes(range(256)) * 40]
)
@pytest.mark.parametrize("way", [_file, _gz, _stdin, _packed_stdin])
def test_what_is_binary_is_refused(
    way: Callable[[bytes, Path, RuleSet], Document], data: bytes, tmp_path: Path, rules: RuleSet
) -> None:
    with pytest.raises(InputError) as caught:
        way(data, tmp_path, rules)
    assert sniff.BINARY in (caught.value.cause or "")


def test_a_binary_pipe_beside_logs_is_told(tmp_path: Path, rules: RuleSet) -> None:
    (tmp_path / "train.log").write_bytes(LOG.read_bytes())
    found = diagnose([tmp_path / "train.log", "-"], stdin=io.BytesIO(bytes(range(256)) * 40), rules=rules).to_dict()
    assert found["verdict"] == "diagnosed"
    assert [item["problems"] for item in found["inputs"]] == [[], [sniff.BINARY]]


@pytest.mark.parametrize("size", [100, 9000, 3_000_000])
def test_a_file_of_nothing_but_nuls_is_left_out(size: int, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_bytes(bytes(size))
    assert sniff.classify(tmp_path / "train.log")[:2] == ("binary", "nothing but NUL bytes")


def test_a_log_behind_a_hole_that_is_larger_than_what_is_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sniff, "_FAR", 1 << 19)
    (tmp_path / "train.log").write_bytes(bytes(2_000_000) + LOG.read_bytes())
    assert sniff.classify(tmp_path / "train.log")[0] == "text"
