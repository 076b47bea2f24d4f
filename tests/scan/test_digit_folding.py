"""Lines without their digits: what is of one shape, and what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_triage.scan import digit_folding
from nccl_triage.scan.digit_folding import Folder, fold, pick_numbers


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (b"comm 0x55ab01 rank 3", b"comm 0x9912fe rank 8"),
        (b"step 12 loss 0.931", b"step 98 loss 7.405"),
        (b"on 8x80 GB", b"on 4x40 GB"),
    ],
)
def test_other_digits_are_of_one_shape(one: bytes, two: bytes) -> None:
    assert fold(one) == fold(two)
    assert len(fold(one)) == len(one)


@pytest.mark.parametrize(
    ("one", "two"),
    [(b"value 0x12", b"value 8x12"), (b"loss 0x1f", b"loss 8x1f"), (b"comm 0x55", b"comm 0x555"), (b"a 1", b"b 1")],
)
def test_a_pointer_is_no_product_and_lengths_count(one: bytes, two: bytes) -> None:
    assert fold(one) != fold(two)


#: Lines around pointers, things like them and what only looks so.
PIECES = st.sampled_from([b"0x", b"8x", b"x", b"0", b"7", b"f", b"A", b"g", b" ", b"0x1f", b"comm 0x55ab01 ", b"\xe2"])


@given(st.lists(st.lists(PIECES, max_size=8).map(b"".join), max_size=40))
def test_what_is_remembered_of_pointers_folds_alike(lines: list[bytes]) -> None:
    folder = Folder()
    for line in [*lines, *lines]:
        assert folder.fold(line) == fold(line)


def test_few_lines_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digit_folding, "_MAX_LINES", 3)
    folder = Folder()
    for n in range(50):
        line = b"comm 0x55ab01" + b"x" * (n % 7)
        assert folder.fold(line) == fold(line)
        assert folder._lines <= 3


def test_numbers_in_a_row_are_cut_out_together() -> None:
    line = b"pid 17, ip 10.2.3.4: step 5 of rank 6"
    spans = [found.span() for found in digit_folding.NUMBER.finditer(line)]
    cut = pick_numbers(spans, (0, 1, 2, 3, 4, 6))
    assert cut is not None
    assert cut(line) == (b"17, ip 10.2.3.4", b"6")
    assert pick_numbers(spans, ()) is None
