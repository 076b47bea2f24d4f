"""The index: what it holds comes back, rare features weigh more, and damage is told."""

from __future__ import annotations

import gzip
import math

import pytest

from nccl_triage.errors import InputError
from nccl_triage.similar import threads
from nccl_triage.similar.threads import PublicThread

A = PublicThread("https://example.org/1", "port-in-use", "both jobs use one port", "maintainer")
B = PublicThread("https://example.org/2", "os-limit", "", "")
INDEX = threads.indexed([(A, {"s:x", "s:y", "w:bind"}), (B, {"s:y", "p:ignored"})])


def test_an_index_survives_its_file() -> None:
    data = threads.to_bytes(INDEX)
    assert threads.from_bytes(data, "index") == INDEX
    assert threads.to_bytes(threads.from_bytes(data, "index")) == data


def test_a_feature_of_few_threads_weighs_more_and_one_of_all_nothing() -> None:
    assert INDEX.weight("s:x") > INDEX.weight("s:y") == 0
    assert INDEX.weight("r:x") > INDEX.weight("s:x") > INDEX.weight("w:bind") > INDEX.weight("p:ignored") == 0


def test_lengths_are_those_of_the_vectors() -> None:
    expected = math.sqrt(sum(INDEX.weight(name) ** 2 for name in ("s:x", "s:y", "w:bind")))
    assert INDEX.lengths == (pytest.approx(expected, abs=1e-4), 0.0)


@pytest.mark.parametrize(
    "data", [b"", b"no gzip", gzip.compress(b"{"), gzip.compress(b"{}"), gzip.compress(b"[]")], ids=range(5)
)
def test_a_damaged_index_is_told(data: bytes) -> None:
    with pytest.raises(InputError, match="no index of threads"):
        threads.from_bytes(data, "it")
