"""Whose silence means anything."""

from __future__ import annotations

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
