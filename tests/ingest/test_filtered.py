from __future__ import annotations

from nccl_triage.ingest.filtered import looks_filtered

NCCL = [f"gpu07:4120:4388 [{n}] NCCL INFO Channel {n:02d}/32" for n in range(20)]


def test_lines_that_share_the_searched_word() -> None:
    assert looks_filtered(NCCL)
    assert looks_filtered(["[rank1]: RuntimeError: a", "ERROR b", "an error c"])


def test_separators_of_grep_do_not_count() -> None:
    assert looks_filtered([*NCCL, "--", *NCCL])


def test_one_other_line_is_enough_against() -> None:
    assert not looks_filtered([*NCCL, "step 1 loss 2.0"])


def test_a_blank_line_is_enough_against() -> None:
    """NCCL prints one before each WARN; grep would have dropped it."""
    assert not looks_filtered([*NCCL, "", *NCCL])


def test_a_traceback_is_enough_against() -> None:
    assert not looks_filtered([*NCCL, "Traceback (most recent call last): NCCL"])
    assert not looks_filtered([*NCCL, '  File "nccl.py", line 3, in f'])
    assert not looks_filtered([*NCCL, '[rank3]:   File "nccl.py", line 3, in f'])
    assert not looks_filtered([*NCCL, "frame #1: ncclAllReduce"])


def test_words_that_all_lines_of_a_program_share_do_not_count() -> None:
    assert not looks_filtered([f"2025-06-03 14:14:3{n} INFO [rank0] step {n}" for n in range(9)])


def test_a_few_lines_show_nothing() -> None:
    assert not looks_filtered([])
    assert not looks_filtered(NCCL[:2])
    assert looks_filtered(NCCL[:3])
