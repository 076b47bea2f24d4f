"""Lines without their digits: what is of one shape, and what is not."""

from __future__ import annotations

import pytest

from nccl_triage.scan.folding import fold


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
