"""The reader of pickles: plain data come out as they went in, anything else is refused before it can do harm."""

from __future__ import annotations

import os
import pickle
import pickletools
import resource
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_triage.recorder import unpickle
from nccl_triage.recorder.unpickle import NotPlainError, loads

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4) | st.tuples(inner, inner) | st.tuples(inner) | st.tuples(inner, inner, inner, inner),
    max_leaves=20,
)  # fmt: skip


@given(PLAIN, st.integers(2, 5))
def test_plain_data_come_back(value: object, protocol: int) -> None:
    assert loads(pickle.dumps(value, protocol)) == value


def test_bytes_come_back() -> None:
    assert loads(pickle.dumps([b"", b"x" * 300, b"y" * 70_000], 4)) == [b"", b"x" * 300, b"y" * 70_000]


@given(st.binary(max_size=80).map(lambda tail: b"\x80\x02" + tail))
def test_any_bytes_give_data_or_one_error(data: bytes) -> None:
    try:
        loads(data)
    except NotPlainError:
        return


@given(PLAIN, st.data())
def test_a_dump_that_was_cut_off_is_refused(value: object, data: st.DataObject) -> None:
    whole = pickle.dumps(value, 4)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(NotPlainError):
        loads(whole[:cut])


class _Runs:
    def __init__(self, trap: Path) -> None:
        self.trap = trap

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.trap}",)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_run(protocol: int, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    for document in (_Runs(trap), {"version": "2.10", "entries": [_Runs(trap)]}):
        with pytest.raises(NotPlainError):
            loads(pickle.dumps(document, protocol))
    assert not trap.exists()


def test_every_opcode_that_names_or_calls_is_refused() -> None:
    plain = {
        "PROTO", "FRAME", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "APPEND", "APPENDS", "SETITEM", "SETITEMS",
        "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
        "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BINPUT", "LONG_BINPUT",
        "BINGET", "LONG_BINGET", "MEMOIZE",
    }  # fmt: skip
    for op in pickletools.opcodes:
        if op.name not in plain:
            # Operands enough on the stack for whatever it would take.
            with pytest.raises(NotPlainError, match="nothing was executed"):
                loads(b"\x80\x02" + b"](" * 3 + op.code.encode("latin-1") + b"cos\nsystem\n\0\0\0\0\0\0\0\0.")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x80\x02]r\xff\xff\xff\xff.", None),  # a memo of four billion places
        (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f].", None),  # a frame of eight exabytes
        (b"\x80\x02X\xff\xff\xff\xffab.", "cut off"),
        (b"\x80\x05\x8d\xff\xff\xff\xff\xff\xff\xff\xffab.", "cut off"),
        (b"\x80\x02\x8a\xff" + b"\1" * 255 + b".", "too many digits"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f" + b"\1" * 99 + b".", "opcode"),
        (b"\x80\x02}(K\x01K\x02u.", "not text"),
        (b"\x80\x02}((K\x01K\x02tK\x02u.", "not text"),
        (b"\x80\x02}K\x01K\x02s.", "not text"),
        (b"\x80\x02]q\x00h\x00a.", None),  # a list that holds itself
        (b"\x80\x02h\x07.", "cut off"),
        (b"\x80\x02e.", "cut off"),
        (b"\x80\x02]].", "cut off"),
        (b"(lp0\n.", "protocol 2"),
        (b"", "protocol 2"),
    ],
)
def test_tricks(data: bytes, why: str | None) -> None:
    if why is None:
        assert isinstance(loads(data), list)
    else:
        with pytest.raises(NotPlainError, match=why):
            loads(data)


def test_nesting_does_not_end_the_program() -> None:
    deep = loads(b"\x80\x02" + b"](" * 300_000 + b"e" * 300_000 + b".")
    assert isinstance(deep, list)


def test_a_small_file_cannot_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpickle, "MAX_CONTAINERS", 10_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for bomb in (b"}" * 4_000_000, b"](" * 2_000_000, b"(t" * 2_000_000):
        with pytest.raises(NotPlainError, match="more than 10000"):
            loads(b"\x80\x02" + bomb + b".")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000


def test_steps_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpickle, "MAX_OPS", 1000)
    with pytest.raises(NotPlainError, match="more than 1000 steps"):
        loads(b"\x80\x02" + b"N" * 2000 + b".")
    assert loads(b"\x80\x02" + b"X" + struct.pack("<I", 5000) + b"a" * 5000 + b".") == "a" * 5000
