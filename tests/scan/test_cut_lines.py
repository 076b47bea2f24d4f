"""Lines that a terminal cut at its width are put together, where nearly all that is full goes on in the middle."""

from __future__ import annotations

import pytest

from nccl_triage.scan.terminal_wrap import whole

LINES = [
    "2025-06-03 09:00:01,123 INFO trainer: loaded 128 shards of the data set from /data/corpus/en/part-00017-of-00128.parquet",
    "[rank0]: Traceback (most recent call last):",
    "[rank3]:[E1126 12:00:00.123456789 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
    "2025-06-03 09:00:02,123 ERROR trainer: the checkpoint of step 4711 is damaged, going back to that of step 4000 instead",
]


@pytest.mark.parametrize("width", [64, 80, 100])
def test_what_was_cut_is_put_together(width: int) -> None:
    cut = [line[at : at + width] for line in LINES for at in range(0, len(line), width)]
    parts = whole(cut)
    assert parts is not None
    assert ["".join(cut[number] for number in part) for part in parts] == LINES


@pytest.mark.parametrize(
    "lines",
    [
        LINES,
        [f"2025-06-03 09:00:{n:02d},123 INFO trainer: step {n:06d} loss 2.1 grad_norm 1.25 lr 1e-5" for n in range(50)],
        [
            "=" * 80,
            "train.py FAILED",
            "-" * 80,
            "Failures:",
            "  <NO_OTHER_FAILURES>",
            "-" * 80,
            "Root Cause:",
            "=" * 80,
        ],
        [f"worker-{name}{' ' * 50}Running{' ' * 9}0" for name in ("abc", "xyz", "def", "ghi")],
        [],
    ],
)
def test_other_logs_stay_as_they_are(lines: list[str]) -> None:
    assert whole(lines) is None
