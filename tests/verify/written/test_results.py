"""Results as ranks leave them, good and bad, and the verdict that follows: no rank is started here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import UsageError
from nccl_triage.verify.feedback import contradicted
from nccl_triage.verify.judge import ExperimentOutcome, Report
from nccl_triage.verify.written import files
from tests.verify.whole_report import document
from tests.verify.written.file_runs import labels, result, written

HOSTS = ("node-a", "node-b")
NCCL = {"backend": "nccl"}


def judged(asked: dict[str, Any], rules: RuleSet, folder: Path) -> tuple[ExperimentOutcome, Report]:
    _, report = files.judge(asked, rules, folder)
    return report.outcomes[0], report


def differences(outcome: ExperimentOutcome) -> str:
    return "; ".join(text["en"] for text in outcome.planned.differs)


@pytest.fixture
def link_fault(tmp_path: Path, rules: RuleSet) -> tuple[dict[str, Any], Path]:
    """The runs for a link between two hosts that is suspected, without results."""
    asked = document("network-link-fault", hosts=HOSTS)
    return asked, written(tmp_path / "work", asked, rules, **NCCL)


def test_a_link_that_works_now_on_the_hosts_of_the_log_is_not_reproduced(
    link_fault: tuple[dict[str, Any], Path], rules: RuleSet
) -> None:
    asked, folder = link_fault
    for label in labels(folder):
        for rank, host in enumerate(HOSTS):
            result(folder, label, rank, host)
    changed, report = files.judge(asked, rules, folder)
    assert report.outcomes[0].row.id == "not-reproduced"
    assert not contradicted(changed, "network-link-fault")
    assert [place.name for place in report.plan.means.places] == list(HOSTS)


def test_other_hosts_than_those_of_the_log_refute_nothing(
    link_fault: tuple[dict[str, Any], Path], rules: RuleSet
) -> None:
    asked, folder = link_fault
    for label in labels(folder):
        for rank, host in enumerate(("node-a", "node-z")):
            result(folder, label, rank, host)
    outcome, _ = judged(asked, rules, folder)
    assert outcome.row.id == "other-hosts"
    assert "on node-z, which the log does not name" in differences(outcome)


def test_a_host_that_the_log_knows_by_its_address_is_the_same_host(
    link_fault: tuple[dict[str, Any], Path], rules: RuleSet
) -> None:
    _, folder = link_fault
    for label in labels(folder):
        for rank, host in enumerate(HOSTS):
            path = result(folder, label, rank, host)
    address = json.loads(path.read_text().splitlines()[0])["facts"]["own_addresses"][0]
    outcome, _ = judged(document("network-link-fault", hosts=("node-a", address)), rules, folder)
    assert outcome.row.id == "not-reproduced"


def test_a_link_that_fails_and_one_host_that_works_confirm(
    link_fault: tuple[dict[str, Any], Path], rules: RuleSet
) -> None:
    asked, folder = link_fault
    plan = json.loads((folder / "plan.json").read_text())["experiments"][0]
    inside = [label for item in plan["treatments"] if item["variable"] == "placement" for label in item["runs"]]
    assert len(inside) == 2
    assert json.loads((folder / f"spec-{inside[0]}.json").read_text())["places"] == [0, 0]
    for label in labels(folder):
        for rank, host in enumerate(HOSTS):
            if label in inside:
                result(folder, label, rank, "node-b")
            else:
                result(folder, label, rank, host, "entered", error="Connection timed out", end={"code": 3})
    outcome, report = judged(asked, rules, folder)
    assert outcome.row.id == "fails-and-treatment-passes"
    assert outcome.row.outcome == "confirmed"
    by_label = {trial.result.run.label: trial.result for trial in report.trials}
    assert [slot.place for slot in by_label[inside[0]].run.slots] == [1, 1]


@pytest.mark.parametrize(("late", "kinds"), [(0.0, []), (4.0, ["late"])])
def test_clocks_that_start_apart_are_no_lateness(tmp_path: Path, rules: RuleSet, late: float, kinds: list[str]) -> None:
    asked = document("straggler")
    folder = written(tmp_path / "work", asked, rules, **NCCL)
    for label in labels(folder):
        result(folder, label, 0, skew=30.0)
        result(folder, label, 1, late=late)
    outcome, _ = judged(asked, rules, folder)
    assert [finding.kind for finding in outcome.findings] == kinds
    assert [finding.ranks for finding in outcome.findings] == [(1,)] * len(kinds)


def test_a_rank_that_did_not_come_to_the_store_is_named(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("rendezvous-failed")
    folder = written(tmp_path / "work", asked, rules, **NCCL)
    for label in labels(folder)[:2]:
        result(folder, label, 0, until="device", error="timed out waiting for the store", end={"code": 3})
        result(folder, label, 1, until="device", end={"code": -9, "killed": True, "why": "deadline before 'store'"})
    outcome, _ = judged(asked, rules, folder)
    assert [(f.kind, f.ranks, f.hosts) for f in outcome.findings] == [("never-joined", (1,), ("node-a",))]
    assert outcome.row.outcome == "supported"


def test_a_rank_without_a_result_says_nothing_of_the_hosts(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("rendezvous-failed")
    folder = written(tmp_path / "work", asked, rules, **NCCL)
    why = "rank 1 was not ready within 90 s"
    for label in labels(folder)[:2]:
        result(folder, label, 0, until="device", end={"code": -9, "killed": True, "why": why})
    outcome, report = judged(asked, rules, folder)
    assert outcome.findings == []
    assert report.problems[0]["en"] == "run-01: no result from rank 1"
    told = report.trials[0].result
    assert (told.outcome, told.ranks[1].stage, told.reason) == ("not-run", "started", f"rank 0 was stopped: {why}")
    assert told.own_failure is not None and told.own_failure["en"].startswith("rank 1 had not imported torch")


def test_a_rank_that_was_stopped_at_its_deadline_gives_the_reason(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("rank-divergence")
    folder = written(tmp_path / "work", asked, rules, **NCCL)
    stopped = {"code": -9, "killed": True, "state": "S", "why": "deadline before 'entered': 20 s"}
    for label in labels(folder):
        result(folder, label, 0, until="entered", error="timed out", end={"code": 3})
        result(folder, label, 1, until="group", end=stopped)
    outcome, report = judged(asked, rules, folder)
    assert [(f.cause, f.kind, f.ranks) for f in outcome.findings] == [("rank-divergence", "absent", (1,))]
    assert report.trials[0].result.reason == "rank 1 was stopped: deadline before 'entered': 20 s"


def test_what_is_broken_in_a_file_is_skipped(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("rank-divergence")
    folder = written(tmp_path / "work", asked, rules, **NCCL)
    junk = [
        "{", "[1]", '"text"', "\x00\xff", '{"stage": 5}', '{"no": "stage"}', '{"stage": "done", "t": "late"}',
        '{"stage": "done", "t": NaN, "wrong": 0}', '{"stage": "part", "t": 3, "wrong": "x"}',
        '{"stage": "call", "t": 3, "call": 7}', '{"stage": "call", "t": 3, "call": "all_reduce", "message": 4}',
        '{"stage": "flight", "t": 3, "entries": "none"}', '{"stage": "error", "t": true}', "[" * 5000,
    ]  # fmt: skip
    for label in labels(folder):
        for rank in (0, 1):
            path = result(folder, label, rank)
            lines = path.read_text().splitlines()
            path.write_text("\n".join([*junk, lines[0], *junk, *lines[1:], *junk, lines[-1][:20]]), encoding="latin-1")
    outcome, report = judged(asked, rules, folder)
    assert [trial.result.outcome for trial in report.trials] == ["passed", "passed"]
    assert outcome.row.id == "transport-works"


def test_a_host_whose_facts_are_nonsense_is_still_a_host(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("network-wrong-interface")
    folder = written(tmp_path / "work", asked, rules, **NCCL)
    for label in labels(folder):
        for rank in (0, 1):
            path = result(folder, label, rank)
            lines = path.read_text().splitlines()
            task = json.loads(lines[0])
            task["facts"]["interfaces"][1]["netmask"] = "not a mask"
            task["facts"]["interfaces"] += ["eth9", {"name": 5}]
            path.write_text("\n".join([json.dumps(task), *lines[1:]]))
    outcome, report = judged(asked, rules, folder)
    assert [entry["name"] for entry in report.hosts[0]["interfaces"]] == ["lo"]
    assert outcome.controls


@pytest.mark.parametrize("other", ["plan", "attempt"])
def test_results_of_another_start_or_plan_do_not_count(tmp_path: Path, rules: RuleSet, other: str) -> None:
    asked = document("rank-divergence")
    folder = written(tmp_path / "work", asked, rules, **NCCL)
    for label in labels(folder):
        old = result(folder, label, 1, attempt="1.0", started=50.0)
        result(folder, label, 0, attempt="2.0" if other == "attempt" else "1.0", started=100.0)
        if other == "plan":
            old.write_text(old.read_text().replace('"plan": "', '"plan": "x'))
    _, report = judged(asked, rules, folder)
    assert [text["en"] for text in report.problems] == [
        "run-01: no result from rank 1",
        "run-02: no result from rank 1",
    ]
    assert not report.trials[0].result.passed


def test_ranks_that_shared_a_gpu_refute_nothing_and_show_a_duplicate(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("nccl-env-misconfig", "duplicate-gpu", env={"NCCL_ALGO": "Ring"})
    folder = written(tmp_path / "work", asked, rules, **NCCL)
    for label in labels(folder):
        for rank in (0, 1):
            result(folder, label, rank, device={"bus": "0000:07:00"})
    _, report = files.judge(asked, rules, folder)
    config, duplicate = report.outcomes
    assert config.row.id == "passes-on-less"
    assert "share a GPU" in differences(config)
    assert duplicate.facts.fact == "shows"


def test_an_interface_that_gloo_cannot_stand_in_for_refutes_nothing(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("network-wrong-interface", env={"NCCL_SOCKET_IFNAME": "ib0"})
    folder = written(tmp_path / "work", asked, rules)
    for label in labels(folder):
        for rank in (0, 1):
            result(folder, label, rank, env={"NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "lo"})
    outcome, _ = judged(asked, rules, folder)
    assert outcome.row.outcome == "inconclusive"
    assert "Gloo did not use the interface that NCCL would use" in differences(outcome)


def test_runs_that_were_left_out_leave_the_suspect_untested(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("rank-divergence", "rendezvous-failed")
    folder = written(tmp_path / "work", asked, rules, **NCCL)
    for label in labels(folder)[:2]:
        for rank in (0, 1):
            result(folder, label, rank)
    _, report = files.judge(asked, rules, folder)
    assert [outcome.row.id for outcome in report.outcomes] == ["transport-works", "not-run"]
    assert (report.outcomes[1].why_not or {})["en"] == "Its runs left no result."


def test_a_folder_without_results_or_plan_is_an_error(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("rank-divergence")
    folder = written(tmp_path / "work", asked, rules, **NCCL)
    with pytest.raises(UsageError, match="no result of its plan"):
        files.judge(asked, rules, folder)
    for text in ("{", "[]", json.dumps({"plan": "x", "runs": ["../../../etc/passwd"], "places": []})):
        (folder / "plan.json").write_text(text)
        with pytest.raises(UsageError, match="no plan of this version"):
            files.judge(asked, rules, folder)
    with pytest.raises(UsageError, match="no plan"):
        files.judge(asked, rules, tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "value"), [("op", "rm -rf"), ("dtype", "complex"), ("slots", [0]), ("places", [0, 7]), ("pair", 3)]
)
def test_a_run_that_makes_no_sense_is_no_plan(tmp_path: Path, rules: RuleSet, name: str, value: Any) -> None:
    asked = document("rank-divergence")
    folder = written(tmp_path / "work", asked, rules, **NCCL)
    spec = folder / "spec-run-01.json"
    spec.write_text(json.dumps({**json.loads(spec.read_text()), name: value}))
    with pytest.raises(UsageError, match="no plan"):
        files.judge(asked, rules, folder)


def smi(bad: Sequence[int] = ()) -> dict[str, Any]:
    """Return what a rank has told of its host's GPUs."""
    return {
        "gpus": [
            {"index": k, "uuid": f"GPU-{k}", "bus": f"0000:{k + 16:02x}:00", "ecc_uncorrected": 3 * (k in bad)}
            for k in range(4)
        ]
    }


@pytest.mark.parametrize(
    ("told", "fact", "words"),
    [
        (None, "none", "GPU health was not read"),
        (smi(), "clean", ""),
        (smi([2]), "clean", ""),
        (smi([1]), "shows", ""),
        ({"gpus": "none"}, "none", "GPU health was not read"),
    ],
)
def test_the_health_of_the_accused_gpu_comes_from_its_own_host(
    tmp_path: Path, rules: RuleSet, told: dict[str, Any] | None, fact: str, words: str
) -> None:
    asked = document("gpu-hardware-fault", hosts=("node-a",))
    asked["diagnoses"][0]["culprits"] = [{"rank": None, "host": "node-a", "gpu": 1, "why": ""}]
    folder = written(tmp_path / "work", asked, rules, **NCCL)
    for label in labels(folder):
        for rank in range(2):
            gpus = told if rank == 0 else None
            result(folder, label, rank, device={"bus": f"0000:{rank + 16:02x}:00", "index": rank}, gpus=gpus)
    outcome, report = judged(asked, rules, folder)
    assert outcome.facts.fact == fact
    assert words in differences(outcome)
    gpu = outcome.controls[0].result.run.slots[1].gpu
    known = isinstance((told or {}).get("gpus"), list)
    assert gpu is not None and (gpu.bus, gpu.uuid) == ("0000:11:00", "GPU-1" if known else "")
    assert report.plan.means.places[0].name == "node-a"


def test_an_accused_gpu_without_a_rank_weakens_a_pass(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("gpu-hardware-fault", hosts=("node-a",))
    asked["diagnoses"][0]["culprits"] = [{"rank": None, "host": "node-a", "gpu": 3, "why": ""}]
    folder = written(tmp_path / "work", asked, rules, **NCCL)
    for label in labels(folder):
        for rank in range(2):
            result(folder, label, rank, device={"bus": f"0000:{rank + 16:02x}:00"}, gpus=smi() if rank == 0 else None)
    outcome, _ = judged(asked, rules, folder)
    assert "the accused GPU 3 of node-a has no rank" in differences(outcome)
    assert outcome.row.id == "other-gpu"
