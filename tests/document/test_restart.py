"""The decision on a restart: what each kind of cause says, which hosts stay out, and when nothing is decided."""

from __future__ import annotations

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
