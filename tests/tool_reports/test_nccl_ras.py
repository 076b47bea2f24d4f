"""What ncclras prints, as JSON and as text: the same ranks are named, and joined to the job's by process and host."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from nccl_triage import diagnose, tool_reports
from nccl_triage.document.diagnosis import Diagnosis
from nccl_triage.observations.store import SourceInfo
from nccl_triage.tool_reports import nccl_ras


def rank(number: int, count: int = 6650, host: str = "172.16.64.210", **status: Any) -> dict[str, Any]:
    state = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    return {
        "rank": number, "host": host, "pid": 4800 + number, "cuda_dev": number, "nvml_dev": number,
        "status": {**state, **status}, "collective_counts": {"Broadcast": 4, "AllReduce": count},
    }  # fmt: skip


def report(ranks: list[dict[str, Any]], missing: list[dict[str, Any]] | None = None) -> bytes:
    comm = {
        "hash": "0xae94423cfbb2ef4a", "secondary_hash": "0x1:0x2", "size": len(ranks) + len(missing or []),
        "ranks_count": len(ranks), "missing_ranks_count": len(missing or []), "ranks": ranks, "missing_ranks": missing or [],
    }  # fmt: skip
    document = {
        "nccl_version": "2.29.1", "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
        "timestamp": "2025-12-19 13:06:53", "communicators_count": 1, "communicators": [comm],
        "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
    }  # fmt: skip
    return json.dumps(document, indent=2).encode()


def lines(data: bytes) -> list[str]:
    assert tool_reports.recognise("ras.json", data[: tool_reports.SAMPLE]) is nccl_ras.REPORTS[0]
    found = nccl_ras.render(data, SourceInfo("ras.json"))
    assert found is not None
    return found.decode().splitlines()


def told(data: bytes) -> Diagnosis:
    return diagnose("-", stdin=io.BytesIO(data), model=None)


TEXT = """
  #0-0 (27a079b828ff1a75) MISMATCH
    Communicator ranks have different collective operation counts
    26 ranks have launched up to operation 6650
    2 ranks have launched up to operation 6649
    Rank 2 -- GPU 2 managed by process 4802 on node 172.16.64.210
    Rank 5 -- GPU 5 managed by process 4805 on node 172.16.64.210
"""


def test_who_is_behind_by_text_and_by_json() -> None:
    behind = [rank(number, 6649 if number in (2, 5) else 6650) for number in range(8)]
    for data in (report(behind), TEXT.replace("collective operation", "AllReduce operation").encode()):
        found = told(data)
        assert found.case.value("collective.behind_ranks") == [2, 5]
        assert [culprit.rank for culprit in found.candidates[0].culprits] == [2, 5]


def test_a_report_without_outliers_blames_nobody() -> None:
    data = report([rank(number) for number in range(4)])
    assert lines(data)[1].endswith("4 ranks, 4 answered: OK")
    assert told(data).case.value("collective.behind_ranks") is None


def test_ranks_that_do_not_answer_and_dead_processes() -> None:
    gone = {**rank(3, host="172.16.64.213"), "status": {"unresponsive": True, "considered_dead": True}}
    data = report([rank(number) for number in range(3)], [gone])
    text = lines(data)
    assert "  Missing communicator data from 1 rank" in text
    assert "  1 job process is considered dead (unreachable via the RAS network)" in text
    assert told(data).case.value("ras.silent_ranks") == [3]
    assert told(data).cause == "process-crashed"


def test_a_missing_comma_is_mended() -> None:
    gone = {**rank(1), "status": {"unresponsive": True, "considered_dead": False}}
    data = report([rank(0)], [gone])
    broken = data.replace(b'"nvml_dev": 1,\n', b'"nvml_dev": 1\n')
    assert broken != data
    assert lines(broken) == lines(data)


def test_errors_and_states() -> None:
    text = lines(report([rank(0), rank(1, async_error=6), rank(2, abort_flag=True), rank(3, init_state=7)]))
    assert any("Rank 1 reported Remote process error -- GPU 1" in line for line in text)
    assert any("Rank 2 has status ABORT" in line for line in text)
    assert any("Rank 3 has status INIT" in line for line in text)


def test_events_of_the_monitor() -> None:
    event = {"timestamp": "2025-12-19 13:07:07", "group": "LIFECYCLE", "event": "PEER_DEAD", "peer": {"host": "172.16.64.245", "pid": 77, "cuda_devs": [1], "nvml_devs": [1]}, "details": ""}  # fmt: skip
    data = json.dumps(event, indent=2).encode() * 2
    assert lines(data) == ["[2025-12-19 13:07:07] PEER_DEAD: Process 77 on node 172.16.64.245 managing GPU 1"] * 2
    assert told(data).case.count("nccl.ras_monitor_dead") == 2


def test_ranks_are_joined_by_process_and_host() -> None:
    """The communicator's rank 1 is the job's rank 9: its process says so in the log."""
    log = b"node-b:4801:4900 [1] NCCL INFO ncclCommInitRank comm 0x1 rank 9 nranks 16 cudaDev 1 nvmlDev 1 busId 1 commId 0x2 - Init COMPLETE\n"  # fmt: skip
    text = lines(report([rank(0), rank(1, 6649, "node-b"), rank(2)]))
    found = told(log + "\n".join(text).encode())
    assert found.case.value("collective.behind_ranks") == [9]


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'{"communicators": 5}', b'{"nccl_version": 1, "communicators": [5, {"ranks": [1, {}], "missing_ranks": {}}]}', b'{"event": [], "peer": {"pid": {}}}', b"[" * 99_999])  # fmt: skip
def test_any_document_gives_lines_or_none(data: bytes) -> None:
    found = nccl_ras.render(data, SourceInfo("x"))
    assert found is None or found.endswith(b"\n")
