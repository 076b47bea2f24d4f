"""Whom Horovod's stall check names."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

STALL = (
    "[0]<stderr>:[2021-02-08 08:31:12.004417: W horovod/common/stall_inspector.cc:105] One or more tensors were submitted "
    "to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 "
    "seconds.\n[0]<stderr>:Missing ranks:\n"
)


@pytest.mark.parametrize(
    ("lines", "ranks"),
    [
        (["3: [allreduce.conv1.weight, allreduce.fc.bias ...]"], [3]),
        (["2: [allreduce.conv1.weight]", "3: [allreduce.conv1.weight]"], [2, 3]),
        (["0: [HorovodBroadcast_m_0]", "1: [HorovodBroadcast_m_0]", "2: [allgather.size]"], [2]),
        (["3!: [allreduce.conv1.weight, allreduce.fc.bias ...]"], [3]),
        (["0: [allreduce.a.weight]", "1: [allgather.size]"], []),
        (["Stalled ops:HorovodBroadcast_dense_bias_0 [missing ranks: 1]"], [1]),
        (["Stalled ops: loss_0 [ready ranks: 3], grad_0 [ready ranks: 2, 0, 1], grad_1 [ready ranks: 2, 0, 1]"], [3]),
        (["Stalled ops: loss_0 [ready ranks: 1], grad_0 [ready ranks: 0]"], []),
        (["Stalled ops: loss_0 [ready ranks: 3], grad_0 [ready ranks: 3, 0, 1]"], []),
        (
            ["HorovodAllreduce_grads_3_0 [missing ranks: 1, 3]", "HorovodAllreduce_grads_4_0 [missing ranks: 1, 3]"],
            [1, 3],
        ),
    ],
    ids=[
        "one",
        "two lack the same",
        "one lacks something else",
        "stalled for too long",
        "each waits for the other",
        "older form",
        "another tensor than the rest",
        "each another tensor",
        "one tensor more",
        "older, two",
    ],
)
def test_the_ranks_that_lack_what_others_wait_for(lines: list[str], ranks: list[int], rules: RuleSet) -> None:
    case = diagnose_text(STALL + "".join(f"[0]<stderr>:{line}\n" for line in lines), rules)
    assert (case.case.value("collective.absent_ranks") or []) == ranks
    if ranks:
        assert [c.rank for c in case.candidates[0].culprits] == ranks


@pytest.mark.parametrize(
    ("lists", "ranks"),
    [
        (["0, 1, 3", "1, 0, 3"], [2]),
        (["0, 1", "0, 1"], []),
        (["0, 3", "1, 0, 3"], []),
    ],
    ids=["one never ready", "of a world whose size is not known", "not always the same"],
)
def test_whoever_is_in_no_list_of_the_ready_ones_is_missing(lists: list[str], ranks: list[int], rules: RuleSet) -> None:
    text = STALL.replace("Missing ranks:\n", "") + "".join(
        f"[0]<stderr>:Stalled ops: HorovodBroadcast_weights_{n}_0 [ready ranks: {ready}], \n"
        for n, ready in enumerate(lists)
    )
    assert (diagnose_text(text, rules).case.value("collective.absent_ranks") or []) == ranks
