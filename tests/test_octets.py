"""Newlines are counted right, however long the lines are and whichever way is taken."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from nccl_triage.ingest.newlines import Newlines

LINES = st.lists(st.sampled_from([b"", b"a" * 10, b"b" * 39, b"c" * 40, b"d" * 700]), max_size=200)


@given(LINES, st.lists(st.integers(0, 20_000), min_size=2, max_size=12))
def test_as_bytes_count_whatever_was_counted_before(lines: list[bytes], cuts: list[int]) -> None:
    data = b"\n".join(lines)
    places = [min(cut, len(data)) for cut in cuts]
    counter = Newlines()
    for one, other in itertools.pairwise(places):
        start, stop = sorted((one, other))
        assert counter.count(data, start, stop) == data.count(b"\n", start, stop)
