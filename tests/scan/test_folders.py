"""A folder of the logs of ranks tells what the same files tell when each is read line by line, for every kind of line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corpus.generate.line_kinds import KINDS, process
from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.execution.engines import scan_sources
from nccl_triage.ingest.decode import LineReader
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.parsers.counters import COUNTER
from nccl_triage.scan.learned_shapes import LearnedShapes
from nccl_triage.scan.sampling import ALIKE
from nccl_triage.scan.scanner import Scanner
from nccl_triage.scan.source import SourceScan
from tests.prefix_reading import find_sources

RANKS, SIZE, ODD = 8, 40_000, 5
#: So many that the last ones are only skimmed.
MANY = ALIKE + 8
ERROR = (
    "Traceback (most recent call last):\n"
    '  File "/app/train.py", line 210, in step\n'
    "    loss.backward()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of 79.10 GiB of which "
    "1.10 GiB is free.\n"
)
LOST = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.6]:{port}\n"


def folder(path: Path, kind: str, seed: int, ranks: int = RANKS, odd: int = ODD) -> Path:
    """Write the logs of ranks, one of which fails; the others lose it."""
    path.mkdir()
    for rank in range(ranks):
        lines = b"".join(process(kind, seed, rank, ranks, SIZE)).decode().splitlines(keepends=True)
        cut = len(lines) * 3 // 4
        text = "".join(lines[:cut]) + (ERROR if rank == odd else "".join(lines[cut:]) + LOST.format(port=20_000 + rank))
        (path / f"rank_{rank}.log").write_text(text, encoding="utf-8", newline="")
    return path


def line_by_line(place: Path, rules: RuleSet) -> Observations:
    """Read every file by itself, each line of it, with nothing learned from the others."""
    total = Observations()
    for source in find_sources([str(place)], None)[0]:
        with source.open() as stream:
            total.absorb(Scanner(rules).scan(LineReader(stream, source.info), source.info))
    return total


def told(observations: Observations, rules: RuleSet) -> dict[str, Any]:
    """Return what matters of a diagnosis, and every failure that was counted or kept."""
    found = diagnose_observations(observations, rules)
    document = found.to_dict()
    faults = [event for event in observations.all_events() if event.is_failure]
    return {
        "verdict": document["verdict"],
        "causes": [(one["cause"], one["confidence"]) for one in document["diagnoses"]],
        "culprits": [one["culprits"] for one in document["diagnoses"]],
        "evidence": [[(e["path"], e["line"], e["says"]) for e in one["evidence"]] for one in document["diagnoses"]],
        "counts": {event.signature: observations.count(event.signature) for event in faults},
        "faults": {_place(event) for event in faults},
    }


def _place(event: Event) -> tuple[str, str, int]:
    return event.signature, event.source, event.line


@pytest.mark.parametrize(("kind", "seed"), [(kind, n) for n, kind in enumerate(KINDS) if kind != "storm"])
def test_a_folder_tells_what_its_lines_tell(kind: str, seed: int, tmp_path: Path, rules: RuleSet) -> None:
    place = folder(tmp_path / "logs", kind, seed)
    fast = scan_sources(find_sources([str(place)], None)[0], rules)
    assert told(fast, rules) == told(line_by_line(place, rules), rules)


@pytest.mark.parametrize(
    ("kind", "odd"), [(kind, (3, MANY - 1)[n % 2]) for n, kind in enumerate(KINDS) if kind != "storm"]
)
def test_where_sources_are_skimmed_faults_and_culprits_are_the_same(
    kind: str, odd: int, tmp_path: Path, rules: RuleSet
) -> None:
    place = folder(tmp_path / "logs", kind, 1, MANY, odd)
    fast, slow = scan_sources(find_sources([str(place)], None)[0], rules), line_by_line(place, rules)
    first, second = told(fast, rules), told(slow, rules)
    for part in ("verdict", "causes", "culprits", "counts", "faults"):
        assert first[part] == second[part]
    assert first["evidence"][0] == second["evidence"][0]


@pytest.mark.parametrize("kind", ["Megatron iterations", "free text", "NCCL INFO"])
def test_a_fault_in_the_middle_of_one_of_many_is_found(kind: str, tmp_path: Path, rules: RuleSet) -> None:
    place = folder(tmp_path / "logs", kind, 2, MANY, MANY - 2)
    log = place / f"rank_{MANY - 2}.log"
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.\n"
    log.write_text("".join([*lines[: len(lines) // 2], xid, *lines[len(lines) // 2 :]]), encoding="utf-8", newline="")
    found = scan_sources(find_sources([str(place)], None)[0], rules)
    assert [event.line for event in found.events("nvidia-driver.xid_any")] == [len(lines) // 2 + 1]


@pytest.mark.parametrize("seed", [1, 2])
def test_of_a_storm_every_fault_is_counted(seed: int, tmp_path: Path, rules: RuleSet) -> None:
    place = folder(tmp_path / "logs", "storm", seed)
    fast, slow = scan_sources(find_sources([str(place)], None)[0], rules), line_by_line(place, rules)
    first, second = told(fast, rules), told(slow, rules)
    for part in ("verdict", "culprits", "counts"):
        assert first[part] == second[part]


def test_two_processes_tell_the_same(tmp_path: Path, rules: RuleSet) -> None:
    place = folder(tmp_path / "logs", "Megatron iterations", 3)
    sources = find_sources([str(place)], None)[0]
    one = scan_sources(sources, rules)
    two = scan_sources(find_sources([str(place)], None)[0], rules, jobs=2)
    assert told(one, rules) == told(two, rules)


def write(place: Path, name: str, lines: list[str]) -> None:
    place.mkdir(exist_ok=True)
    (place / name).write_text("".join(lines), encoding="utf-8", newline="")


def both(place: Path, rules: RuleSet) -> tuple[Observations, Observations]:
    """Read a folder as one input, and line by line."""
    return scan_sources(find_sources([str(place)], None)[0], rules), line_by_line(place, rules)


@pytest.fixture
def skimmed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that were skimmed to their ends."""
    found: list[str] = []
    finish = SourceScan.finish

    def noting(self: SourceScan, at_end: bool = True) -> Observations:
        if self._skims:
            found.append(self._info.path)
        return finish(self, at_end)

    monkeypatch.setattr(SourceScan, "finish", noting)
    return found


def ends_of(observations: Observations, role: str = "progress") -> dict[tuple[str, str, Any], tuple[int, Any]]:
    """Return the last line of each signature, source and process, and its time."""
    found: dict[tuple[str, str, Any], tuple[int, Any]] = {}
    for event in observations.all_events():
        if event.role == role:
            found[event.signature, event.source, event.context.process_key()] = (event.line, event.context.time)
    return found


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "storm"])
def test_of_a_skimmed_source_its_process_and_its_last_step_are_known(
    kind: str, tmp_path: Path, rules: RuleSet, skimmed: list[str]
) -> None:
    for rank in range(MANY):
        data = b"".join(process(kind, 4, rank, MANY, SIZE)).decode()
        write(tmp_path / "logs", f"rank_{rank}.log", data.splitlines(keepends=True))
    fast, slow = both(tmp_path / "logs", rules)
    assert len(skimmed) == MANY - ALIKE
    assert ends_of(fast) == ends_of(slow)


def step_lines(rank: int, steps: int, times: int = 1) -> list[str]:
    return [
        f"2026-03-04 10:{n // 60:02d}:{n % 60:02d} step {n} loss {9 - n / 999 - part / 1e5:.5f}\n"
        for n in range(1, steps)
        for part in range(times)
    ]


def test_logs_in_which_several_processes_speak_are_not_skimmed(
    tmp_path: Path, rules: RuleSet, skimmed: list[str]
) -> None:
    for node in range(MANY):
        lines = [f"[rank{8 * node + n % 8}]: step {n} loss 2.5\n" for n in range(900)]
        last = [f"[rank{8 * node + n % 7}]: step {n} loss 2.5\n" for n in range(900, 960)]
        write(tmp_path / "logs", f"node-{node}.log", [*lines, *last])
    fast, slow = both(tmp_path / "logs", rules)
    assert not skimmed
    assert ends_of(fast) == ends_of(slow)


def test_a_last_line_without_an_end_is_read_and_what_stands_before_it(
    tmp_path: Path, rules: RuleSet, skimmed: list[str]
) -> None:
    for rank in range(MANY):
        write(tmp_path / "logs", f"rank_{rank}.log", [*step_lines(rank, 500 + rank), "2026-03-04 11:59:59 checkpoi"])
    fast, slow = both(tmp_path / "logs", rules)
    assert len(skimmed) == MANY - ALIKE
    assert ends_of(fast) == ends_of(slow)
    assert {info.lines for info in fast.sources.values()} == {500 + rank for rank in range(MANY)}


@pytest.mark.parametrize("at", [3, 250, 480])
def test_what_no_other_source_says_is_seen_in_a_skimmed_one(
    at: int, tmp_path: Path, rules: RuleSet, skimmed: list[str]
) -> None:
    for rank in range(MANY):
        lines = step_lines(rank, 500)
        if rank == MANY - 2:
            lines.insert(at, "node1:7:7 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\n")
        write(tmp_path / "logs", f"rank_{rank}.log", lines)
    fast, _ = both(tmp_path / "logs", rules)
    assert len(skimmed) == MANY - ALIKE
    assert [event.line for event in fast.events("nccl.version_banner")] == [at + 1]


def test_the_lines_around_a_fault_at_the_end_of_a_skimmed_source_are_read(
    tmp_path: Path, rules: RuleSet, skimmed: list[str]
) -> None:
    for rank in range(MANY):
        odd = rank == MANY - 3
        end = ["saving the state\n", *ERROR.splitlines(keepends=True), "cleaning up\n"] if odd else []
        write(tmp_path / "logs", f"rank_{rank}.log", [*step_lines(rank, 300), *end])
    fast, slow = both(tmp_path / "logs", rules)
    assert len(skimmed) == MANY - ALIKE
    assert told(fast, rules) == told(slow, rules)
    odd = str(tmp_path / "logs" / f"rank_{MANY - 3}.log")
    assert {e.line for e in fast.events("line.speaker") if e.source == odd} >= {
        e.line for e in slow.events("line.speaker") if e.source == odd and e.line > 300
    }


def test_a_long_source_is_skimmed_in_its_blocks(tmp_path: Path, rules: RuleSet, skimmed: list[str]) -> None:
    for rank in range(ALIKE + 2):
        lines = step_lines(rank, 2000, times=12)
        if rank == ALIKE + 1:
            lines.insert(18_000, "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.\n")
        write(tmp_path / "logs", f"rank_{rank}.log", lines)
    fast, slow = both(tmp_path / "logs", rules)
    assert len(skimmed) == 2
    assert ends_of(fast) == ends_of(slow)
    assert told(fast, rules)["faults"] == told(slow, rules)["faults"]


def test_names_that_differ_in_what_was_drawn_are_alike() -> None:
    learned = LearnedShapes()
    one = learned.alike("/tmp/ray/worker-0a1b2c3d4e5f6071-ffffffff-4711.out")
    assert learned.alike("/tmp/ray/worker-99ffaa00bb11cc22-01000000-815.out") is one
    assert learned.alike("/tmp/ray/worker-99ffaa00bb11cc22-01000000-815.err") is not one


def test_a_counter_of_a_skimmed_source_is_found_where_it_is_found_line_by_line(
    tmp_path: Path, rules: RuleSet, skimmed: list[str]
) -> None:
    for rank in range(MANY):
        lines = [f"work item {n}: done, round {n // 4} of 900 in {n % 7} parts\n" for n in range(2000 + rank)]
        write(tmp_path / "logs", f"rank_{rank}.log", [*lines, *["waiting for others\n"] * (rank % 3 * 8)])
    fast, slow = both(tmp_path / "logs", rules)
    assert len(skimmed) == MANY - ALIKE

    def counted(found: Observations) -> dict[str, tuple[int, str]]:
        return {event.source: (event.line, event.fields["step"]) for event in found.events(COUNTER)}

    assert counted(fast) == counted(slow) != {}
