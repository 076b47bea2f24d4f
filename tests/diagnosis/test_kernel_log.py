"""The kernel's log beside the trainer's: what concerns the job is joined to its rank, the rest is set aside and said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.diagnosis import hosts

FAILED = hosts.trainer(dead=5)


def first(document: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    best = document["diagnoses"][0]
    return best["cause"], best["culprits"][0]


def test_an_xid_is_joined_to_the_rank_by_host_and_pci_address(tmp_path: Path) -> None:
    found = hosts.verdict(tmp_path, FAILED, {"dmesg.gpu-a1.log": [], "dmesg.gpu-a2.log": [hosts.xid(115, "3b")]})
    cause, culprit = first(found)
    assert cause == "gpu-hardware-fault"
    assert found["diagnoses"][0]["status"] == "established"
    assert (culprit["rank"], culprit["host"], culprit["gpu"]) == (5, "gpu-a2", 1)
    assert "0000:3b:00" in culprit["why"] and "0000:3b:00" in culprit["why_zh"]
    says = found["diagnoses"][0]["evidence"][0]["says"]
    assert "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS" in says and "Reboot" in says


def test_the_same_address_on_two_hosts_is_nobodys_without_the_host(tmp_path: Path) -> None:
    found = hosts.verdict(tmp_path, FAILED, {"kernel.log": [hosts.xid(115, "3b")]})
    assert found["diagnoses"][0]["cause"] == "gpu-hardware-fault"
    assert found["diagnoses"][0]["culprits"] == []


def aside(document: dict[str, Any], reason: str) -> None:
    assert document["diagnoses"] == [] or document["diagnoses"][0]["cause"] != "gpu-hardware-fault"
    assert [note for note in document["notes"] if note.startswith("Set aside") and reason in note], document["notes"]
    assert [note for note in document["notes_zh"] if note.startswith("未计入")]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([hosts.xid(-9 * 3600 - 1800, "3b")], "before the job began"),
        ([hosts.xid(-40 * 86400, "3b", 48, "DBE")], "before the job began"),
        ([hosts.xid(9 * 3600 + 1800, "3b")], "after the job had ended"),
        ([hosts.xid(115, "c1")], "no rank of the job uses"),
    ],
)
def test_what_cannot_concern_a_failed_job_is_set_aside(tmp_path: Path, lines: list[str], reason: str) -> None:
    aside(hosts.verdict(tmp_path, FAILED, {"dmesg.gpu-a2.log": lines}), reason)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([hosts.xid(-9 * 3600, "3b")], "before the job began"),
        (["[91234.567890] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."], "finished"),
        ([hosts.oom(60, 777, "mysqld")], "none of the job's"),
        ([hosts.oom(60, 777, "python3")], "finished"),
    ],
)
def test_a_healthy_job_stays_healthy(tmp_path: Path, lines: list[str], reason: str) -> None:
    found = hosts.verdict(tmp_path, hosts.trainer(finished=True), {"dmesg.gpu-a2.log": lines})
    assert found["verdict"] == "healthy", found["headline"]
    aside(found, reason)


def test_a_host_that_the_job_did_not_run_on(tmp_path: Path) -> None:
    lines = [hosts.oom(60, hosts.pid(2), "python3").replace("gpu-a2", name) for name in ("gpu-a7", "gpu-a2")]
    found = hosts.verdict(tmp_path, hosts.trainer(finished=True), {"messages": lines})
    assert any("did not run on" in note for note in found["notes"])


def test_clocks_of_other_zones_hide_no_fault(tmp_path: Path) -> None:
    found = hosts.verdict(tmp_path, FAILED, {"dmesg.gpu-a2.log": [hosts.xid(8 * 3600 + 117, "3b")]})
    assert first(found)[0] == "gpu-hardware-fault"
    assert first(found)[1]["rank"] == 5


def test_a_killed_process_is_joined_to_its_rank(tmp_path: Path) -> None:
    found = hosts.verdict(tmp_path, FAILED, {"messages": [hosts.oom(112, hosts.pid(5), "pt_main_thread")]})
    cause, culprit = first(found)
    assert (cause, culprit["rank"], culprit["host"]) == ("host-out-of-memory", 5, "gpu-a2")
    assert str(hosts.pid(5)) in culprit["why"]


def test_a_pid_of_another_host_is_no_match(tmp_path: Path) -> None:
    found = hosts.verdict(tmp_path, FAILED, {"messages": [hosts.oom(112, hosts.pid(2), "python3")]})
    assert all(culprit["rank"] != 2 for culprit in found["diagnoses"][0]["culprits"])


def test_the_pid_of_a_container_joins_the_only_rank_that_went_away_as_possible(tmp_path: Path) -> None:
    cause, culprit = first(hosts.verdict(tmp_path, FAILED, {"messages": [hosts.oom(112, 777, "pt_main_thread")]}))
    assert (cause, culprit["rank"], culprit["host"]) == ("host-out-of-memory", 5, "gpu-a2")
    assert culprit["why"].startswith("possibly: process 777 (pt_main_thread)") and culprit["why_zh"].startswith("可能")


@pytest.mark.parametrize(("gone", "ranks"), [((5, 6), "5-6"), ((2,), "4-7")])
def test_where_several_ranks_may_be_the_victim_none_is_named(gone: tuple[int, ...], ranks: str, tmp_path: Path) -> None:
    """Two of the host are silent, or none: rank 2 runs on the other one."""
    log = hosts.trainer(dead=gone[0])
    log = "".join(f"{line}\n" for line in log.splitlines() if not line.startswith(tuple(f"[rank{n}]" for n in gone)))
    found = hosts.verdict(tmp_path, log, {"messages": [hosts.oom(112, 777, "ray::WorkerDict")]})
    (culprit,) = found["diagnoses"][0]["culprits"]
    assert (culprit["rank"], culprit["host"], culprit["pid"]) == (None, "gpu-a2", 777)
    assert f"one of the ranks {ranks} on this host" in culprit["why"]


OWN = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "/a/train.py", line 7, in <module>\n'
    "[rank3]: KeyError: 'labels'\n"
)


@pytest.mark.parametrize(("bus", "cause"), [("3b", "application-exception"), ("9b", "gpu-hardware-fault")])
def test_an_xid_without_a_clock_counts_for_the_gpu_that_failed_first(tmp_path: Path, bus: str, cause: str) -> None:
    line = f"[91234.567890] NVRM: Xid (PCI:0000:{bus}:00): 79, GPU has fallen off the bus."
    found = hosts.verdict(tmp_path, hosts.trainer() + OWN, {"dmesg.gpu-a1.log": [line]})
    assert first(found)[0] == cause


def test_an_unrelated_kill_leaves_the_own_cause(tmp_path: Path) -> None:
    found = hosts.verdict(tmp_path, hosts.trainer() + OWN, {"messages": [hosts.oom(100, 777, "clickhouse-serv")]})
    assert first(found)[0] == "application-exception"
    aside(found, "none of the job's")


def test_a_consequence_alone_blames_no_hardware(tmp_path: Path) -> None:
    lines = [hosts.xid(115, "3b", 45, "Ch 00000010"), hosts.xid(115, "3b", 43, "Ch 00000010")]
    found = hosts.verdict(tmp_path, FAILED, {"dmesg.gpu-a2.log": lines})
    assert all(one["cause"] != "gpu-hardware-fault" for one in found["diagnoses"][:1])
