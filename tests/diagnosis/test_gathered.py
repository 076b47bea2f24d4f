"""Failures that one rank reports for another: join(), sharded checkpoints, remote calls, messages that never meet."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

READY = "".join(f"[rank{rank}]: joined: rank {rank} of 3 on node-a\n" for rank in range(3))
TRACE = '[rank{rank}]: Traceback (most recent call last):{more}\n[rank{rank}]:   File "/app/train.py", line {line}, in run\n'


def test_join_names_the_rank_without_batches(rules: RuleSet) -> None:
    others = "RuntimeError: Detected at least one rank that exhausted inputs. Throwing across all ranks.\n"
    text = READY + "".join(
        TRACE.format(rank=rank, more="", line=7 + rank % 2)
        + f"[rank{rank}]: "
        + ("RuntimeError: Rank 1 exhausted all inputs.\n" if rank == 1 else others)
        for rank in (2, 1, 0)
    )
    top = diagnose_text(text, rules).candidates[0]
    assert top.id == "rank-divergence"
    assert [culprit.rank for culprit in top.culprits] == [1]


def test_a_sharded_checkpoint_s_exception_names_the_rank_that_could_not_read(rules: RuleSet) -> None:
    text = READY
    for rank in range(3):
        text += TRACE.format(rank=rank, more="", line=7)
        text += f"[rank{rank}]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([2])\n"
        text += TRACE.format(rank=rank, more=" (RANK 2)", line=9)
        text += f"[rank{rank}]: RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory\n"
    top = diagnose_text(text, rules).candidates[0]
    assert top.id == "storage-fault"
    assert [culprit.rank for culprit in top.culprits] == [2]


def test_a_remote_exception_is_the_worker_s(rules: RuleSet) -> None:
    text = READY + TRACE.format(rank=0, more="", line=7)
    text += "[rank0]: ValueError: On WorkerInfo(id=2, name=trainer2):\n[rank0]: ValueError('no token 7')\n"
    top = diagnose_text(text, rules).candidates[0]
    assert top.id == "application-exception"
    assert [culprit.rank for culprit in top.culprits] == [2]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("RuntimeError: RPCErr:1:RPC ran for more than set timeout (6000 ms) and will now be marked with an error", "straggler"),
        ("RuntimeError: ProcessGroupGloo::scatter: Incorrect input list size 2. Input list size should be 3, same as size of the process group.", "application-exception"),
    ],
    ids=["remote call too slow", "arguments refused"],
)  # fmt: skip
def test_calls_that_fail(line: str, cause: str, rules: RuleSet) -> None:
    assert diagnose_text(READY + TRACE.format(rank=0, more="", line=7) + line + "\n", rules).candidates[0].id == cause


@pytest.mark.parametrize("call", ["send", "recv"])
def test_a_pair_that_does_not_meet(call: str, rules: RuleSet) -> None:
    text = READY
    for rank, name in ((1, call), (2, "recv")):
        text += TRACE.format(rank=rank, more="", line=7 + rank)
        text += f'[rank{rank}]:   File "/v/site-packages/torch/distributed/distributed_c10d.py", line 9, in {name}\n'
        text += f"[rank{rank}]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for {name} operation to complete\n"
    found = diagnose_text(text, rules)
    assert found.case.value("mismatch.unmet_pair") == ([1, 2] if call == "send" else None)


def test_the_rank_with_another_checkpoint_name(rules: RuleSet) -> None:
    text = READY
    for rank, name in enumerate(("s5", "s5", "s6")):
        text += TRACE.format(rank=rank, more="", line=7)
        text += f"[rank{rank}]: AssertionError: [rank={rank}] The checkpoint tag name '{name}' is not consistent across all ranks. Including rank unique information in checkpoint tag could cause issues when restoring with different world sizes.\n"
    found = diagnose_text(text, rules)
    assert found.case.value("mismatch.tag_ranks") == [2]
    assert "rank-divergence" in {candidate.id for candidate in found.candidates}
