"""The collector looks seldom in processes of ours, and never at others' dead objects less than they want."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from nccl_triage import gc_tuning


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold, collects, frozen = gc.get_threshold(), gc.isenabled(), gc.get_freeze_count()
    gc.set_threshold(700, 10, 10)  # another test may have made this process one of ours
    gc.enable()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()
    if frozen:  # what was made for the tests themselves
        gc.freeze()
    (gc.enable if collects else gc.disable)()


def test_a_process_that_only_calls_us_keeps_its_collector() -> None:
    """The interface for programs loads rules, too."""
    frozen, threshold = gc.get_freeze_count(), gc.get_threshold()
    with gc_tuning.paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert (gc.get_freeze_count(), gc.get_threshold()) == (frozen, threshold)


def test_what_stays_is_not_looked_at_in_a_process_of_ours() -> None:
    """Rules are made once and stay."""
    gc_tuning.collect_rarely()
    with gc_tuning.paused():
        made = [[number] for number in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= len(made)


def test_it_stays_off_where_it_was_off() -> None:
    """Somebody else has switched it off."""
    gc.disable()
    with gc_tuning.paused():
        pass
    assert not gc.isenabled()


def test_an_ending_process_is_not_looked_through() -> None:
    """Python would look through all that is left, several times."""
    made = [[number] for number in range(1000)]
    gc_tuning.skip_at_exit()
    assert not gc.isenabled()
    assert gc.get_freeze_count() >= len(made)
