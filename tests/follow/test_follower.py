"""Logs that are followed end like logs that were read once, however they grew, and nothing is read twice."""

from __future__ import annotations

import gzip
import io
import os
import random
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose
from nccl_triage.document import evidence
from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import InputError
from nccl_triage.execution.engines import scan_sources
from nccl_triage.follow import followed_log, follower
from nccl_triage.follow.follower import Follower
from nccl_triage.ingest import context_lines
from tests.prefix_reading import find_sources

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "corpus" / "recorded"


def finished(follower: Follower, rules: RuleSet) -> dict[str, Any]:
    found = diagnose_observations(follower.finish(), rules)
    found.excerpts = context_lines.read_all(follower.sources(), evidence.excerpt_lines(found))
    return {**found.to_dict(), "timing": None}


def read_once(path: Path, rules: RuleSet) -> dict[str, Any]:
    return {**diagnose(path, rules=rules, model=None).to_dict(), "timing": None}


def grow(
    folder: Path, whole: dict[str, bytes], follower: Follower, rules: RuleSet, seed: int, diagnosed: bool = True
) -> None:
    """Write files piece by piece, cut anywhere, and look at what is known in between."""
    chance = random.Random(seed)
    written = dict.fromkeys(whole, 0)
    step = max(map(len, whole.values())) // 12 + 1
    while any(written[name] < len(data) for name, data in whole.items()):
        for name, data in whole.items():
            size = chance.choice([0, 1, 7, step // 9, step, 3 * step])
            with (folder / name).open("ab") as stream:
                stream.write(data[written[name] : written[name] + size])
            written[name] += size
        follower._next_look *= chance.random() < 0.7  # now and then it is time to look for new files
        follower.poll()
        if chance.random() < 0.3:
            found = follower.observations()
            if diagnosed:
                diagnose_observations(found, rules)


def incidents() -> dict[str, dict[str, bytes]]:
    runs = sorted(path for path in (CORPUS / "runs").iterdir() if path.is_dir())
    found = {
        run.name: {str(p.relative_to(run)): p.read_bytes() for p in sorted(run.rglob("*")) if p.is_file()}
        for run in runs[:: len(runs) // 4]
    }
    logs = sorted((CORPUS / "logs").iterdir(), key=lambda path: -path.stat().st_size)
    return found | {path.name: {path.name: path.read_bytes()} for path in [*logs[:2], *logs[9::120]]}


@pytest.mark.parametrize("name", sorted(incidents()))
def test_a_recorded_incident_grows_into_the_same_diagnosis(name: str, tmp_path: Path, rules: RuleSet) -> None:
    whole = incidents()[name]
    for path in whole:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    follower = Follower([str(tmp_path)], None, rules)
    grow(tmp_path, whole, follower, rules, seed=len(name))
    assert finished(follower, rules) == read_once(tmp_path, rules)


def storm() -> str:
    """Return more than one batch of lines that repeat, with tracebacks of several ranks in between."""
    lines: list[str] = []
    for number in range(1700):
        rank, clock = number * 7 % 12, f"2026-01-02 10:{number // 60:02d}:{number % 60:02d}"
        lines.append(
            f"{clock} [rank{rank}]:[E102 10:00:00.123456789 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught "
            f"collective operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
            f"Timeout(ms)=600000) ran for 600{number % 997:03d} milliseconds before timing out."
        )
        if number % 9 == 0:
            lines.append(f"{clock} rank {rank} step {number}/9999 loss {5 - number / 1000:.3f}")
        if number % 100 == 0:
            lines.append(f"[rank{rank}]: Traceback (most recent call last):")
            lines.append(f"[rank{(rank + 1) % 12}]: Traceback (most recent call last):")
        if number % 100 in (1, 2, 3):
            lines.append(f'[rank{rank}]:   File "train.py", line {number}, in step')
        if number % 100 in (7, 8):
            lines.append(f"[rank{rank}]: ValueError: shard {number} of rank {rank} is empty")
    return "\n".join(lines) + "\n"


def test_a_storm_of_several_batches_grows_into_the_same_observations(tmp_path: Path, rules: RuleSet) -> None:
    follower = Follower([str(tmp_path)], None, rules)
    grow(tmp_path, {"a.log": storm().encode()}, follower, rules, seed=1, diagnosed=False)
    found, once = follower.finish(), scan_sources(find_sources([str(tmp_path)], None)[0], rules)
    assert found.buckets == once.buckets
    assert found.counts == once.counts
    assert (found.curves.sampled(), found.curves.outermost()) == (once.curves.sampled(), once.curves.outermost())
    assert found.links == once.links
    assert found.sources == once.sources


class Run:
    """A folder with one log that is followed, and what is known of it."""

    def __init__(self, folder: Path, rules: RuleSet, *arguments: str) -> None:
        self.folder = folder
        self.log = folder / "train.log"
        self.log.write_text("step 1/9 loss 3.1\n")
        self.follower = Follower(list(arguments) or [str(self.log)], None, rules)
        self.follower.poll()

    def write(self, text: str, path: Path | None = None) -> None:
        with (path or self.log).open("a") as stream:
            stream.write(text)

    def poll(self) -> None:
        self.follower._next_look = 0.0
        self.follower.poll()
        self.follower.poll()

    def steps(self) -> dict[str, list[str]]:
        """Return the steps that were seen in each source."""
        self.poll()
        found: dict[str, list[str]] = {}
        for event in self.follower.observations().events("training.step_loss"):
            found.setdefault(Path(event.source).name, []).append(event.fields["step"])
        return found


@pytest.fixture
def run(tmp_path: Path, rules: RuleSet) -> Run:
    return Run(tmp_path, rules)


def test_growth(run: Run) -> None:
    run.write("step 2/9 loss 3.0\nstep 3/9 lo")
    assert run.steps() == {"train.log": ["1", "2"]}
    run.write("ss 2.9\n")
    assert run.steps() == {"train.log": ["1", "2", "3"]}


def test_a_rotated_log_has_its_new_name_and_is_read_to_its_end(run: Run) -> None:
    run.write("step 2/9 loss 3.0\n")
    moved = run.log.rename(run.log.with_name("train.log.1"))
    run.write("step 4/9 loss 2.8\n")
    run.write("step 3/9 loss 2.9\n", moved)  # the writer still has the old one
    assert run.steps() == {"train.log.1": ["1", "2", "3"], "train.log": ["4"]}
    again = moved.rename(run.log.with_name("train.log.2"))
    run.log.rename(moved)
    run.write("step 5/9 loss 2.7\n")
    assert run.steps() == {again.name: ["1", "2", "3"], "train.log.1": ["4"], "train.log": ["5"]}
    assert {Path(path).parent for path in run.follower.observations().sources} == {run.folder}


def test_a_folder_with_rotation_is_the_same_as_read_once(tmp_path: Path, rules: RuleSet) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    tmp_path /= "link"
    run = Run(tmp_path, rules, str(tmp_path))
    moved = run.log.rename(run.log.with_name("train.log.1"))
    run.write("step 2/9 loss 3.0\nRuntimeError: CUDA error: an illegal memory access was encountered\n")
    run.poll()
    run.write("step 3/9 loss 2.9\n", moved)
    found, once = finished(run.follower, rules), read_once(tmp_path, rules)
    assert found == once


def test_a_rotated_log_that_was_compressed_is_not_read_again(tmp_path: Path, rules: RuleSet) -> None:
    run = Run(tmp_path, rules, str(tmp_path))
    moved = run.log.rename(run.log.with_name("train.log.1"))
    run.write("step 2/9 loss 3.0\n")
    run.poll()
    moved.with_name("train.log.1.gz").write_bytes(gzip.compress(moved.read_bytes()))
    os.utime(moved.with_name("train.log.1.gz"), (1, 1))
    moved.unlink()
    assert run.steps() == {"train.log.1": ["1"], "train.log": ["2"]}


def test_copytruncate_keeps_what_was_read(run: Run) -> None:
    run.write("step 2/9 loss 3.0\n")
    run.poll()
    run.log.write_text("step 3/9 loss 2.9\n")
    found = run.steps()
    assert found.pop("train.log") == ["3"]
    (former,) = found
    assert former.startswith("train.log (part 1, until ")
    assert found[former] == ["1", "2"]


def test_a_log_that_vanishes_and_comes_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.log.unlink()
    assert run.steps() == {"train.log": ["1"]}, "a file server may have lost sight of it"
    monkeypatch.setattr(follower, "GONE", -1.0)
    run.poll()
    run.write("step 1/9 loss 4.0\n")
    found = run.steps()
    assert len(found) == 2
    assert found["train.log"] == ["1"]


def test_former_files_are_bounded_and_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "MAX_FORMER", 2)
    for number in range(2, 7):
        run.log.write_text(f"step {number}/9 loss 3.0\n" + "x" * number)
        run.poll()
    assert sorted(run.steps().values()) == [["4"], ["5"], ["6"]]
    assert any("only the last 2 rotated files" in note for note in run.follower.notes)


def test_new_files_in_a_folder_and_what_their_neighbours_tell(tmp_path: Path, rules: RuleSet) -> None:
    """Whether 0.log is the log of a rank shows only beside 1.log."""
    (tmp_path / "0.log").write_text("step 1/9 loss 3.1\n")
    follower = Follower([str(tmp_path)], None, rules)
    follower.poll()
    assert [info.rank for info in follower.observations().sources.values()] == [None]
    (tmp_path / "1.log").write_text("step 1/9 loss 3.1\n")
    follower._next_look = 0.0
    follower.poll()
    assert [info.rank for info in follower.observations().sources.values()] == [0, 1]
    assert follower.observations().count("training.step_loss") == 2
    assert finished(follower, rules) == read_once(tmp_path, rules)


def test_what_is_named_may_come_later(tmp_path: Path, rules: RuleSet) -> None:
    path = tmp_path / "late.log"
    follower = Follower([str(path), str(tmp_path / "x*.log")], None, rules)
    assert follower.missing is not None
    path.write_text("step 1/9 loss 3.1\n")
    follower._next_look = 0.0
    follower.poll()
    assert follower.missing is None
    assert follower.observations().count("training.step_loss") == 1
    assert not follower.over
    with pytest.raises(InputError):
        Follower([str(tmp_path / "never.log")], None, rules).finish()


def test_a_compressed_log_is_read_when_it_stands_still(tmp_path: Path, rules: RuleSet) -> None:
    path = tmp_path / "old.log.gz"
    whole = gzip.compress(b"step 1/9 loss 3.1\n" * 50)
    path.write_bytes(whole[:60])
    follower = Follower([str(tmp_path)], None, rules)
    assert follower.observations().count("training.step_loss") == 0
    path.write_bytes(whole)
    assert follower.finish().count("training.step_loss") == 50


def test_standard_input_ends_it(rules: RuleSet) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stdin:
        follower = Follower(["-"], stdin, rules)
        os.write(writer, b"step 1/9 loss 3.1\nstep 2/9 ")
        follower.poll()
        assert follower.observations().count("training.step_loss") == 1
        assert not follower.over
        os.write(writer, b"loss 3.0\n")
        os.close(writer)
        while not follower.over:
            follower.poll()
        assert follower.finish().count("training.step_loss") == 2
    assert Follower(["-"], io.BytesIO(b"step 1/9 loss 3.1\n"), rules).finish().count("training.step_loss") == 1


def test_a_long_log_in_the_middle_of_its_growth_has_the_same_verdict(tmp_path: Path, rules: RuleSet) -> None:
    """Of the middle of a long log only samples of progress are read, and which depends on how it grew."""
    chatter = "".join(f"fetched shard {number} of the corpus from the cache\n" for number in range(400))
    text = "".join(f"step {step}/900 loss 3.1\n{chatter}" for step in range(140))
    text += "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n"
    path = tmp_path / "a.log"
    path.write_text(text[:2_400_000])
    follower = Follower([str(path)], None, rules)
    while follower.starting:
        follower.poll()
    with path.open("a") as stream:
        stream.write(text[2_400_000:])
    found, once = finished(follower, rules), read_once(path, rules)
    assert once["diagnoses"][0]["cause"] == "gpu-out-of-memory"
    for key in ("verdict", "headline", "diagnoses", "symptoms", "inputs"):
        assert found[key] == once[key], key


def test_a_writer_that_is_always_ahead_of_us_is_diagnosed_nevertheless(
    tmp_path: Path, rules: RuleSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_log, "BLOCKS", 1)
    text = "".join(f"fetched shard {number} of the corpus from the cache\n" for number in range(12_000))
    path = tmp_path / "a.log"
    path.write_text(text)
    follower = Follower([str(path)], None, rules)
    follower.poll()
    assert follower.starting
    assert follower.version == 0, "a verdict on the beginning of what lies there would be premature"
    while follower.starting:
        follower.poll()
    assert follower.version == 1
    with path.open("a") as stream:
        stream.write(text)
    follower.poll()
    assert follower.behind
    assert not follower.starting
    assert follower.version == 2


def test_a_file_that_a_pipe_replaces_is_read_on_from_it(tmp_path: Path, rules: RuleSet) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1/9 loss 2.0\n", encoding="utf-8")
    follower = Follower([str(log)], None, rules)
    follower.poll()
    log.unlink()
    os.mkfifo(log)
    for _ in range(3):
        follower.poll()
    writer = os.open(log, os.O_WRONLY | os.O_NONBLOCK)  # refused if nobody reads
    os.write(writer, b"ValueError: no shard\n")
    follower.poll()
    os.close(writer)
    assert finished(follower, rules)["diagnoses"][0]["cause"] == "application-exception"


def test_a_traceback_right_before_its_file_is_deleted_counts(tmp_path: Path, rules: RuleSet) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1/9 loss 2.0\n", encoding="utf-8")
    follower = Follower([str(log)], None, rules)
    follower.poll()
    with log.open("a") as stream:
        stream.write('Traceback (most recent call last):\n  File "train.py", line 7, in main\nValueError: no shard\n')
    log.unlink()
    follower.poll()
    assert follower.changed
    assert finished(follower, rules)["diagnoses"][0]["cause"] == "application-exception"
