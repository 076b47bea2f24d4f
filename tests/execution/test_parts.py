"""A long log in parts: what several processes tell is what one tells."""

from __future__ import annotations

import gzip
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose
from nccl_triage.engine.schema import RuleSet
from nccl_triage.execution import engines, reading
from nccl_triage.ingest.sources import Source
from nccl_triage.observations.store import Observations
from nccl_triage.scan.scanner import scanner_for
from tests.prefix_reading import find_sources
from tests.scan_helpers import log

LOGS = Path(__file__).parents[2] / "corpus" / "written" / "logs"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MIN_PART", 40_000)


def sources(*paths: Path) -> list[Source]:
    return find_sources([str(path) for path in paths], None)[0]


def failures(found: Observations) -> dict[str, object]:
    """Return what must not depend on how a log is read."""
    return {
        name: (found.count(name), events) for name in found.signatures() if (events := found.events(name))[0].is_failure
    }


def incident(path: Path, seed: int) -> str:
    """Write a long log with an incident somewhere in it, and return the name of the incident."""
    chance = random.Random(seed)
    filler = log("verbose", 200_000, seed).splitlines()
    chosen = chance.choice(sorted(LOGS.glob("*.log")))
    lines = chosen.read_text(encoding="utf-8", errors="replace").splitlines()
    at = chance.randrange(len(filler))
    path.write_text("\n".join([*filler[:at], *lines, *filler[at:]]) + "\n")
    return chosen.name


@pytest.mark.parametrize("seed", range(4))
def test_the_parts_together_tell_what_the_whole_tells(seed: int, tmp_path: Path, rules: RuleSet) -> None:
    path = tmp_path / "job.log"
    name = incident(path, seed)
    scanner = scanner_for(rules)
    whole = reading.scan_source(sources(path)[0], scanner)
    cut = reading.cut(sources(path), 4)
    assert len(cut) > 2
    found = Observations()
    for part in random.Random(seed).sample(cut, len(cut)):
        found.absorb(reading.scan_part(part, scanner))
    assert failures(found) == failures(whole), name
    info = found.sources[str(path)]
    assert (info.lines, info.bytes) == (whole.sources[str(path)].lines, path.stat().st_size)


def test_processes_give_the_same_diagnosis(tmp_path: Path, rules: RuleSet) -> None:
    incident(tmp_path / "job.log", 7)
    one = diagnose(tmp_path, rules=rules).to_dict()
    many = diagnose(tmp_path, rules=rules, jobs=3).to_dict()
    for document in (one, many):
        del document["timing"]
    assert [found["cause"] for found in many["diagnoses"]] == [found["cause"] for found in one["diagnoses"]]
    assert many["inputs"] == one["inputs"]
    assert many["excerpts"][0] == one["excerpts"][0]


def test_a_part_begins_where_a_line_begins_and_no_block_is_open(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    frames = "".join(f'  File "train.py", line {n}, in step\n    step({n})\n' for n in range(60))
    block = f"Traceback (most recent call last):\n{frames}ValueError: sample 7 is bad\n"
    filler = "".join(f"worker {n} is idle\n" for n in range(4000))
    path.write_text(filler + block * 5 + filler)
    data = path.read_bytes()
    first, second = reading.cut(sources(path), 2)
    assert (first.start, first.end) == (0, second.start)
    assert data[second.start - 1 : second.start] == b"\n"
    assert second.start > data.rindex(b"ValueError")
    assert second.lines_before() == data[: second.start].count(b"\n")


def test_what_cannot_be_cut_is_read_whole(tmp_path: Path) -> None:
    text = "".join(f"worker {n} is idle\n" for n in range(20_000))
    (tmp_path / "packed.log.gz").write_bytes(gzip.compress(text.encode(), 0))
    (tmp_path / "wide.log").write_text(text, encoding="utf-16")
    (tmp_path / "line.log").write_text("x" * 300_000)
    assert {part.source.path: part.end for part in reading.cut(sources(tmp_path), 4)} == {
        str(path): None for path in tmp_path.iterdir()
    }


def test_processes_are_started_where_they_pay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reading.os, "sched_getaffinity", lambda _: range(16), raising=False)
    monkeypatch.setattr(reading, "PAYS", 80_000)
    for size, wanted in ((1000, 1), (200_000, 2), (5_000_000, reading.MAX_UNASKED)):
        path = tmp_path / "job.log"
        path.write_bytes(b"a line\n" * (size // 7))
        assert reading.worthwhile(sources(path)) == wanted


def test_the_ends_of_many_logs_count_for_more_than_their_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reading.os, "sched_getaffinity", lambda _: range(16), raising=False)
    monkeypatch.setattr(reading, "PAYS", 80_000)
    for number in range(3):
        (tmp_path / f"rank{number}.log").write_bytes(b"a line\n" * 500)
    assert reading.worthwhile(sources(tmp_path / "rank0.log")) == 1
    assert reading.worthwhile(sources(tmp_path)) == 2


def test_without_processes_everything_is_read_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rules: RuleSet
) -> None:
    """A container may forbid semaphores, or kill a process that took too much."""
    incident(tmp_path / "job.log", 5)
    there = engines.scan_sources(sources(tmp_path), rules, jobs=3)
    parent, real = os.getpid(), reading.scan_part

    def killed(part: reading.SourcePart, *given: Any) -> Observations:
        if os.getpid() != parent and part.start:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(part, *given)

    def forbidden(*_: Any, **__: Any) -> None:
        raise OSError(38, "Function not implemented")

    with monkeypatch.context() as patch:
        patch.setattr(reading, "scan_part", killed)
        assert failures(engines.scan_sources(sources(tmp_path), rules, jobs=3)) == failures(there)
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", forbidden)
    assert failures(engines.scan_sources(sources(tmp_path), rules, jobs=3)) == failures(there)


def test_small_files_are_grouped_and_pipes_and_parts_of_long_files_are_not(tmp_path: Path) -> None:
    small = [tmp_path / f"rank_{rank}.log" for rank in range(64)]
    for path in small:
        path.write_bytes(b"x" * 100_000)
    pipes = [tmp_path / "a.fifo", tmp_path / "b.fifo"]
    for path in pipes:
        os.mkfifo(path)
    parts = [reading.SourcePart(source) for source in find_sources([*map(str, small), *map(str, pipes)], None)[0]]
    groups = reading.grouped(parts, 2)
    assert [part for group in groups for part in group] == parts
    assert 2 * 2 <= len(groups) < 20
    assert all(len(group) == 1 for group in groups if group[0].source.path.endswith(".fifo"))
