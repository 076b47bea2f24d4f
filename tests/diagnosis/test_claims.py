"""Facts by which rows check what they claim: who refused, who was killed with whom, whose code looked for what."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

HOSTS = "".join(
    f"gpu0{rank}:10{rank}:10{rank} [0] NCCL INFO Bootstrap : Using eth0:10.0.0.{rank}<0>\n"
    f"gpu0{rank}:10{rank}:15{rank} [0] NCCL INFO comm 0x5581 rank {rank} nranks 3 cudaDev 0 busId 1000 - Init COMPLETE\n"
    for rank in range(3)
)
REFUSED = (
    "gpu01:101:151 [0] misc/socket.cc:484 NCCL WARN socketPollConnect: connect to 10.0.0.{}<5001> returned Connection refused, "
    "exceeded error retry count (35)\n"
)
KILLED = """  time      : 2025-11-23_10:22:{second}
  host      : gpu07
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: 4023{rank})
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4023{rank}
"""
LINE = "------------------------------------------------------------\n"


@pytest.mark.parametrize(
    ("second", "code", "together"), [(31, -9, True), (32, -9, True), (40, -9, None), (31, -15, None)]
)
def test_all_ranks_killed_at_once_were_not_killed_for_memory(
    second: int, code: int, together: bool | None, rules: RuleSet
) -> None:
    text = (
        f"train.py FAILED\n{LINE}Failures:\n[1]:\n{KILLED.format(second=second, rank=1, code=code)}{LINE}"
        f"Root Cause (first observed failure):\n[0]:\n{KILLED.format(second=31, rank=0, code=-9)}{LINE}"
    )
    found = diagnose_text(text, rules)
    assert found.case.value("process.killed_together") is together
    assert ("host-out-of-memory" in [one.id for one in found.candidates[:1]]) is (together is None)
