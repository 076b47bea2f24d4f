"""What all ranks raise alike is nobody's fault; what one does alone is."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text


def raised(words: str, ranks: range = range(4)) -> str:
    return "".join(
        f"[rank{rank}]: Traceback (most recent call last):\n"
        f'[rank{rank}]:   File "/app/train.py", line 90, in <module>\n'
        f"[rank{rank}]:     main()\n"
        f"[rank{rank}]: {words.format(rank=rank)}\n"
        for rank in ranks
    )


STEPS = "".join(f"[rank{rank}]: step {n}/90 loss 2.{n}\n" for n in range(1, 5) for rank in range(4))


@pytest.mark.parametrize(
    "words",
    [
        "RuntimeError: shape '[2, 16, 1, 16]' is invalid for input of size 768",
        "RuntimeError: operator torchvision::nms does not exist",
        "ValueError: no layout for rank {rank}",
    ],
    ids=["exception", "version", "names itself"],
)
def test_what_all_raise_names_nobody(words: str, rules: RuleSet) -> None:
    assert diagnose_text(STEPS + raised(words), rules).candidates[0].culprits == []
    alone = diagnose_text(STEPS + raised(words, range(2, 3)), rules).candidates[0].culprits
    assert [culprit.rank for culprit in alone] == [2]


def test_the_host_of_a_batch_script_is_not_to_blame_for_a_limit(rules: RuleSet) -> None:
    limit = "slurmstepd: error: *** JOB 4711 ON node-gpu03 CANCELLED AT 2025-06-03T18:00:00 DUE TO TIME LIMIT ***\n"
    found = diagnose_text("step 1/90 loss 2.0\nstep 2/90 loss 2.0\n" + limit, rules)
    assert found.cause == "job-preempted"
    assert found.candidates[0].culprits == []


def test_whose_own_numbers_were_bad_is_named_and_not_who_raised_of_the_mean(rules: RuleSet) -> None:
    steps = "".join(f"[rank{rank}]: step 5 loss {'nan' if rank == 2 else '2.0'}\n" for rank in range(4))
    text = STEPS + steps + raised("FloatingPointError: mean loss is nan in step 5")
    assert [culprit.rank for culprit in diagnose_text(text, rules).candidates[0].culprits] == [2]


def test_the_host_is_named_of_which_every_rank_raises_the_same(rules: RuleSet) -> None:
    joined = "".join(
        f"n{rank // 2}:{40 + rank}:{40 + rank} [{rank % 2}] NCCL INFO comm 0x7f01 rank {rank} nranks 4 cudaDev {rank % 2} nvmlDev {rank % 2} "
        "busId 2000 - Init COMPLETE\n"
        for rank in range(4)
    )
    words = "FileNotFoundError: [Errno 2] No such file or directory: '/local/index.npy'"
    found = diagnose_text(joined + STEPS + raised(words, range(2, 4)), rules).candidates[0]
    assert [(culprit.rank, culprit.host) for culprit in found.culprits] == [(None, "n1")]


def test_all_who_raise_the_same_are_named_where_others_do_not(rules: RuleSet) -> None:
    found = diagnose_text(STEPS + raised("KeyError: 'b'", range(1, 3)), rules).candidates[0]
    assert [culprit.rank for culprit in found.culprits] == [1, 2]
