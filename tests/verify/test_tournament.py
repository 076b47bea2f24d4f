"""Rounds of pairs, and who is to blame."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_triage.verify.tournament import ROUNDS, blame, partner, rounds


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.integers(1, 40))
def test_rounds_are_disjoint_and_partners_change(count: int, most: int) -> None:
    found = rounds(range(count), most)
    assert len(found) == min(most, count - 1 + count % 2)
    for meeting in found:
        units = [unit for pair in meeting for unit in pair]
        assert len(set(units)) == len(units) == count - count % 2
    met = [frozenset(pair) for meeting in found for pair in meeting]
    assert len(set(met)) == len(met)


def test_all_rounds_are_all_pairs() -> None:
    for count in (4, 5, 8):
        met = {frozenset(pair) for meeting in rounds(range(count), 99) for pair in meeting}
        assert met == {frozenset(pair) for pair in itertools.combinations(range(count), 2)}


def results(count: int, bad: set[int] | frozenset[frozenset[int]], most: int = ROUNDS) -> dict[tuple[int, int], bool]:
    return {
        pair: bool(set(pair) & bad) or frozenset(pair) in bad
        for meeting in rounds(range(count), most)
        for pair in meeting
    }


@pytest.mark.parametrize("count", [3, 4, 5, 8, 16, 33])
def test_one_bad_host_is_in_all_of_its_pairs_and_no_other_is(count: int) -> None:
    for culprit in range(count):
        found = blame(results(count, {culprit}))
        assert (found.units, found.pairs, found.everywhere) == ((culprit,), (), False)
        assert partner(culprit, results(count, {culprit}), found.units) not in (None, culprit)


def test_two_rounds_are_enough_for_one_culprit() -> None:
    assert blame(results(8, {5}, 2)).units == (5,)


def test_a_bad_link_between_good_hosts_is_a_pair() -> None:
    found = blame(results(4, frozenset({frozenset({1, 2})})))
    assert (found.units, {frozenset(pair) for pair in found.pairs}) == ((), {frozenset({1, 2})})


def test_of_two_hosts_nobody_can_tell_which() -> None:
    found = blame({("a", "b"): True})
    assert (found.units, found.pairs) == ((), (("a", "b"),))
    assert partner("a", {("a", "b"): True}, ()) is None


def test_where_every_pair_fails_nobody_stands_out() -> None:
    assert blame(dict.fromkeys(results(4, set()), True)).everywhere
    assert not blame(results(4, set())).units and not blame({}).everywhere


def test_a_new_partner_is_preferred() -> None:
    known = {("a", "b"): True, ("c", "d"): False, ("a", "c"): True, ("b", "d"): False}
    assert partner("a", known, ("a",)) == "d"
