"""JSON documents of tools: error.json of torchelastic, and what the doctor saw of hosts, beside a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose, tool_reports
from nccl_triage.doctor.document import HostAnswer, build
from nccl_triage.observations.store import SourceInfo
from nccl_triage.tool_reports import json_reports
from tests.doctor.hosts import LO, facts, gpu, interface

STACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\nRuntimeError: boom\n'


def render(data: bytes) -> bytes | None:
    return json_reports.render_torch_error(data, SourceInfo("error.json"))


def error_document(**message: object) -> bytes:
    return json.dumps({"message": message}).encode()


def test_the_call_stack_is_shown_and_nothing_else() -> None:
    data = error_document(message="RuntimeError: boom", extraInfo={"py_callstack": STACK, "timestamp": "1732357351"})
    assert render(data) == STACK.encode()


def test_a_stack_without_end_of_line_gets_one() -> None:
    data = error_document(message="x", extraInfo={"py_callstack": STACK.rstrip("\n"), "timestamp": "1"})
    assert render(data) == STACK.encode()


@pytest.mark.parametrize("extra", [None, {}, {"py_callstack": None}, {"py_callstack": ""}, "text"])
def test_without_a_stack_the_message_is_shown(extra: object) -> None:
    assert render(error_document(message="RuntimeError: boom", extraInfo=extra)) == b"RuntimeError: boom\n"


def test_a_plain_message() -> None:
    assert render(b'{"message": "Signal 9 (SIGKILL) received by PID 40233"}') == (
        b"Signal 9 (SIGKILL) received by PID 40233\n"
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b'{"message": {"message": "cut o',
        b"[1, 2]",
        b'{"error": "of another program"}',
        b'{"message": 5}',
        b'{"message": {"message": 5, "extraInfo": {"py_callstack": ["x"]}}}',
        b"\xff\xfe{",
        b"[" * 100_000,
    ],
)
def test_something_else_is_not_rendered(data: bytes) -> None:
    assert render(data) is None


def test_undecodable_characters_do_not_raise() -> None:
    assert render(b'{"message": "bad \\udc80 byte"}') == b"bad ? byte\n"


def test_only_the_name_counts() -> None:
    assert tool_reports.recognise("error.json", b"") is json_reports.REPORTS[2]
    assert tool_reports.recognise("my_error.json", b"") is None
    assert tool_reports.recognise("error.json.log", b"") is None


WATCHDOG = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=120, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 600035 "
    "milliseconds before timing out.\n"
)
NAMED = "{host}:{pid}:{pid} [0] NCCL INFO Bootstrap : Using eth0:10.0.0.{rank}<0>\n"
STEPS = "".join(f"step {step}/100 loss 2.5\n" for step in range(50))


def saved(path: Path, **hosts: dict[str, Any]) -> str:
    collected = [HostAnswer(name, {"facts": facts(**changes), "unseen": []}) for name, changes in hosts.items()]
    path.write_bytes(json.dumps(build(collected), sort_keys=True).encode())
    return str(path)


def log(path: Path, *lines: str) -> str:
    started = "".join(NAMED.format(host=f"gpu0{rank}", pid=100 + rank, rank=rank) for rank in (1, 2, 3))
    path.write_text(started + "".join(lines))
    return str(path)


def document(*paths: str) -> dict[str, Any]:
    return diagnose(list(paths), model=None).to_dict()


def evidence(found: dict[str, Any], cause: str) -> list[str]:
    [entry] = [one for one in found["diagnoses"] if one["cause"] == cause] or [{"evidence": []}]
    return [item["text"] for item in entry["evidence"] if item["signature"].startswith("host.")]


def test_a_line_a_fact_of_its_host(tmp_path: Path) -> None:
    path = Path(saved(tmp_path / "x.json", gpu01={"limits__shm": {"size": 64 << 20, "free": 60 << 20}}, gpu02={}))
    data = path.read_bytes()
    form = tool_reports.recognise("x.json", data[: tool_reports.SAMPLE])
    assert form is json_reports.REPORTS[1]
    lines = [json.loads(line) for line in (form.render(data, SourceInfo("x.json")) or b"").splitlines()]
    told = [line["message"] for line in lines if line.get("host") == "gpu01"]
    assert "nccl-triage doctor: host=gpu01 fact=address value=10.0.0.1" in told
    assert "nccl-triage doctor: host=gpu01 check=shm state=warning says: /dev/shm has 64 MiB, 60 MiB free." in told
    assert "nccl-triage doctor: host=gpu01 fact=driver value=550.54.15" in told
    assert not any("check=" in line["message"] for line in lines if line.get("host") == "gpu02")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"kind": "nccl-triage-doctor"',
        b'{"differences": [], "kind": "another"}',
        b"[" * 100_000,
    ],
)
def test_something_else_is_no_document_of_the_doctor(data: bytes) -> None:
    assert json_reports.render_doctor(data, SourceInfo("x.json")) is None


@pytest.mark.parametrize(
    "hosts", [None, 5, [5, None, {}], [{"host": {}, "checks": [{}, 7], "facts": [], "comparable": [1]}]]
)
def test_odd_documents_break_nothing(hosts: Any) -> None:
    data = json.dumps({"kind": "nccl-triage-doctor", "hosts": hosts}).encode()
    assert json_reports.render_doctor(data, SourceInfo("x.json")) is not None


def test_facts_make_no_failure_of_a_healthy_log(tmp_path: Path) -> None:
    bad = {"gpus__gpus": [gpu(0, ecc_uncorrected=9, fault="lost")], "limits__shm": {"size": 1, "free": 0}}
    hosts = saved(tmp_path / "hosts.json", gpu01=bad, gpu02={"software__nccl": "2.14.3"})
    assert document(log(tmp_path / "a.log", STEPS), hosts)["verdict"] == "healthy"
    assert document(hosts)["verdict"] == "unknown", "facts of hosts are no job"


def test_a_fact_that_fits_settles_what_the_log_leaves_open(tmp_path: Path) -> None:
    path = log(tmp_path / "a.log", *(WATCHDOG.format(rank=rank) for rank in (1, 2, 3)))
    before = document(path)
    hosts = saved(tmp_path / "hosts.json", gpu01={}, gpu02={}, gpu03={"gpus__gpus": [gpu(0, fault="lost")]})
    found = document(path, hosts)
    assert "gpu-hardware-fault" not in [one["cause"] for one in before["diagnoses"]]
    [candidate] = [one for one in found["diagnoses"] if one["cause"] == "gpu-hardware-fault"]
    assert candidate["status"] != "established"
    texts = evidence(found, "gpu-hardware-fault")
    assert any("host=gpu03 check=gpu-fault state=failed subject=GPU_0" in text for text in texts), texts
    assert candidate["culprits"][0]["host"] == "gpu03"
    assert {Path(one["path"]).name for one in candidate["evidence"] if one["signature"] == "host.check"} == {
        "hosts.json"
    }


def test_a_fact_that_does_not_fit_loses_against_the_log(tmp_path: Path) -> None:
    oom = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
    path = log(tmp_path / "a.log", STEPS, oom, *(WATCHDOG.format(rank=rank) for rank in (1, 3)))
    alone = document(path)["diagnoses"][0]
    bad = {"limits__shm": {"size": 64 << 20, "free": 60 << 20}, "gpus__manager": False}
    other = {
        "software__nccl": "2.14.3",
        "gpus__driver__module": "535.86.10",
        "environment__variables": {"NCCL_FOO": "1"},
    }
    first = document(path, saved(tmp_path / "hosts.json", gpu01=bad, gpu02=other, gpu03={}))["diagnoses"][0]
    assert (
        (first["cause"], first["status"]) == (alone["cause"], alone["status"]) == ("gpu-out-of-memory", "established")
    )
    assert first["confidence"] > alone["confidence"] - 0.1


def test_versions_that_differ_between_files_are_found(tmp_path: Path) -> None:
    path = log(tmp_path / "a.log", *(WATCHDOG.format(rank=rank) for rank in (1, 2, 3)))
    files = [
        saved(tmp_path / f"{name}.json", **{name: {"software__nccl": nccl}})
        for name, nccl in (("gpu01", "2.21.5"), ("gpu02", "2.21.5"), ("gpu03", "2.14.3"))
    ]
    found = document(path, *files)
    [text] = [text for text in evidence(found, "nccl-version-conflict") if "fact=nccl" in text]
    assert text.endswith("host=gpu03 fact=nccl value=2.14.3")
    [first] = [one for one in found["diagnoses"] if one["cause"] == "nccl-version-conflict"]
    assert first["status"] != "established"
    assert "nccl (gpu03)" in str(first["evidence"])


def test_hosts_outside_of_the_job_say_nothing(tmp_path: Path) -> None:
    path = log(tmp_path / "a.log", *(WATCHDOG.format(rank=rank) for rank in (1, 2, 3)))
    broken = {"gpus__gpus": [gpu(0, fault="lost")], "network__interfaces": [LO, interface("eth0", "10.9.9.9")]}
    found = document(path, saved(tmp_path / "hosts.json", gpu01={}, other77=broken))
    assert "gpu-hardware-fault" not in [one["cause"] for one in found["diagnoses"]]
    by_name = {**broken, "network__interfaces": [LO, interface("eth0", "10.0.0.3")]}
    found = document(path, saved(tmp_path / "more.json", **{"gpu03.cluster.local": by_name}, gpu01={}))
    assert "gpu-hardware-fault" in [one["cause"] for one in found["diagnoses"]]


def test_facts_leave_the_order_of_the_log_alone(tmp_path: Path) -> None:
    oom = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
    path = log(tmp_path / "a.log", oom, *(WATCHDOG.format(rank=rank) for rank in (1, 3)))
    hosts = saved(tmp_path / "hosts.json", gpu01={}, gpu02={}, gpu03={})
    alone, both = document(path), document(path, hosts)
    assert [one["confidence"] for one in both["diagnoses"]] == [one["confidence"] for one in alone["diagnoses"]]
    assert both["diagnoses"][0]["culprits"] == alone["diagnoses"][0]["culprits"]
    assert not any("filtered" in note and "hosts.json" in note for note in both["notes"])
