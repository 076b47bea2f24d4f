"""Numbers that no job has: whatever a line counts, an answer costs no more than the lines."""

from __future__ import annotations

import re
import resource
import zlib

import pytest

from corpus.relations.world import RECORDED, diagnose
from nccl_triage.evaluation import cases

#: One recorded log in so many; seconds of the processor that a diagnosis may take more than that of the log itself.
SHARE, MORE = 40, 2.0
#: Numbers of ranks, sizes, steps and sequences, as lines write them.
_COUNTS = re.compile(r"(?<=[ =:])\d{1,4}(?=[ ,;)\]/]|$)", re.MULTILINE)


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("number", ["287738587", "65537", "9" * 30])
def test_counts_cost_nothing(number: str) -> None:
    tried = 0
    for case in cases.read(RECORDED):
        if zlib.crc32(case.id.encode()) % SHARE:
            continue
        text = case.log.read_bytes().decode("utf-8", "surrogateescape")[:100_000]
        changed, count = _COUNTS.subn(lambda found: number if int(found[0]) > 1 else found[0], text)
        start = _seconds()
        diagnose({"log": text})
        middle = _seconds()
        diagnose({"log": changed})
        assert _seconds() - middle < 3 * (middle - start) + MORE, case.id
        tried += bool(count)
    assert tried > 5


def test_a_communicator_of_more_ranks_than_there_are_machines() -> None:
    diagnose({"log": "the rules are loaded\n"})
    start = _seconds()
    lines = "".join(
        f"gpu0{rank}:40{rank}:40{rank} [0] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks 287738587 cudaDev 0 "
        f"nvmlDev 0 busId {rank}000 commId 0x9d1c80 - Init START\n"
        for rank in range(3)
    )
    diagnose({"log": lines})
    assert _seconds() - start < MORE
