"""The kernel's log beside the trainer's: what concerns the job is joined to its rank, the rest is set aside and said."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from time import gmtime, strftime
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation import cases
from nccl_triage.execution.reading import scan_source
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.scan.scanner import Scanner
from nccl_triage.story import kernel_log
from nccl_triage.story.decisions import COUNTS
from nccl_triage.story.devices import Devices, is_kernel
from nccl_triage.story.identity import Identity
from tests.diagnosis import hosts
from tests.prefix_reading import find_sources

ROOT = Path(__file__).resolve().parents[2]

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
        ([hosts.xid(-9 * 3600 - 1800, "3b")], "before the job started"),
        ([hosts.xid(-40 * 86400, "3b", 48, "DBE")], "before the job started"),
        ([hosts.xid(9 * 3600 + 1800, "3b")], "after the job had ended"),
        ([hosts.xid(115, "c1")], "no rank of the job uses"),
    ],
)
def test_what_cannot_concern_a_failed_job_is_set_aside(tmp_path: Path, lines: list[str], reason: str) -> None:
    aside(hosts.verdict(tmp_path, FAILED, {"dmesg.gpu-a2.log": lines}), reason)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([hosts.xid(-9 * 3600, "3b")], "before the job started"),
        (["[91234.567890] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."], "finished"),
        ([hosts.oom(60, 777, "mysqld")], "outside the job"),
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
    assert f"one of ranks {ranks} on this host" in culprit["why"]


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
    aside(found, "outside the job")


def test_a_consequence_alone_blames_no_hardware(tmp_path: Path) -> None:
    lines = [hosts.xid(115, "3b", 45, "Ch 00000010"), hosts.xid(115, "3b", 43, "Ch 00000010")]
    found = hosts.verdict(tmp_path, FAILED, {"dmesg.gpu-a2.log": lines})
    assert all(one["cause"] != "gpu-hardware-fault" for one in found["diagnoses"][:1])


TIME_OUT = (
    "[rank{rank}]:[E603 {clock}.123456789 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=1800000) ran for 1800031 "
    "milliseconds before timing out."
)


def _time_outs(seconds: float) -> list[str]:
    clock = strftime("%H:%M:%S", gmtime(hosts.BEGIN + seconds))
    return [f"{hosts.stamp(seconds)} {TIME_OUT.format(rank=rank, clock=clock)}" for rank in (0, 1, 3)]


@pytest.mark.parametrize("minutes", [1, 11, 29])
@pytest.mark.parametrize("together", [False, True])
def test_a_fault_within_the_time_that_ranks_waited_counts(tmp_path: Path, minutes: int, together: bool) -> None:
    """The watchdog's line comes half an hour after the collective began; the Xid stands in between."""
    xid, lines = hosts.xid(60.0 * minutes, "3b"), _time_outs(1801.0)
    if together:
        found = hosts.verdict(tmp_path, "\n".join([xid, *lines]) + "\n", {})
    else:
        found = hosts.verdict(tmp_path, "\n".join(lines) + "\n", {"dmesg.log": [xid]})
    assert first_cause(found) == "gpu-hardware-fault"
    assert not [note for note in found["notes"] if note.startswith("Set aside")]


def test_order_within_one_source_is_certain(tmp_path: Path) -> None:
    """Lines of the kernel between the job's are of its time, even where their clock is ten hours off."""
    steps = [f"{hosts.stamp(10.0 * n)} INFO step {n} | loss 2.5 | 10.0 s/step" for n in range(4)]
    log = [*steps, hosts.xid(36_000 + 61, "3b"), *_time_outs(1841.0)]
    found = hosts.verdict(tmp_path, "\n".join(log) + "\n", {})
    assert first_cause(found) == "gpu-hardware-fault"


def test_a_log_of_the_kernel_that_was_printed_into_the_jobs_is_history(tmp_path: Path) -> None:
    """``dmesg -T`` at the end of a job's log tells of the days before, though it stands after the failure."""
    steps = [f"{hosts.stamp(10.0 * n)} INFO step {n} | loss 2.5 | 10.0 s/step" for n in range(4)]
    end = f"{hosts.stamp(1842.0)} INFO collecting logs"
    log = [*steps, *_time_outs(1841.0), end, hosts.xid(-7 * 86400 - 600, "3b"), hosts.xid(-9.2 * 3600, "3b"), end]
    aside(hosts.verdict(tmp_path, "\n".join(log) + "\n", {}), "before the job started")


def test_what_is_set_aside_is_evidence_against(tmp_path: Path) -> None:
    own = "[rank5]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    found = hosts.verdict(tmp_path, FAILED + own, {"dmesg.gpu-a2.log": [hosts.xid(-9 * 3600 - 1800, "3b")]})
    against = [row for one in found["diagnoses"] if one["cause"] == "gpu-hardware-fault" for row in one["against"]]
    assert [(row["signature"], row["says"]) for row in against if "is set aside" in row["says"]] == [
        (
            "nvidia-driver.xid_any",
            "A line that would support this cause is set aside: it was written before the job started.",
        )
    ]


def first_cause(document: dict[str, Any]) -> str:
    cause: str = document["diagnoses"][0]["cause"]
    return cause


KERNEL_CASES = [
    case
    for source in ("recorded", "written")
    for case in cases.read(ROOT / "corpus" / source)
    if case.log.is_file() and re.search(rb"NVRM|kernel:|oom-kill|Link is |mlx5_core|pcieport", case.log.read_bytes())
]


def _fates(events: list[Event], observations: Observations) -> dict[tuple[str, int, str], str]:
    """Return why each line of the kernel is set aside, "" for one that counts."""
    identity = Identity(observations, events)
    kept, decided = kernel_log.set_aside(events, lambda: Devices(identity, events))
    fates = {(e.source, e.line, e.signature): "" for e in kept if is_kernel(e)}
    return fates | {(e.source, e.line, e.signature): why.answer for e, why in decided if why.answer != COUNTS}


def _without_report(event: Event, fates: dict[tuple[str, int, str], str]) -> dict[tuple[str, int, str], str]:
    """Leave out the lines of one report of the out-of-memory killer: they share the fate of its victim."""
    if event.kind != "memory.killed":
        return fates
    return {key: why for key, why in fates.items() if not key[2].startswith("kernel.oom_")}


def test_knowing_a_line_changes_the_fate_of_no_other(rules: RuleSet) -> None:
    scanner = Scanner(rules)
    tried = 0
    for case in KERNEL_CASES:
        sources, _ = find_sources([str(case.log)], None)
        observations = Observations()
        for source in sources:
            observations.absorb(scan_source(source, scanner))
        events = observations.all_events()
        before = _fates(events, observations)
        for place, event in enumerate(events):
            if event.kind == "salient" and event.context.rank is None:
                other = replace(event, signature="kernel.made_known", kind="hardware.error", role="root")
            elif is_kernel(event):
                other = replace(event, signature="line.salient", kind="salient", role="context", fields={})
            else:
                continue
            tried += 1
            after = _fates([*events[:place], other, *events[place + 1 :]], observations)
            mine = {(e.source, e.line, e.signature) for e in (event, other)}
            left = {key: why for key, why in _without_report(event, before).items() if key not in mine}
            right = {key: why for key, why in _without_report(event, after).items() if key not in mine}
            assert left == right, (case.id, event.line, event.text[:100])
    assert tried > 60
