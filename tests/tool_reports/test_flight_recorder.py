"""Dumps as lines: every version, pickle and JSON, whatever the names; the same lines for the same dump."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from corpus.flight.convert import as_nccl, as_version, read_set, write_set
from nccl_triage import diagnose, tool_reports
from nccl_triage.observations.store import SourceInfo
from nccl_triage.recorder import dump as dumps
from nccl_triage.tool_reports import flight_recorder
from nccl_triage.tool_reports.flight_recorder import rank_in
from tests.recorder import build

SETS = Path(__file__).parents[2] / "corpus/flight/sets"
VERSIONS = ("1.4", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10")


def render(data: bytes, name: str = "nccl_trace_rank_3") -> tuple[list[str], SourceInfo]:
    info = SourceInfo(name)
    found = flight_recorder.render(data, info)
    assert found is not None
    return found.decode().splitlines(), info


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("fault", ["operation-0", "missing-3"])
def test_every_version_names_the_same_rank(version: str, fault: str, tmp_path: Path) -> None:
    made = {rank: as_version(one, version) for rank, one in as_nccl(read_set(SETS / fault)).items()}
    assert build.blamed(write_set(made, tmp_path)) == [int(fault[-1])]


@pytest.mark.parametrize("protocol", [None, 4, 5])
@pytest.mark.parametrize("active", [False, True])
def test_what_the_resiliency_extension_writes(protocol: int | None, active: bool, tmp_path: Path) -> None:
    """Python's own pickles or JSON with indents, no stacks, what is active alone or everything, and health checks."""
    for rank, document in as_nccl(read_set(SETS / "missing-1")).items():
        rows = [entry for entry in document["entries"] if not active or entry["state"] != "completed"]
        rows = [{name: value for name, value in entry.items() if name != "frames"} for entry in rows]
        checks = {"gpu": {"status": "Healthy", "output": ""}, "nic": {"status": "Healthy", "output": ""}}
        if rank == 1:
            checks["nic"] = {"status": "Failed", "output": "link_downed of mlx5_0\nrose\x1b[2J"}
        made = {**document, "entries": rows, "health_check_results": checks}
        if protocol is None:
            (tmp_path / f"_dump_{rank}.json").write_text(json.dumps(made, indent=4))
        else:
            (tmp_path / f"_dump_{rank}").write_bytes(pickle.dumps(made, protocol))
    found = diagnose(tmp_path, model=None)
    assert [culprit.rank for culprit in found.candidates[0].culprits] == [1]
    assert (
        found.case.value("recorder.broken_nic_ranks") == [1] and found.case.value("recorder.broken_gpu_ranks") is None
    )
    event = found.case.fact("recorder.broken_nic_ranks").events[0]  # type: ignore[union-attr]
    assert event.text == "flight recorder: health check of nic failed: link_downed of mlx5_0?rose?[2J"


def test_different_versions_in_one_set_are_compared_and_told(tmp_path: Path) -> None:
    recorded = as_nccl(read_set(SETS / "operation-3"))
    made = {rank: as_version(one, "2.4" if rank == 1 else "2.10") for rank, one in recorded.items()}
    found = diagnose(write_set(made, tmp_path), model=None)
    assert [culprit.rank for culprit in found.candidates[0].culprits] == [3]
    assert any("different versions (2.10, 2.4)" in note["en"] for note in found.notes)


def test_a_version_of_the_future_is_read_with_a_note() -> None:
    document = {**build.dump([("all_reduce", 8)], 2), "version": "3.1", "new_field": {"x": [1]}}
    document["entries"][0]["another"] = b"bytes"
    lines, info = render(pickle.dumps(document, 4))
    assert len(info.problems) == 1 and "version 3.1" in info.problems[0]
    assert lines[-1].endswith("completed at train_all_reduce.py:1 step")


def test_the_lines_of_a_dump() -> None:
    document = build.dump([("all_reduce", 8), ("send 0->1", 4, "started"), ("all_reduce", 8, "given-up")], 4)
    lines, info = render(pickle.dumps(document, 2))
    assert lines == [
        "2026-11-22T13:05:16.002000Z [rank3]: flight recorder: dump of version 2.10, 3 entries, records 0 to 2, world_size=4",
        "2026-11-22T13:05:16.002000Z [rank3]: flight recorder: group 0 (default_pg) has ranks 0-3",
        "2026-11-22T13:05:16.000000Z [rank3]: record 0 of group 0 (default_pg): all_reduce seq=1 in=[8] Float out=[8] Float completed at train_all_reduce.py:1 step",
        "2026-11-22T13:05:16.001000Z [rank3]: flight recorder: open record 1 of group 0 (default_pg): send 0->1 p2p_seq=1 in=[4] Float out=[4] Float started, not completed limit=600000ms at train_send.py:1 step",
        "2026-11-22T13:05:16.002000Z [rank3]: flight recorder: open record 2 of group 0 (default_pg): all_reduce seq=2 in=[8] Float out=[8] Float scheduled and given up limit=600000ms at train_all_reduce.py:2 step",
    ]
    assert info.rank == 3 and info.recorder is not None
    assert render(pickle.dumps(document, 5))[0] == lines == render(json.dumps(document).encode())[0]


def test_an_empty_dump_is_a_dump() -> None:
    lines, info = render(pickle.dumps(build.dump([], 4), 2))
    assert "no recorded operation" in lines[0] and info.recorder is not None


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_0", 0), ("comm_lib_trace_rank_17", 17), ("_dump_12", 12), ("fr-node-7_rank_3", 3),
        ("rank3_of_host12.pkl", 3), ("trace_gpu-09.cluster1.json", 1), ("7", 7), ("dump_rank-00012.pickle", 12),
        ("nccl_trace", None), ("trace_rank_999999", None), ("rank_70000", None),
    ],
)  # fmt: skip
def test_the_rank_stands_in_the_name(name: str, rank: int | None) -> None:
    assert rank_in(name) == rank


def test_a_dump_without_a_rank_is_read_and_told() -> None:
    lines, info = render(pickle.dumps(build.dump([("all_reduce", 8)], 2), 2), "trace")
    assert lines and info.recorder is None and "does not end in a rank" in info.problems[0]


def test_dumps_are_known_by_what_they_hold() -> None:
    pickled, text = pickle.dumps(build.dump([], 2), 2), json.dumps(build.dump([], 2)).encode()
    for data in (pickled, text, pickle.dumps(build.dump([("all_reduce", 8)], 2), 5)):
        assert tool_reports.recognise("anything", data[: tool_reports.SAMPLE]) is flight_recorder.REPORTS[0]
    for data in (
        b"",
        b"{}",
        pickle.dumps({"weights": [1]}),
        b'{"version": 3, "name": "package"}',
        b"NCCL INFO pg_config",
    ):
        assert tool_reports.recognise("nccl_trace_rank_0", data) is None


def test_lines_cannot_be_broken_by_what_a_dump_holds() -> None:
    document = build.dump([("all_reduce", 8)], 2)
    document["entries"][0].update(
        process_group=("0\n[rank9]: x", "a\x1b[31m\u2028b"), profiling_name="nccl:all\nreduce", state="done\r",
        frames=[{"name": "f\n", "filename": "a\x00b" * 999, "line": 1 << 70}, "no frame"], time_created_ns=1 << 62,
        input_sizes=[[-1, 1 << 80, 2], "x", [[3]]], input_dtypes=[None, 5, ["x"]], retired="yes", timeout_ms=True,
    )  # fmt: skip
    lines, _ = render(pickle.dumps(document, 4))
    assert len(lines) == 3 and all(line.isprintable() for line in lines)


def test_too_much_of_a_dump_is_cut_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumps, "MAX_ENTRIES", 3)
    lines, info = render(pickle.dumps(build.dump([("all_reduce", 8)] * 9, 2), 2))
    assert len(lines) == 5 and info.problems == ["only the last 3 of 9 entries were read"]


def test_what_would_run_code_is_left_out_and_told(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple[object, ...]:
            return (print, ("run",))

    data = pickle.dumps({"version": "2.10", "entries": [], "pg_config": Runs()}, 2)
    info = SourceInfo("nccl_trace_rank_0")
    assert flight_recorder.render(data, info) is None
    assert "nothing was executed" in info.problems[0]
    (tmp_path / "nccl_trace_rank_0").write_bytes(data)
    (tmp_path / "job.log").write_text("[rank1]: RuntimeError: CUDA error: out of memory\n")
    document = diagnose(tmp_path, model=None).to_dict()
    assert any("read safely" in problem for one in document["inputs"] for problem in one["problems"])
