"""Whose silence means anything."""

from __future__ import annotations

import pytest

from nccl_triage.document.diagnosis import Diagnosis, diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.store import Observations
from tests.scan_helpers import diagnose_text, scan_text

STEP = "[rank{rank}]: step 1/9 loss 2.1 world_size=4\n"
LATE = (
    "[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for "
    "recv operation to complete\n"
)


def files(rules: RuleSet, ranks: list[int], silent: set[int]) -> Diagnosis:
    found = Observations()
    for rank in ranks:
        text = STEP.format(rank=rank) + ("" if rank in silent else LATE.format(rank=rank))
        found.absorb(scan_text(text, rules, f"rank{rank}.log"))
    return diagnose_observations(found, rules)


def test_a_rank_without_a_file_is_not_silent(rules: RuleSet) -> None:
    assert files(rules, [0, 1, 2], set()).case.value("progress.silent_ranks") is None
    assert files(rules, [0, 1, 2, 3], {3}).case.value("progress.silent_ranks") == [3]


def at_line(rank: int, line: int) -> str:
    return "".join(
        f"[rank{rank}]: {text}\n"
        for text in (
            "Traceback (most recent call last):",
            f'  File "/app/train.py", line {line}, in fit',
            '  File "/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9, in all_reduce',
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:2284",
        )
    )


@pytest.mark.parametrize(("world", "odd"), [(3, [1]), (4, [0, 1, 2]), (8, [0, 1, 2])])
def test_a_majority_is_one_whatever_ranks_without_a_file_did(world: int, odd: list[int], rules: RuleSet) -> None:
    found = Observations()
    for rank, line in ((0, 80), (1, 82), (2, 80)):
        text = STEP.format(rank=rank).replace("=4", f"={world}") + at_line(rank, line)
        found.absorb(scan_text(text, rules, f"rank{rank}.log"))
    assert diagnose_observations(found, rules).case.value("mismatch.elsewhere_ranks") == odd


def test_in_the_log_of_a_launcher_everybody_could_speak(rules: RuleSet) -> None:
    text = "".join(STEP.format(rank=rank) + LATE.format(rank=rank) for rank in range(3))
    assert diagnose_text(text, rules).case.value("progress.silent_ranks") == [3]


def test_none_of_several_that_are_silent_alike_is_named(rules: RuleSet) -> None:
    steps = "".join(f"[rank{rank}]: step 1/9 loss 2.1 world_size=8\n" for rank in range(8))
    loud = "".join(LATE.format(rank=rank) for rank in (0, 1, 4, 5, 7))
    found = diagnose_text(steps + loud, rules)
    assert found.case.value("progress.stalled_ranks") is None
    one = diagnose_text(steps + loud + LATE.format(rank=2) + LATE.format(rank=3), rules)
    assert one.case.value("progress.stalled_ranks") == [6]
