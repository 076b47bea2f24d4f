"""Who is odd: numbers within groups, who outlasted the others, who is left behind, who announces another amount."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

GLOO = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/"
TIMED_OUT = f"{GLOO}unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete"
LOST = f"{GLOO}pair.cc:553] Connection closed by peer [10.0.0.2]:2284"


def steps(world: int) -> str:
    return "".join(f"train [rank {rank}/{world}] step {step}/9 loss 2.0\n" for step in (1, 2) for rank in range(world))


def raised(rank: int, line: int, error: str, call: str = "all_reduce", code: str | None = None) -> str:
    return "".join(
        f"[rank{rank}]: {text}\n"
        for text in (
            "Traceback (most recent call last):",
            f'  File "/app/train.py", line {line}, in fit',
            *([f"    {code}"] if code is not None else []),
            f'  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9, in {call}',
            error,
        )
    )


def fingerprint(rank: int, own: int, other: int) -> str:
    print_ = "CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[{}])"
    return (
        f"[rank{rank}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {own} is running collective: "
        f"{print_.format(600 if own == 1 else 512)}, but Rank {other} is running collective: {print_.format(600 if other == 1 else 512)}\n"
    )


def test_who_is_named_first_tells_of_all_ranks_below_it(rules: RuleSet) -> None:
    def named(text: str) -> object:
        return diagnose_text(text, rules).case.value("mismatch.named_ranks")

    # Rank 2 would have named rank 0 if that one differed.
    assert named(fingerprint(2, 2, 1)) == [1]
    assert named(fingerprint(1, 1, 0)) == [0, 1]
    # Three that call the same name rank 0, which is odd.
    odd = fingerprint(1, 1, 0).replace("600", "700").replace("512", "600").replace("700", "512")
    assert named(odd + odd.replace("rank1", "rank2").replace("Rank 1", "Rank 2")) == [0]


def test_a_number_within_a_group_is_the_rank_of_the_job_that_prints_it(rules: RuleSet) -> None:
    text = steps(6) + fingerprint(3, 0, 1) + fingerprint(4, 1, 0) + fingerprint(5, 2, 1)
    assert diagnose_text(text, rules).case.value("mismatch.named_ranks") == [4]


@pytest.mark.parametrize(("victim", "absent"), [("[rank4]: RuntimeError: Rank 1", [5]), ("", None)])
def test_the_absent_of_a_group_needs_two_known_numbers(victim: str, absent: list[int] | None, rules: RuleSet) -> None:
    text = steps(6) + "[rank3]: RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 6000 ms\n"
    if victim:
        text += f"{victim} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0.\n"
    assert diagnose_text(text, rules).case.value("collective.absent_ranks") == absent


def test_who_finds_closed_connections_after_all_others_timed_out_was_late(rules: RuleSet) -> None:
    text = steps(3) + raised(1, 7, TIMED_OUT) + raised(2, 7, TIMED_OUT) + raised(0, 7, LOST)
    top = diagnose_text(text, rules).candidates[0]
    assert (top.id, top.culprits[0].rank) == ("straggler", 0)


def test_beside_a_rank_that_waits_for_another_host_nobody_outlasts(rules: RuleSet) -> None:
    text = "".join(f"node-{rank // 2}: {line}\n" for rank, line in enumerate(steps(4).splitlines()[:4]))
    text += "".join(
        f"node-{rank // 2}: {line}\n" for rank in (0, 2, 3) for line in raised(rank, 7, TIMED_OUT).splitlines()
    )
    text += "".join(f"node-0: {line}\n" for line in raised(1, 7, LOST).splitlines())
    assert diagnose_text(text, rules).case.fact("collective.outlasted_ranks") is None


def test_who_failed_at_another_line_waited_in_another_group_for_the_one_that_says_nothing(rules: RuleSet) -> None:
    text = steps(4) + raised(2, 9, TIMED_OUT) + raised(0, 7, LOST) + raised(1, 7, LOST)
    silent = diagnose_text(text, rules)
    assert silent.case.value("mismatch.elsewhere_ranks") is None
    assert [one.rank for one in silent.candidates[0].culprits] == [3]
    assert diagnose_text(text + raised(3, 7, LOST), rules).case.value("mismatch.elsewhere_ranks") == [2]


def test_the_minority_below_one_line_stands_in_another_collective(rules: RuleSet) -> None:
    text = steps(3) + "".join(raised(rank, 7, TIMED_OUT, "reduce_scatter_tensor") for rank in (0, 1))
    text += raised(2, 7, TIMED_OUT, "all_gather_into_tensor")
    assert diagnose_text(text, rules).case.value("mismatch.elsewhere_ranks") == [2]


@pytest.mark.parametrize(
    ("odd", "found"), [("settings: accumulation 4", [2]), ("settings: accumulation 2", None)], ids=["other", "same"]
)
def test_who_announces_another_amount(odd: str, found: list[int] | None, rules: RuleSet) -> None:
    lines = ["settings: accumulation 2", "settings: accumulation 2", odd, "settings: accumulation 2"]
    text = "".join(f"[rank{rank}]: {line}\n" for rank, line in enumerate(lines)) + raised(0, 7, TIMED_OUT)
    assert diagnose_text(text, rules).case.value("progress.odd_amount_ranks") == found


def test_a_rank_that_the_program_itself_misses(rules: RuleSet) -> None:
    missed = steps(4) + "train [rank 0/4] no heartbeat from rank 2 for 12 s, aborting the job\n"
    assert diagnose_text(missed + raised(1, 7, LOST), rules).case.value("collective.absent_ranks") == [2]
    assert diagnose_text(missed + steps(4) + raised(1, 7, LOST), rules).case.value("collective.absent_ranks") is None


def test_the_only_two_hosts_that_do_not_connect(rules: RuleSet) -> None:
    text = "".join(f"node-{rank}: train [rank {rank}/3] process group ready\n" for rank in range(3))
    failed = "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.h:311] Connect timeout [none]"
    text += "".join(f"node-{rank}: [rank{rank}]: {failed}\n" for rank in (1, 2))
    top = diagnose_text(text, rules).candidates[0]
    assert top.id == "network-firewall-port"
    assert [culprit.host for culprit in top.culprits] == ["node-1", "node-2"]


def test_a_broken_pipe_of_the_console_is_the_programs_own(rules: RuleSet) -> None:
    text = (
        steps(2) + '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/app/train.py", line 9, in report\n'
    )
    text += "[rank0]: BrokenPipeError: [Errno 32] Broken pipe\n" + raised(1, 7, LOST)
    top = diagnose_text(text, rules).candidates[0]
    assert (top.id, top.culprits[0].rank) == ("application-exception", 0)


@pytest.mark.parametrize(
    ("call", "root_waits", "odd_waits"),
    [("broadcast", "send", "recv"), ("gather", "recv", "send")],
    ids=["broadcast", "gather"],
)
def test_of_two_left_in_a_collective_with_a_root_the_other_is_odd(
    call: str, root_waits: str, odd_waits: str, rules: RuleSet
) -> None:
    waits = {0: root_waits, 2: odd_waits}
    text = steps(4) + "".join(raised(rank, 7, TIMED_OUT.replace("recv", word), call) for rank, word in waits.items())
    text += "".join(raised(rank, 31, TIMED_OUT, "barrier") for rank in (1, 3))
    assert diagnose_text(text, rules).case.value("mismatch.culprit_ranks") == [2]


def test_half_here_and_half_there_is_nobodys_fault(rules: RuleSet) -> None:
    text = steps(4) + "".join(raised(rank, 7 if rank < 2 else 31, TIMED_OUT) for rank in range(4))
    assert diagnose_text(text, rules).case.value("mismatch.culprit_ranks") is None


def test_stages_stand_at_different_lines_by_nature(rules: RuleSet) -> None:
    text = steps(3) + raised(0, 7, TIMED_OUT, "send") + "".join(raised(rank, 9, TIMED_OUT, "recv") for rank in (1, 2))
    assert diagnose_text(text, rules).case.fact("mismatch.elsewhere_ranks") is None


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("gradients not finite on ranks [2] in step 12, stopping", "numerical-divergence"),
        ("vocabulary of rank 2 differs from that of rank 0", "rank-divergence"),
    ],
)
def test_the_program_names_the_rank(line: str, cause: str, rules: RuleSet) -> None:
    text = steps(4) + f"train [rank 0/4] {line}\n" + "".join(raised(rank, 7, LOST) for rank in (1, 3))
    top = diagnose_text(text, rules).candidates[0]
    assert (top.id, top.culprits[0].rank) == (cause, 2)


def test_a_group_used_before_it_is_made_is_the_programs_own_mistake(rules: RuleSet) -> None:
    error = "ValueError: Default process group has not been initialized, please make sure to call init_process_group."
    text = (
        steps(2)
        + raised(1, 7, error)
        + raised(0, 9, "torch.distributed.DistStoreError: wait timeout after 8000ms, keys: /a")
    )
    top = diagnose_text(text, rules).candidates[0]
    assert (top.id, top.culprits[0].rank) == ("application-exception", 1)


@pytest.mark.parametrize("size", [2, 3])
def test_the_receiver_of_too_much_data_is_not_said_to_differ_from_all_others(size: int, rules: RuleSet) -> None:
    steps = "".join(f"[rank{rank}]: step {step}/40 loss=2.1\n" for step in range(3) for rank in range(size))
    check = "  what():  [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 2668 vs 668. Received data size doesn't match expected size.\n"
    died = "E1127 21:29:57.175000 18068 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -6) local_rank: 0 (pid: 18146) of binary: /usr/bin/python3\n"
    text = steps + "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n" + check + died
    found = diagnose_text(text, rules)
    headline = found.to_dict(similar=False)["headline"]
    assert [culprit.rank for culprit in found.candidates[0].culprits] == [0]
    assert "Rank 0 received 2668 bytes, but its own collective expects 668; the rank that sent them may be" in headline


def test_who_waits_for_all_while_others_wait_for_it_elsewhere(rules: RuleSet) -> None:
    def crossed(code: str, *others: str) -> object:
        text = steps(4) + raised(3, 7, TIMED_OUT, "barrier", code) + "".join(others)
        return diagnose_text(text, rules).case.value("mismatch.crossed_ranks")

    lost = [raised(rank, 9, LOST) for rank in (1, 2)]
    assert crossed("dist.barrier()", *lost) == [3]
    assert crossed("dist.all_reduce(loss, op=max(a, b))", *lost) == [3]
    # With a group of its own it waits for the silent rank perhaps, and the others wait for it.
    assert crossed("dist.barrier(group=pair)", *lost) is None
    assert crossed("dist.barrier(pair)", *lost) is None
    assert crossed("dist.all_reduce(loss, dist.ReduceOp.SUM, pair)", *lost) is None
    # Who gave up at the same place as those that lost their connections was no other call.
    assert crossed("dist.barrier()", *lost, raised(0, 9, TIMED_OUT)) is None
    assert crossed("dist.barrier()", raised(1, 7, LOST, "barrier"), *lost) is None

    # Who is left alone in a smaller group may be right: nobody knows who else belongs to it.
    ahead = "".join(raised(rank, 9, TIMED_OUT, code="dist.all_reduce(scores)") for rank in (1, 2, 3))
    alone = diagnose_text(steps(4) + ahead + raised(0, 7, LOST, code="dist.all_reduce(grads, group=half)"), rules)
    assert alone.cause == "collective-mismatch"
    assert not [culprit for culprit in alone.candidates[0].culprits if culprit.rank is not None]
    odd = steps(4) + ahead + raised(0, 7, LOST, code="dist.all_reduce(grads)")
    assert [culprit.rank for culprit in diagnose_text(odd, rules).candidates[0].culprits] == [0]


BUSY = "2026-11-29 15:15:{s:02d},316 [rank{rank}] INFO {text}\n"


@pytest.mark.parametrize(
    ("last", "after", "cause"),
    [
        ("tokenizing shard 4/8", "", "timeout-too-short"),
        ("saving checkpoint to /ckpt/9", "", "timeout-too-short"),
        # It ended only when the others had given up.
        ("saving checkpoint to /ckpt/9", "saved checkpoint of step 9", "timeout-too-short"),
        ("tokenizing shard 8/8", "", "straggler"),
        ("waiting for the inbox", "", "straggler"),
    ],
)
def test_the_last_words_of_the_awaited_rank_decide(last: str, after: str, cause: str, rules: RuleSet) -> None:
    begun = "".join(BUSY.format(s=1, rank=rank, text="tokenizing shard 3/8") for rank in range(4))
    done = range(4) if "4/8" not in last else (0, 1, 3)
    begun += "".join(BUSY.format(s=2, rank=rank, text="tokenizing shard 8/8") for rank in done)
    text = begun + BUSY.format(s=3, rank=2, text=last) + "".join(raised(rank, 7, TIMED_OUT) for rank in (0, 1, 3))
    found = diagnose_text(text + (BUSY.format(s=15, rank=2, text=after) if after else ""), rules)
    assert found.cause == cause
    assert [culprit.rank for culprit in found.candidates[0].culprits] == [2]


def test_who_says_for_whom_it_waits_was_not_at_its_work(rules: RuleSet) -> None:
    text = "".join(BUSY.format(s=1, rank=rank, text="saving checkpoint to /ckpt/9") for rank in (0, 1))
    text += "".join(f"[rank0]:[E1129 15:20:43.728672183 ProcessGroupGloo.cpp:67] [Rank 0]: Rank {rank} failed to pass monitoredBarrier in 9000 ms\n" for rank in (2, 3))  # fmt: skip
    assert diagnose_text(steps(4) + text, rules).case.value("progress.long_task_ranks") == [1]


def test_ranks_that_wait_for_each_other_are_a_mismatch_with_both_sides(rules: RuleSet) -> None:
    text = steps(4) + raised(3, 7, TIMED_OUT, "barrier", "dist.barrier()")
    found = diagnose_text(text + "".join(raised(rank, 9, LOST) for rank in (1, 2)), rules)
    assert found.cause == "collective-mismatch"
    assert [culprit.rank for culprit in found.candidates[0].culprits] == [3]
    assert (
        "rank 3 in barrier (train.py:7), rank 1-2 in ALLREDUCE (train.py:9)" in found.to_dict(similar=False)["headline"]
    )


def test_the_receiver_of_too_much_data_comes_before_who_stands_in_a_smaller_group(rules: RuleSet) -> None:
    check = "  what():  [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 4096 vs 1024. Received data size doesn't match expected size.\n"
    died = f"[rank3]: terminate called after throwing an instance of 'gloo::EnforceNotMet'\n[rank3]: {check}"
    before = steps(4) + died + raised(0, 7, LOST) + raised(1, 7, LOST)
    elsewhere = diagnose_text(before + raised(2, 9, LOST), rules)
    assert [culprit.rank for culprit in elsewhere.candidates[0].culprits] == [2]
    found = diagnose_text(before + raised(2, 9, LOST, code="dist.all_reduce(tokens, group=pair)"), rules)
    assert [culprit.rank for culprit in found.candidates[0].culprits] == [3]
    assert "the rank that sent them may be the odd one" in found.to_dict(similar=False)["headline"]
