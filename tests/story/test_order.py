"""Events of several files in one order, as far as their clocks tell."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.store import Observations
from tests.scan_helpers import scan_text

STOPPED = "W1121 22:58:02.866000 10948 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 10954 closing signal SIGTERM\n"
SAVES = "2025-11-21 22:57:50,100 INFO [rank 0/2] saving checkpoint step_5 (26.9 GB) to /mnt/nfs/checkpoints\n"
RAISED = (
    "2025-11-21 22:57:40,100 INFO [rank 1/2] step 5/10 loss 2.0\n"
    "Traceback (most recent call last):\n"
    '  File "/a/train.py", line 7, in <module>\n'
    "    dist.barrier()\n"
    "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 10000ms for recv operation to complete\n"
)


def ordered(rules: RuleSet, **files: str) -> Case:
    found = Observations()
    for name, text in files.items():
        found.absorb(scan_text(text, rules, name))
    return Case(found, rules)


def test_a_file_with_few_stamps_stands_behind_them(rules: RuleSet) -> None:
    """Most lines of a traceback carry no time: they come behind the last line that does, and not wherever in the file."""
    case = ordered(rules, a_launcher=STOPPED * 3, rank0=SAVES, rank1=RAISED)
    assert next(e.source for e in case.events if e.kind in ("task.started", "process.stopped")) == "rank0"
    assert not case.order_known


def test_files_without_any_stamp_stand_by_their_share(rules: RuleSet) -> None:
    undated = "step 1 loss 2.0\nKeyError: 'a'\n"
    case = ordered(rules, one=undated, two=undated)
    assert [e.source for e in case.events if e.kind == "step"] == ["one", "two"]
    assert not case.order_known
