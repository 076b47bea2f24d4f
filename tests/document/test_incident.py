"""When it started and what it cost, as far as the lines carry times."""

from __future__ import annotations

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

WATCHDOG = (
    "[rank{r}]:[E{day} 18:{m:02d}:00.100 ProcessGroupNCCL.cpp:607] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for {ran} milliseconds "
    "before timing out.\n"
)
OOM = (
    "2024-12-06 18:{m:02d}:00,000 [rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. "
    "GPU 2 has a total capacity of 79.15 GiB of which 1.21 GiB is free.\n"
)
INIT = "n1:{0}:{0} [{0}] NCCL INFO comm 0x5 rank {0} nranks 4 cudaDev {0} nvmlDev {0} busId 5 commId 0x7 - Init START\n"


def world() -> str:
    return "".join(INIT.format(rank) for rank in range(4))


def test_the_wait_is_back_dated_by_the_time_that_the_operation_ran(rules: RuleSet) -> None:
    text = world() + "".join(WATCHDOG.format(r=r, day="1206", m=44, ran=600_000) for r in (0, 1, 3))
    found = diagnose_text(text, rules).to_dict()
    incident = found["incident"]
    assert incident["started"] == "12-06 18:34:00" and incident["waiting_since"]["rank"] == 0
    assert incident["seconds"] == 600.0 and incident["ranks"] == 4
    assert incident["rank_hours"] == round(4 * 600 / 3600, 2) and not incident["at_least"]
    assert [(w["rank"], w["since"], w["until"]) for w in found["waits"]] == [
        (rank, "12-06 18:34:00", "12-06 18:44:00") for rank in (0, 1, 3)
    ]


def test_the_cause_comes_before_the_victims_that_its_line_is_printed_after(rules: RuleSet) -> None:
    text = OOM.format(m=30) + "".join(WATCHDOG.format(r=r, day="1206", m=41, ran=600_000) for r in (0, 1, 3))
    diagnosis = diagnose_text(text, rules)
    incident = diagnosis.to_dict()["incident"]
    assert diagnosis.cause == "gpu-out-of-memory"
    assert (incident["first_fault"]["line"], incident["first_fault"]["rank"]) == (1, 2)
    assert incident["started"] == "2024-12-06 18:30:00" and not incident["about"]
    assert incident["seconds"] == 660.1


def test_a_fault_without_a_time_takes_that_of_the_line_before_and_says_about(rules: RuleSet) -> None:
    text = (
        "2024-12-06 18:29:00,000 [rank2]: step 10 loss 2.0\n"
        + OOM.split(" ", 2)[2]
        + "2024-12-06 18:31:00,000 [rank2]: step 11 loss nan\n"
    )
    incident = diagnose_text(text, rules).to_dict()["incident"]
    assert incident["about"] and incident["started"] == "2024-12-06 18:29:00"


def test_without_any_time_the_longest_wait_is_a_lower_bound(rules: RuleSet) -> None:
    bare = WATCHDOG.format(r=0, day="1206", m=44, ran=600_031).split("] ", 1)[1]
    incident = diagnose_text("[rank0]: " + bare, rules).to_dict()["incident"]
    assert incident["started"] is None and incident["seconds"] == 600.0 and incident["at_least"]


def test_no_time_and_no_wait_say_nothing_of_the_cost(rules: RuleSet) -> None:
    incident = diagnose_text("[rank2]: torch.OutOfMemoryError: CUDA out of memory.\n", rules).to_dict()["incident"]
    assert (incident["started"], incident["seconds"], incident["rank_hours"]) == (None, None, None)


def test_a_healthy_log_has_no_incident(rules: RuleSet) -> None:
    found = diagnose_text("step 1 loss 2.0\nstep 2 loss 1.9\n", rules).to_dict()
    assert found["incident"] is None and found["waits"] == [] and found["not_seen"] == []


def test_the_last_progress_stands_before_the_fault(rules: RuleSet) -> None:
    text = "step 1 loss 2.0\nstep 2 loss 1.9\n" + OOM.format(m=30)
    progress = diagnose_text(text, rules).to_dict()["incident"]["last_progress"]
    assert progress is not None and progress["line"] == 2


def test_a_clock_that_jumps_for_months_is_no_duration(rules: RuleSet) -> None:
    text = OOM.format(m=30) + "2025-12-06 18:31:00,000 [rank1]: Broken pipe\n2025-12-06 18:31:00,000 step 3 loss 1\n"
    assert diagnose_text(text, rules).to_dict()["incident"]["seconds"] is None


def test_work_since_the_last_checkpoint_is_told_in_gpu_hours(rules: RuleSet) -> None:
    text = (
        world()
        + "2024-12-06 17:00:00,000 [rank0]: Saved checkpoint at step 400\n"
        + "2024-12-06 17:30:00,000 [rank0]: Saved checkpoint at step 500\n"
        + OOM.format(m=30)
    )
    incident = diagnose_text(text, rules).to_dict()["incident"]
    assert incident["checkpoint"]["line"] == 6
    assert incident["checkpoint_seconds"] == 3600.0
    assert incident["gpu_hours"] == 4.0


def test_a_checkpoint_after_the_fault_saves_nothing(rules: RuleSet) -> None:
    text = world() + OOM.format(m=30) + "2024-12-06 18:31:00,000 [rank0]: Saved checkpoint at step 500\n"
    incident = diagnose_text(text, rules).to_dict()["incident"]
    assert incident["checkpoint"] is None and incident["gpu_hours"] is None
