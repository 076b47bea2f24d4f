"""The seeds of the fuzzer, the inputs that it found, and some that hypothesis spoils: none of them is a defect."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import seeds
from tests.fuzz.targets import TARGETS

FOUND = [path for path in sorted((Path(__file__).parent / "found").rglob("*")) if path.is_file()]
#: How many spoilt inputs each target gets: those that make a whole report are slow.
EXAMPLES = {"diagnosis": 6, "report": 4}


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_stays_mended(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_no_defects(name: str) -> None:
    tried = 0
    for data in seeds.of(name):
        if name != "diagnosis" or tried < 6:
            TARGETS[name](data)
        tried += 1
    assert tried > 2


@pytest.mark.parametrize("name", TARGETS)
def test_spoilt_inputs_are_no_defects(name: str) -> None:
    texts = tuple(data.decode("utf-8", "replace") for data in seeds.of(name))

    @settings(max_examples=EXAMPLES.get(name, 20), deadline=None)
    @given(seeds.spoilt(texts))
    def holds(data: bytes) -> None:
        TARGETS[name](data)

    @settings(max_examples=EXAMPLES.get(name, 20), deadline=None)
    @given(st.binary(max_size=300))
    def holds_for_any(data: bytes) -> None:
        TARGETS[name](data)

    holds()
    holds_for_any()
