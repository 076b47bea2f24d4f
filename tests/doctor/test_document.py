"""What differs between hosts, the document and its text."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from nccl_triage import resources
from nccl_triage.doctor import checks
from nccl_triage.doctor.document import HostAnswer, build, comparable, differences
from nccl_triage.doctor.text import text
from tests.doctor.hosts import LO, facts, gpu, interface, port

SCHEMA = json.loads((resources.reports_dir() / "schema" / "doctor.schema.json").read_text("utf-8"))
DIFFERENCES = checks.shipped()[1]


def document(*collected: HostAnswer) -> dict[str, Any]:
    made = build(collected)
    jsonschema.validate(made, SCHEMA)
    return made


def host(name: str, **changes: Any) -> HostAnswer:
    return HostAnswer(name, {"facts": facts(**changes), "unseen": [], "seconds": {}})


def test_the_minority_is_blamed_and_a_tie_is_not() -> None:
    hosts = {name: facts() for name in ("a", "b", "c")} | {"d": facts(gpus__driver__module="535.86.10")}
    [found] = differences(hosts, DIFFERENCES)
    assert (found["fact"], found["state"], found["majority"], found["minority"]) == (
        "driver",
        "failed",
        "550.54.15",
        ["d"],
    )
    assert found["values"] == [
        {"value": "550.54.15", "hosts": ["a", "b", "c"]},
        {"value": "535.86.10", "hosts": ["d"]},
    ]
    assert found["causes"] == ["driver-cuda-mismatch"]
    [found] = differences({"a": hosts["a"], "d": hosts["d"]}, DIFFERENCES)
    assert (found["has_majority"], found["minority"]) == (False, [])


def test_a_variable_that_only_some_set_differs_but_what_was_not_seen_does_not() -> None:
    silent = facts(gpus={"driver": {}}, software={})
    odd = facts(environment__variables={"NCCL_DEBUG": "WARN", "NCCL_IB_TC": "106", "RANK": "3"})
    [found] = differences({"a": facts(), "b": silent, "c": odd}, DIFFERENCES)
    assert (found["fact"], found["minority"]) == ("variable:NCCL_IB_TC", ["c"])
    assert found["title_zh"] == "变量 NCCL_IB_TC"


def test_every_difference_that_the_rules_know_can_be_found() -> None:
    gid = {"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:0a00:0001", "type": "RoCE v2", "interface": "eth0"}
    ports = [port("mlx5_0", link="Ethernet", gids=[gid])]
    one = facts(infiniband__ports=ports, software__wheels={"vllm": "0.8.0", "ray": "2.40.0"})
    two = facts(
        system__kernel="5.15.0",
        gpus__driver__module="535.86.10",
        gpus__gpus=[gpu(0)],
        software={"python": "3.10.1", "torch": "2.5.0", "cuda": "12.1", "nccl": "2.20.5"}
        | {"wheels": {"vllm": "0.7.0", "ray": "2.39.0"}},
        network__interfaces=[LO, interface("eth1", "10.1.0.1", mtu=1500)],
        infiniband__ports=[port("mlx5_0", link="Ethernet", rate=200.0, firmware="x", gids=[{**gid, "index": 5}])],
        limits__memlock={"soft": 65536, "hard": 65536},
        limits__nofile={"soft": 1024, "hard": 1024},
        limits__shm={"size": 64 << 20, "free": 1 << 20},
        environment__variables={"NCCL_DEBUG": "INFO"},
    )
    found = differences({"a": one, "b": two}, DIFFERENCES, {"a": 0.0, "b": 7.5})
    names = {entry["fact"] for entry in found}
    assert {name.replace("variable:NCCL_DEBUG", "variable:*") for name in names} == set(DIFFERENCES)
    assert [entry["state"] for entry in found] == sorted(
        (entry["state"] for entry in found), key=["failed", "warning", "note"].index
    )


def test_equal_hosts_do_not_differ() -> None:
    slower = facts(limits__shm={"size": 250 << 30, "free": 1 << 30})  # half of a memory that is a little smaller
    shared = {"a": facts(), "b": facts(limits__shm={"size": 251 << 30, "free": 1 << 30})}
    assert differences({"a": shared["b"], "b": slower}, DIFFERENCES, {"a": 0.01, "b": 0.2}) == []
    assert comparable({}) == {}


def test_what_is_wrong_comes_first_and_the_same_is_said_once() -> None:
    hot = [gpu(0, ecc_uncorrected=2), gpu(1, ecc_uncorrected=2)]
    seen = document(
        host("gpu01", gpus__gpus=hot, limits__nofile={"soft": 20000, "hard": 20000}),
        host("gpu02", limits__nofile={"soft": 20000, "hard": 20000}),
        HostAnswer("gpu03", problem="Ray calls this node dead"),
    )
    assert seen["verdict"] == "problems"
    lines = text(seen, "en").splitlines()
    assert lines[0] == "nccl-triage doctor: 3 hosts: 3 failed, 2 notes"
    assert lines[1] == "FAILED: gpu03 did not answer: Ray calls this node dead"
    assert lines[2].startswith("FAILED: gpu01 GPU 0, GPU 1: 2 uncorrectable ECC errors")
    [files] = [line for line in lines if "[nofile]" in line]
    assert files.startswith("note: gpu01, gpu02: This process may open 20000 files")
    fine = lines[lines.index("fine:") :]
    assert "    driver 550.54.15 (minimum 535.104.05)" in fine
    assert not any("ECC" in line for line in fine)
    chinese = text(seen, "zh")
    assert "失败：" not in chinese.splitlines()[0]
    assert "gpu03 没有应答" in chinese


def test_hostile_names_do_not_reach_the_terminal() -> None:
    seen = document(host("gpu\x1b[31m01", environment__variables={"NCCL_IB_HAC": "\x1b]0;x\x07"}))
    shown = text(seen, "en")
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_a_host_in_good_order_is_healthy() -> None:
    seen = document(host("gpu01"))
    assert seen["verdict"] == "healthy"
    assert text(seen, "en").splitlines()[0] == "nccl-triage doctor: gpu01: nothing wrong was seen"
