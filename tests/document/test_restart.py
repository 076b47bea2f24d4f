"""The decision on a restart: what each kind of cause says, which hosts stay out, and when nothing is decided."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

OOM = "step 3 loss 2.1\n[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
XID = (
    "Feb  2 22:52:45 {host} kernel: NVRM: Xid (PCI:0000:cb:00): 79, pid='<unknown>', name=<unknown>, "
    "GPU has fallen off the bus.\n"
)
WALLTIME = (
    "step 3 loss 2.1\n"
    "slurmstepd: error: *** STEP 81234.0 ON gpu07 CANCELLED AT 2024-12-06T18:30:00 DUE TO TIME LIMIT ***\n"
)


def test_a_repair_comes_before_a_restart_that_would_fail_again(rules: RuleSet) -> None:
    found = diagnose_text(OOM, rules).to_dict()["restart"]
    assert (found["decision"], found["exclude"]) == ("fix_first", [])
    assert found["why"] and found["why_zh"] and found["why"] != found["why_zh"]


def test_a_broken_host_stays_out(rules: RuleSet) -> None:
    found = diagnose_text(XID.format(host="gpu07"), rules).to_dict()["restart"]
    assert (found["decision"], found["exclude"]) == ("exclude_then_restart", ["gpu07"])
    assert "gpu07" in found["why"] and "gpu07" in found["why_zh"]


def test_a_broken_host_without_a_name_has_to_be_found_first(rules: RuleSet) -> None:
    bare = XID.format(host="x").partition("kernel: ")[2]
    found = diagnose_text(bare, rules).to_dict()["restart"]
    assert (found["decision"], found["exclude"]) == ("fix_first", [])
    assert "does not name the host" in found["why"]


def test_a_job_that_ran_out_of_time_can_go_on(rules: RuleSet) -> None:
    found = diagnose_text(WALLTIME, rules).to_dict()
    assert found["diagnoses"][0]["cause"] == "job-preempted"
    assert found["restart"]["decision"] == "restart"


def test_without_a_cause_nothing_is_decided(rules: RuleSet) -> None:
    found = diagnose_text("[rank1]: RuntimeError: [1] is setting up NCCL communicator\nsome error\n", rules).to_dict()
    assert found["verdict"] == "unknown"
    assert found["restart"]["decision"] == "undecided"


def test_a_job_that_did_not_fail_needs_no_decision(rules: RuleSet) -> None:
    text = "".join(f"step {n} loss 2.{n}\n" for n in range(9)) + "Training completed successfully\n"
    found = diagnose_text(text, rules).to_dict()
    assert found["verdict"] == "healthy" and found["restart"] is None


def test_the_scheduler_and_its_job_are_told_by_their_own_lines(rules: RuleSet) -> None:
    job = diagnose_text(WALLTIME, rules).to_dict()["job"]
    assert (job["scheduler"], job["id"], job["cluster"]) == ("slurm", "81234", None)
    assert diagnose_text(OOM, rules).to_dict()["job"]["scheduler"] is None


SEGFAULT = (
    "step 3 loss 2.1\n"
    "[2026-01-05 03:12:01,123] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -11) local_rank: 2 "
    "(pid: 4711) of binary: /usr/bin/python\n"
    "Fatal Python error: Segmentation fault\n"
)
ONE_HOST = "[default0]:gpu07:100:200 [0] NCCL INFO comm 0x55 rank 0 nranks 8 cudaDev 0 busId cb000 - Init COMPLETE\n"
NODES = "SLURM_JOB_ID=81234\nSLURM_JOB_NODELIST=gpu[06-08]\n"


def restart(text: str, rules: RuleSet) -> Any:
    return diagnose_text(text, rules).to_dict()["restart"]


def test_a_step_decides_only_where_its_condition_holds(rules: RuleSet) -> None:
    crash = diagnose_text(SEGFAULT, rules)
    assert crash.cause == "process-crashed"
    found = crash.to_dict()["restart"]
    assert (found["decision"], found["exclude"]) == ("fix_first", []), "no host was lost: nothing has to be left out"
    assert "not known" in found["why"] and "same settings" not in found["why"]
    contained = XID.format(host="gpu07").replace(": 79,", ": 94,").replace("fallen off the bus", "Contained: SM")
    found = diagnose_text(contained, rules)
    assert found.cause == "gpu-hardware-fault"
    assert found.to_dict()["restart"]["decision"] == "fix_first", "a contained memory error leaves no host out"


def test_the_only_host_of_a_job_cannot_be_left_out_unless_a_scheduler_has_others(rules: RuleSet) -> None:
    text = ONE_HOST + XID.format(host="gpu07")
    assert restart(text, rules)["decision"] == "fix_first"
    assert "ran on one host only" in restart(text, rules)["why"]
    assert restart("SLURM_JOB_ID=81234\n" + text, rules)["exclude"] == ["gpu07"]


@pytest.mark.parametrize(
    ("before", "host", "name"),
    [
        (NODES, "gpu07.cluster.example", "gpu07"),
        ("SLURM_JOB_ID=1\n", "gpu07.cluster.example", "gpu07"),
        ("SLURMD_NODENAME=gpu07.cluster.example\n", "gpu07", "gpu07.cluster.example"),
        ("srun: error: gpu07: task 3: Exited with exit code 1\n", "gpu07.cluster.example", "gpu07"),
        ("", "gpu07.cluster.example", "gpu07.cluster.example"),
    ],
)
def test_a_host_to_leave_out_has_the_name_that_its_scheduler_knows(
    rules: RuleSet, before: str, host: str, name: str
) -> None:
    found = restart(before + XID.format(host=host), rules)
    assert (found["decision"], found["exclude"]) == ("exclude_then_restart", [name])
    assert name in found["why"] and name in found["why_zh"]


def test_of_a_pod_its_node_is_left_out_where_the_log_tells_it(rules: RuleSet) -> None:
    pods = "".join(
        f"[pod/worker-{n}/train] {line}\n"
        for n, node in enumerate(("gke-7f2c", "gke-9d41"))
        for line in (f"NODE_NAME={node}", f"worker-{n}:17:17 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.{n + 6}<0>")
    )
    failed = "[pod/worker-1/train] [rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    assert restart(pods + failed, rules)["exclude"] == ["gke-9d41"]
    assert restart(pods.replace("NODE_NAME", "WHERE") + failed, rules)["exclude"] == ["worker-1"]


@pytest.mark.parametrize(("failing", "left_out"), [(("gpu-a1", "gpu-a2"), False), (("gpu-a2",), True)])
def test_no_step_leaves_out_every_host(failing: tuple[str, ...], left_out: bool, rules: RuleSet) -> None:
    steps = "".join(f"gpu-a{rank + 1}: [rank{rank}]: step 1/50 loss 2.1\n" for rank in (0, 1))
    faults = "".join(
        f"{host}: [rank{int(host[-1]) - 1}]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
        for host in failing
    )
    best = diagnose_text(steps + faults, rules).to_dict()["diagnoses"][0]
    assert any("without the suspect host" in json.dumps(step) for step in best["stages"]) is left_out
