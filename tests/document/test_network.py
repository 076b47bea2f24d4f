"""The network of a document: connections between ranks, addresses by network."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from nccl_triage import resources
from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text, scan_text

SCHEMA = json.loads((resources.reports_dir() / "schema" / "report.schema.json").read_text(encoding="utf-8"))


def peers(rules: RuleSet, *lines: str) -> dict[str, Any] | None:
    found = json.loads(json.dumps(diagnose_observations(scan_text("\n".join(lines), rules), rules).to_dict()))
    jsonschema.validate(found, SCHEMA)
    return found["peers"]  # type: ignore[no-any-return]


def head(rank: int, per_host: int = 2) -> str:
    return f"gpu{rank // per_host:02d}:{4000 + rank}:{5000 + rank} [{rank % per_host}] NCCL INFO"


def init(rank: int, nranks: int, own: int | None = None, per_host: int = 2) -> str:
    return (
        f"{head(rank, per_host)} ncclCommInitRank comm 0x55aa{nranks:02x} rank {rank if own is None else own} nranks {nranks} "
        f"cudaDev {rank % per_host} nvmlDev {rank % per_host} busId {rank:x}000 commId 0x9d1c{nranks:02x} - Init START"
    )


def channel(
    rank: int, source: int, target: int, via: str, number: int = 0, per_host: int = 2, devices: str = ""
) -> str:
    one, two = devices.split(",") if devices else (source % per_host, target % per_host)
    return f"{head(rank, per_host)} Channel {number:02d}/0 : {source}[{one}] -> {target}[{two}] {via}"


def ring(size: int, per_host: int = 2) -> list[str]:
    lines = [init(rank, size, per_host=per_host) for rank in range(size)]
    for rank in range(size):
        after = (rank + 1) % size
        if after // per_host == rank // per_host:
            lines.append(channel(rank, rank, after, "via P2P/CUMEM", per_host=per_host))
        else:
            lines.append(channel(rank, rank, after, "[send] via NET/IB/0/GDRDMA", per_host=per_host))
            lines.append(channel(after, rank, after, "[receive] via NET/IB/0/GDRDMA", per_host=per_host))
    return lines


def test_a_ring_of_ranks(rules: RuleSet) -> None:
    found = peers(rules, *ring(4), channel(0, 0, 1, "via P2P/CUMEM", 1))
    assert found is not None
    assert (found["unit"], found["names"], found["total"], found["complete"]) == ("rank", [0, 1, 2, 3], 4, True)
    assert found["links"] == [
        {"from": 0, "to": 1, "via": "P2P", "gpudirect": False, "channels": 2},
        {"from": 1, "to": 2, "via": "NET/IB", "gpudirect": True, "channels": 1},
        {"from": 2, "to": 3, "via": "P2P", "gpudirect": False, "channels": 1},
        {"from": 3, "to": 0, "via": "NET/IB", "gpudirect": True, "channels": 1},
    ]
    assert found["failed"] == []


def test_smaller_communicators_are_left_out(rules: RuleSet) -> None:
    """Ranks 0 and 2 form a group of two: its 0 -> 1 is not the job's."""
    group = [
        init(0, 2, own=0), init(2, 2, own=1),
        channel(0, 0, 1, "[send] via NET/Socket/0", devices="0,0"),
        channel(2, 1, 0, "[send] via NET/Socket/0", devices="0,0"),
    ]  # fmt: skip
    assert peers(rules, *ring(4), *group) == peers(rules, *ring(4))


def test_a_group_of_its_own_ranks_agrees_with_the_job(rules: RuleSet) -> None:
    """Ranks 0 and 1 form a group: their connection is one of the job's, whichever communicator printed it."""
    found = peers(rules, *ring(4), init(0, 2), channel(0, 0, 1, "via P2P/CUMEM", 5))
    assert found is not None
    assert found["links"][0] == {"from": 0, "to": 1, "via": "P2P", "gpudirect": False, "channels": 2}


def test_ranks_without_connections_are_left_out_when_they_are_most(rules: RuleSet) -> None:
    found = peers(rules, channel(51, 51, 56, "[send] via NET/IB/1", per_host=8))
    assert found is not None
    assert (found["names"], found["links"][0]["from"], found["links"][0]["to"]) == ([51, 56], 0, 1)


def test_few_connections_of_a_large_job(rules: RuleSet) -> None:
    found = peers(rules, init(7, 512, per_host=8), channel(7, 7, 8, "[send] via NET/IB/1", per_host=8))
    assert found is not None
    assert (found["unit"], found["names"]) == ("rank", [7, 8])


def test_many_ranks_are_told_host_by_host(rules: RuleSet) -> None:
    found = peers(rules, *ring(128, 8))
    assert found is not None
    assert (found["unit"], len(found["names"]), found["names"][0], found["total"]) == ("host", 16, "gpu00", 16)
    assert {"from": 0, "to": 0, "via": "P2P", "gpudirect": False, "channels": 7} in found["links"]
    assert {"from": 15, "to": 0, "via": "NET/IB", "gpudirect": True, "channels": 1} in found["links"]


def test_more_hosts_than_rows_become_blocks(rules: RuleSet) -> None:
    found = peers(rules, *ring(300, 2))
    assert found is not None
    assert (found["unit"], len(found["names"]), found["names"][0], found["names"][-1]) == (
        "block",
        60,
        "0-4",
        "295-299",
    )
    assert sum(link["channels"] for link in found["links"]) == 300


def test_hosts_that_failed_to_reach_each_other(rules: RuleSet) -> None:
    found = peers(
        rules,
        *ring(4),
        "gpu00:4000:5000 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",
        "gpu01:4002:5002 [0] NCCL INFO Bootstrap : Using eth0:10.0.1.2<0>",
        "gpu00:4000:5000 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.1.2<43210> failed : Connection refused",
    )
    assert found is not None
    assert (found["unit"], found["names"]) == ("host", ["gpu00", "gpu01"])
    assert found["failed"] == [{"from": 0, "to": 1, "path": "log", "line": 13}]


def test_failed_connections_alone(rules: RuleSet) -> None:
    found = peers(
        rules,
        "gpu00:4000:5000 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",
        "gpu01:4002:5002 [0] NCCL INFO Bootstrap : Using eth0:10.0.1.2<0>",
        "gpu00:4000:5000 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.1.2<43210> failed : Connection refused",
    )
    assert found is not None
    assert (found["unit"], found["links"], len(found["failed"])) == ("host", [], 1)


def test_old_lines_with_bus_ids(rules: RuleSet) -> None:
    found = peers(
        rules,
        "gpu07:4120:4388 [0] NCCL INFO Ring 00 : 0[3d000] -> 1[3e000] via P2P/IPC",
        "gpu07:4121:4389 [1] NCCL INFO Channel 00 : 1[3e000] -> 0[3d000] via direct shared memory",
    )
    assert found is not None
    assert [(link["from"], link["to"], link["via"]) for link in found["links"]] == [(0, 1, "P2P"), (1, 0, "SHM")]


def test_no_connections_no_square(rules: RuleSet) -> None:
    assert peers(rules, "step 1 loss 2.5", "hello") is None
    assert peers(rules, init(0, 4), init(1, 4)) is None


def test_absurd_ranks_are_ignored(rules: RuleSet) -> None:
    assert peers(rules, "gpu07:4120:4388 [0] NCCL INFO Channel 00/0 : 99999999999[0] -> 1[1] via P2P/CUMEM") is None
    assert peers(rules, *ring(4), channel(0, 0, 7, "via SHM/direct/direct")) == peers(rules, *ring(4))


USING = "{0}:10:10 [0] NCCL INFO Bootstrap : Using {1}:{2}<0>\n"
REFUSED = (
    "{0}:10:20 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to {1}<51873> failed : Connection refused\n"
)


def test_networks_kinds_and_the_failed_connection(rules: RuleSet) -> None:
    text = (
        USING.format("gpu-a", "eth0", "10.0.0.1")
        + USING.format("gpu-b", "eth0", "10.0.0.2")
        + USING.format("gpu-c", "docker0", "172.17.0.1")
        + USING.format("gpu-d", "ens3", "45.63.16.199")
        + REFUSED.format("gpu-a", "45.63.16.199") * 3
    )
    found = diagnose_text(text, rules).to_dict()["network"]
    kinds = {n["network"]: (n["kind"], n["total"]) for n in found["networks"]}
    assert kinds == {
        "10.0.0.0/24": ("private", 2), "172.17.0.0/24": ("container", 1), "45.63.16.0/24": ("public", 1)
    }  # fmt: skip
    assert found["networks"][0]["network"] == "10.0.0.0/24"
    failed = found["failed"][0]
    assert (failed["from"], failed["to"], failed["address"], failed["count"]) == ("gpu-a", "gpu-d", "45.63.16.199", 3)


def test_many_hosts_are_counted_and_cut(rules: RuleSet) -> None:
    text = "".join(USING.format(f"n{i}", "eth0", f"10.0.0.{i}") for i in range(1, 101))
    (network,) = diagnose_text(text, rules).to_dict()["network"]["networks"]
    assert network["total"] == 100 and len(network["members"]) == 64


def test_without_an_address_there_is_no_map(rules: RuleSet) -> None:
    assert diagnose_text("step 1 loss 2.0\n", rules).to_dict()["network"] is None
