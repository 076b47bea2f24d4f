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


def test_a_watchdog_that_looks_long_after_the_timeout_did_not_run(rules: RuleSet) -> None:
    one = diagnose_text(timeout(0, ran=4_862_000) + "".join(timeout(r) for r in (1, 2, 3)), rules)
    assert (one.cause, [culprit.rank for culprit in one.candidates[0].culprits]) == ("straggler", [0])
    every = diagnose_text("".join(timeout(r, ran=4_862_000) for r in range(4)), rules)
    assert every.case.value("collective.overrun_ranks") is None
    assert "4862 s" in str(every.to_dict(similar=False)["notes"])
    usual = diagnose_text("".join(timeout(r) for r in range(4)), rules)
    assert "stood still" not in str(usual.to_dict(similar=False)["notes"])


TAKEN = (
    "[W1206 18:{m}:01.123456789 socket.cpp:464] [c10d] The server socket has failed to listen on [::]:29500 (errno: 98 - Address already in use).\n"
    "Traceback (most recent call last):\n"
    '  File "/opt/venv/bin/torchrun", line 8, in <module>\n'
    "    sys.exit(main())\n"
    "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use\n"
)
WORKS = "".join(f"12-06 18:30:0{n} [rank{r}]: step {n}/50 loss 2.1\n" for n in range(4) for r in range(2))


@pytest.mark.parametrize(("minute", "cause"), [(33, "port-in-use"), (42, None)])
def test_a_start_that_fails_beside_a_wait_did_not_cause_it(minute: int, cause: str | None, rules: RuleSet) -> None:
    text = WORKS + TAKEN.format(m=minute) + timeout(0) + timeout(1)
    found = diagnose_text(text, rules)
    assert (found.cause if found.verdict == "diagnosed" else None) == cause
    assert found.case.story.outcome.state == ("failed" if cause else "hung")


@pytest.mark.parametrize(
    ("minute", "said"), [(33, "then waited in ALLREDUCE"), (42, "had waited in ALLREDUCE before that")]
)
def test_what_began_before_a_cause_is_not_its_effect(minute: int, said: str, rules: RuleSet) -> None:
    memory = f"2025-12-06 18:{minute}:00,000 [rank3] ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    steps = "".join(f"2025-12-06 18:30:00,000 [rank{r}] INFO step 1 loss 2.1\n" for r in range(4))
    headline = diagnose_text(steps + memory + timeout(0) + timeout(1), rules).to_dict(similar=False)["headline"]
    assert said in headline
