"""The stuck collective: counters, silence, shapes and arrivals name who is missing."""

from __future__ import annotations

import pytest

from nccl_triage.diagnosis.case import Case
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text, scan_text

HEAD = "[rank{r}]:[E1206 18:{m:02d}:12.715298746 ProcessGroupNCCL.cpp:607] "


def timeout(
    rank: int, seq: int = 57, op: str = "ALLREDUCE", numel: int = 1024, minute: int = 44, ran: int = 600_031
) -> str:
    return (
        HEAD.format(r=rank, m=minute) + f"[Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) "
        f"ran for {ran} milliseconds before timing out.\n"
    )


def counters(rank: int, seq: int, enqueued: int, completed: int, guid: str = "0") -> str:
    return (
        HEAD.format(r=rank, m=44)
        + f"[PG ID 0 PG GUID {guid}(default_pg) Rank {rank}]  failure detected by watchdog at work "
        f"sequence id: {seq} PG status: last enqueued work: {enqueued}, last completed work: {completed}\n"
    )


def case_of(text: str, rules: RuleSet) -> Case:
    return Case(scan_text(text, rules), rules)


def test_the_rank_that_only_observes_is_behind(rules: RuleSet) -> None:
    text = "".join(timeout(r) + counters(r, 57, 57, 56) for r in (0, 1, 3))
    text += HEAD.format(r=2, m=44) + (
        "[PG ID 0 PG GUID 0(default_pg) Rank 2] Observed flight recorder dump signal from another rank via TCPStore.\n"
    )
    case = case_of(text, rules)
    assert case.value("collective.behind_ranks") == [2]
    assert case.value("collective.seq") == 57
    diagnosis = diagnose_text(text, rules)
    assert diagnosis.candidates[0].culprits[0].rank == 2


def test_counters_below_the_stuck_number_mean_never_entered(rules: RuleSet) -> None:
    text = (
        "".join(timeout(r) + counters(r, 57, 59, 56) for r in (0, 1, 2)) + timeout(3, seq=56) + counters(3, 57, 55, 55)
    )
    assert case_of(text, rules).value("collective.behind_ranks") in ([3], None)


def test_a_mismatch_shows_both_sides(rules: RuleSet) -> None:
    text = "".join(timeout(r, numel=8_388_608) + counters(r, 57, 57, 56) for r in (0, 1, 3))
    found = diagnose_text(text + timeout(2, numel=512) + counters(2, 57, 57, 56), rules)
    assert found.cause == "collective-mismatch"
    assert found.case.value("collective.shape_group") == "0"
    assert "rank 2 in ALLREDUCE(512), rank 0-1,3 in ALLREDUCE(8388608)" in found.to_dict(similar=False)["headline"]
    sides = {event.line for event in found.case.fact("collective.shape_mismatch").events}
    assert sides >= {1, 7}


@pytest.mark.parametrize(
    ("op", "other"), [("ALLTOALL_BASE", "ALLTOALL_BASE"), ("SEND", "ALLREDUCE"), ("GATHER", "GATHER")]
)
def test_what_may_differ_between_ranks_is_no_mismatch(op: str, other: str, rules: RuleSet) -> None:
    text = "".join(timeout(r, op=other) + counters(r, 57, 57, 56) for r in (0, 1, 3))
    text += timeout(2, op=op, numel=512) + counters(2, 57, 57, 56)
    assert case_of(text, rules).value("collective.shape_mismatch") is None


def test_numbers_of_no_named_group_accuse_nobody(rules: RuleSet) -> None:
    found = diagnose_text("".join(timeout(r) for r in (0, 1, 2)) + timeout(3, seq=812), rules)
    assert not [c for c in found.candidates if c.confidence > 0.6 and c.culprits]


def test_other_shapes_at_one_number_name_the_minority(rules: RuleSet) -> None:
    text = "".join(timeout(r) for r in (0, 1, 3)) + timeout(2, numel=512)
    case = case_of(text, rules)
    assert case.value("collective.shape_mismatch") == [2]
    diagnosis = diagnose_text(text, rules)
    assert diagnosis.cause == "collective-mismatch"
    assert diagnosis.candidates[0].culprits[0].rank == 2


def test_late_arrival_is_line_time_minus_running_time(rules: RuleSet) -> None:
    # Ranks 0-2 arrived at 18:34, rank 3 at 18:41 and timed out later.
    text = "".join(timeout(r) for r in (0, 1, 2)) + timeout(3, minute=51)
    assert case_of(text, rules).value("collective.late_ranks") == [3]


def test_nothing_but_time_outs_establishes_nothing(rules: RuleSet) -> None:
    diagnosis = diagnose_text("".join(timeout(r) for r in range(8)), rules)
    assert diagnosis.confidence < 0.5
    assert all(candidate.status == "possible" for candidate in diagnosis.candidates)


def test_uninitialised_counters_of_torch_2_3_are_ignored(rules: RuleSet) -> None:
    text = timeout(7, seq=1) + (
        "[rank7]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 7] Timeout at NCCL work: 1, last enqueued NCCL work: 1, "
        "last completed NCCL work: 3452013982.\n"
    )
    records = case_of(text, rules).value("collective.stuck")
    assert records[0].completed is None


@pytest.mark.parametrize("guid_ranks", [((7, 1), (5, 0))])
def test_group_ranks_are_not_global_ranks_when_the_log_says_so(rules: RuleSet, guid_ranks) -> None:
    text = "".join(
        f"[rank{rank}]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [PG ID 2 PG GUID 5(mesh_tp) Rank {group}] "
        "First PG on this rank to signal dumping.\n"
        for rank, group in guid_ranks
    )
    text += "[E ProcessGroupNCCL.cpp:475] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, "
    text += "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800410 milliseconds before timing out.\n"
    case = case_of(text, rules)
    event = case.of("torch.watchdog_timeout")[0]
    assert case.rank(event) is None


def test_an_oom_explains_the_time_outs_away(rules: RuleSet) -> None:
    text = (
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 336.00 MiB. GPU 2 has a total capacity of "
        "79.15 GiB of which 141.25 MiB is free.\n"
    ) + "".join(timeout(r) for r in (0, 1, 3, 4, 5, 6, 7))
    diagnosis = diagnose_text(text, rules)
    assert diagnosis.cause == "gpu-out-of-memory"
    assert diagnosis.candidates[0].status == "established"
    assert diagnosis.candidates[0].culprits[0].rank == 2
    rivals = {c.id: c for c in diagnosis.candidates[1:]}
    assert all(c.confidence < 0.1 for c in rivals.values())


def test_errors_followed_by_progress_are_no_failure(rules: RuleSet) -> None:
    text = "step 1/20 loss 5.0\n[W socket.cpp:601] [c10d] The client socket has failed to connect to [node-0]:29500 "
    text += "(errno: 111 - Connection refused).\n" + "".join(f"step {n}/20 loss 4.{n}\n" for n in range(2, 20))
    assert diagnose_text(text, rules).verdict == "healthy"


def running(rank: int, shape: str, op: str = "ALLREDUCE", seq: int = 38) -> str:
    return (
        f"[rank{rank}]:[I1020 08:12:41.923985894 ProcessGroupWrapper.cpp:587] [Rank {rank}] Running collective: "
        f"CollectiveFingerPrint(SequenceNumber={seq}, OpType={op}, TensorShape=[{shape}], TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda))\n"
    )


def test_the_odd_fingerprint_names_its_rank(rules: RuleSet) -> None:
    text = running(0, "100, 1") + running(1, "100, 1") + running(2, "77, 1") + running(3, "100, 1")
    diagnosis = diagnose_text(text, rules)
    assert (diagnosis.cause, diagnosis.candidates[0].culprits[0].rank) == ("collective-mismatch", 2)


@pytest.mark.parametrize(
    "text",
    [
        running(0, "100") + running(1, "100") + running(2, "77", seq=39),
        running(0, "100") + running(1, "100") + running(2, "77") + running(3, "77"),
        running(0, "41", "ALLGATHER") + running(1, "41", "ALLGATHER") + running(2, "40", "ALLGATHER"),
    ],
    ids=["other number", "two groups", "an operation that may be uneven"],
)
def test_fingerprints_that_may_rightly_differ(rules: RuleSet, text: str) -> None:
    assert case_of(text, rules).value("mismatch.fingerprint_ranks") is None


def test_a_rank_is_known_by_any_line_it_prints(rules: RuleSet) -> None:
    text = "".join(timeout(r) for r in (0, 1, 2)) + "[rank3]: an ordinary remark\n"
    case = case_of(text, rules)
    assert 3 in case.identity.ranks
    assert case.value("progress.silent_ranks") == [3]
