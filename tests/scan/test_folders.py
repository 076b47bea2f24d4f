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
from nccl_triage.ingest.sources import find_sources
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.scan.sampling import ALIKE
from nccl_triage.scan.scanner import Scanner

RANKS, SIZE, ODD = 8, 40_000, 5
#: So many that of the last ones only the ends are read whole.
MANY = ALIKE + 6
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
def test_where_only_the_ends_are_read_whole_faults_and_culprits_are_the_same(
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
