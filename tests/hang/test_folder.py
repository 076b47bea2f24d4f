"""What hosts send becomes a folder without secrets, whatever they call their files."""

from __future__ import annotations

import base64
import json
import stat
import zlib
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose
from nccl_triage.errors import OutputError
from nccl_triage.hang import folder
from nccl_triage.hang.hosts import HostReply, new_ranks, once_each, without_launchers

SECRET = "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"


def rank(number: int | None, pid: int, **changes: Any) -> dict[str, Any]:
    """Return a rank as a host describes it."""
    local = None if number is None else number % 4
    own = {
        "rank": number,
        "local_rank": local,
        "world_size": 8,
        "local_world_size": 4,
        "command": f"train --token={SECRET}",
    }
    return {"pid": pid, "started": 1, "variables": {"NCCL_DEBUG": "INFO"}, "workers": [], **own, **changes}


def reply(name: str = "gn01", **found: Any) -> HostReply:
    """Return the reply of a host."""
    return HostReply(name, {"host": f"{name}.cluster", "identity": [name, "pid:[1]"], "jobs": {}, **found})


def sent(host: HostReply, name: str, data: bytes) -> None:
    """Send a file in two pieces."""
    for piece in (data[:5], data[5:]):
        host.take({"answer": "file", "name": name, "data": base64.b64encode(zlib.compress(piece)).decode()})


def written(place: Path, *hosts: tuple[HostReply, list[dict[str, Any]]], whole: bool = False) -> dict[str, Any]:
    """Write the folder and return its manifest."""
    folder.name_hosts([one for one, _ in hosts])
    folder.create(place)
    return folder.write(place, "gn01:29500", hosts, whole=whole)


def test_files_are_private_masked_and_inside(tmp_path: Path) -> None:
    host = reply()
    for name in (
        "logs/../../../../evil.log",
        "/etc/passwd",
        "logs/run 1/train.log",
        "flight-recorder/trace_rank_0",
        "..",
        "",
        "hang.json",
    ):
        sent(host, name, f"export HF_TOKEN={SECRET}\n".encode())
    host.take({"answer": "sample", "pid": 11, "stacks": f"Process 11: train --token={SECRET}\n", "state": "S"})
    written(tmp_path / "out", (host, [rank(0, 11)]))
    files = {str(path.relative_to(tmp_path / "out")): path for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    assert json.loads(files["hang.json"].read_bytes())["kind"] == folder.KIND
    assert "logs/gn01/run-1/train.log" in files and "stack.gn01.11.rank0.txt" in files and "etc/passwd" in files
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files.values())
    holding = {name for name, path in files.items() if SECRET.encode() in path.read_bytes()}
    assert holding == {"flight-recorder/trace_rank_0"}, "a recorder's dump is kept as it is: it has no room for values"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputError, match="already exists"):
        folder.create(tmp_path / "out")


def test_hosts_of_one_name_are_told_apart(tmp_path: Path) -> None:
    first, second = reply("gn01"), reply("gn01")
    for host in (first, second):
        host.take({"answer": "sample", "pid": 11, "stacks": "Process 11: python train.py\n", "state": "S"})
    made = written(tmp_path / "out", (first, [rank(0, 11)]), (second, [rank(4, 11)]))
    assert [host["host"] for host in made["hosts"]] == ["gn01", "gn01-2"]
    assert {path.name for path in (tmp_path / "out").glob("stack.*")} == {
        "stack.gn01.11.rank0.txt",
        "stack.gn01-2.11.rank4.txt",
    }


def test_ranks_without_a_process_and_ranks_elsewhere(tmp_path: Path) -> None:
    host, silent = reply(), HostReply("gn02", problem="no answer")
    made = written(tmp_path / "out", (host, [rank(0, 11), rank(1, 12), rank(3, 14)]), (silent, []))
    assert made["hosts"][0]["without_process"] == [2]
    assert made["missing_ranks"] == [2, 4, 5, 6, 7]
    assert folder.notes(made, [host, silent], "en") == [
        "rank 2 has no process on gn01 any more",
        "gn02 did not answer: no answer",
        "rank 4-7 has no process on any host that answered",
    ]
    silent.problem = None
    made = written(tmp_path / "some", (host, [rank(0, 11), rank(1, 12), rank(3, 14)]))
    assert folder.notes(made, [host], "en")[1:] == [
        "rank 4-7 was on no host that was asked; name the other hosts with --host, --slurm or --ray",
    ]
    document = diagnose(tmp_path / "out").to_dict()
    assert "Rank 2 on gn01 is gone: it has no process any more" in document["headline"]
    assert document["diagnoses"][0]["cause"] == "rank-divergence"
    assert [one["rank"] for one in document["diagnoses"][0]["culprits"]] == [2]


def test_how_a_rank_ended_is_told(tmp_path: Path) -> None:
    """Also of one of which nothing but its parent knows that it was here."""
    host = reply(ended={"gn01:29500": {"2": 0, "7": None, "9": -9}, "other": {"1": 3}})
    made = written(tmp_path / "out", (host, [rank(0, 11), rank(1, 12), rank(3, 14)]))
    assert (made["hosts"][0]["without_process"], made["hosts"][0]["exit_codes"]) == ([2, 7, 9], {"2": 0, "9": -9})
    assert folder.notes(made, [host], "en")[:3] == [
        "rank 2 has no process on gn01 any more: it ended with exit code 0",
        "rank 7 has no process on gn01 any more",
        "rank 9 has no process on gn01 any more: it ended with exit code -9",
    ]


def test_what_slurm_started_on_a_host_is_known_in_any_order(tmp_path: Path) -> None:
    ranks = [rank(0, 11, host_ranks=[0, 2, 4]), rank(4, 12, host_ranks=[0, 2, 4])]
    made = written(tmp_path / "out", (reply(), ranks))
    assert made["hosts"][0]["without_process"] == [2]
    assert made["missing_ranks"] == [1, 2, 3, 5, 6, 7]


def test_what_is_nowhere_was_on_the_only_host_without_ranks(tmp_path: Path) -> None:
    ranks = [rank(number, 10 + number) for number in range(4)]
    hosts: list[tuple[HostReply, list[dict[str, Any]]]] = [(reply(), ranks), (reply("gn02"), [])]
    assert written(tmp_path / "whole", *hosts, whole=True)["hosts"][1]["without_process"] == [4, 5, 6, 7]
    assert written(tmp_path / "some", *hosts)["hosts"][1]["without_process"] == []
    silent = HostReply("gn03", problem="no answer")
    three = written(tmp_path / "silent", *hosts, (silent, []), whole=True)
    assert [host["without_process"] for host in three["hosts"]] == [[], [], []]


def test_a_host_that_stops_answering_is_told_from_one_that_never_did(tmp_path: Path) -> None:
    host = reply()
    host.take({"answer": "sample", "pid": 11, "stacks": "Process 11: python train.py\n", "state": "S"})
    host.problem = "Connection closed"
    made = written(tmp_path / "out", (host, [rank(0, 11, world_size=1, local_world_size=1)]))
    assert folder.notes(made, [host], "en") == ["gn01 stopped answering: Connection closed"]


def test_what_was_not_taken_is_said_once(tmp_path: Path) -> None:
    hosts = [reply("gn01"), reply("gn02")]
    for host in hosts:
        host.take({"answer": "unseen", "what": "stacks", "why": "no-py-spy", "values": {}})
        host.take({"answer": "unseen", "what": "gpus", "why": "no-program", "values": {"program": "nvidia-smi"}})
    made = written(tmp_path / "out", *((host, [rank(None, 11)]) for host in hosts))
    assert folder.notes(made, hosts, "en") == [
        "gn01, gn02: stacks: py-spy is not installed; run pip install py-spy, then this again"
    ]
    assert "nvidia-smi is not installed" in json.dumps(made)


@pytest.mark.parametrize(
    "answer",
    [
        {"answer": "file", "name": "x", "data": "no base64"},
        {"answer": "file", "name": 3, "data": ""},
        {"answer": "file", "name": "x"},
        {"answer": "sample", "pid": "11"},
        {"answer": "unseen"},
        {"answer": "found", "jobs": []},
        {},
    ],
)
def test_an_answer_of_another_form_is_passed_over(answer: dict[str, Any]) -> None:
    host = HostReply("gn01")
    host.take(answer)
    assert host == HostReply("gn01")


def test_a_host_under_two_names_counts_once() -> None:
    replies = {0: reply("gn01"), 1: reply("gn01"), 2: reply("gn02"), 3: HostReply("gn03", problem="no answer")}
    assert once_each(replies) == [0, 2, 3]


def test_a_rank_that_a_host_sees_in_its_container_counts_once() -> None:
    outside = reply("gn01", identity=["boot", "pid:[1]"], jobs={"a": [rank(0, 11), rank(1, 12)]})
    inside = reply("pod", identity=["boot", "pid:[2]"], jobs={"a": [rank(1, 3)], "b": [rank(1, 4)]})
    elsewhere = reply("gn02", identity=["other", "pid:[1]"], jobs={"a": [rank(1, 11)]})
    replies = {0: outside, 1: inside, 2: elsewhere}
    assert [sorted(new_ranks(replies, index)) for index in replies] == [["a"], ["b"], ["a"]]


def test_of_one_allocation_what_is_known_best_as_ranks_counts() -> None:
    def task(**variables: str) -> dict[int, list[dict[str, Any]]]:
        return {0: [rank(0, 11, by="SLURM_PROCID", variables={"SLURM_JOB_ID": "77", **variables})]}

    batch, agent = task(), task(SLURM_STEP_ID="0")
    ranks = {1: [rank(4, 12, by="RANK", variables={"SLURM_JOB_ID": "77"})]}
    other = {0: [rank(0, 13, by="RANK", variables={})]}
    assert without_launchers({"batch": batch, "agent": agent}) == {"agent": agent}
    assert without_launchers({"batch": batch, "agent": agent, "ranks": ranks, "other": other}) == {
        "ranks": ranks,
        "other": other,
    }
