"""Blocks of bytes are counted, searched and translated right, with the wheel and without."""

from __future__ import annotations

import itertools
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nccl_triage import byte_search

LINES = st.lists(st.sampled_from([b"", b"a" * 10, b"b" * 39, b"c" * 40, b"d" * 700, b"0x9f1"]), max_size=200)
TABLE = bytes.maketrans(b"123456789", b"0" * 9)
#: A fixture that each example may share: it only chooses the way.
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["simd", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setattr(byte_search, "_simd", None)
    elif not isinstance(byte_search._simd, ModuleType):
        pytest.skip("no stringzilla on this machine")
    return str(request.param)


@shared
@given(LINES, st.lists(st.integers(0, 20_000), min_size=2, max_size=12))
def test_newlines_are_counted_whatever_was_counted_before(way: str, lines: list[bytes], cuts: list[int]) -> None:
    data = b"\n".join(lines)
    places = [min(cut, len(data)) for cut in cuts]
    counter = byte_search.Newlines()
    for one, other in itertools.pairwise(places):
        start, stop = sorted((one, other))
        assert counter.count(data, start, stop) == data.count(b"\n", start, stop)


@shared
@given(LINES)
def test_a_text_is_translated(way: str, lines: list[bytes]) -> None:
    data = b"\n".join(lines)
    assert byte_search.translate(data, TABLE) == data.translate(TABLE)


@shared
@given(LINES, st.sampled_from([b"", b"\n", b"0x", b"cb", b"c\nd", b"a" * 11]), st.integers(0, 3000))
def test_a_text_is_found(way: str, lines: list[bytes], text: bytes, start: int) -> None:
    data = b"\n".join(lines)
    assert byte_search.find(data, text, start) == data.find(text, start)
