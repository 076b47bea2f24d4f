"""The grid of ranks."""

from __future__ import annotations

from typing import Any

from nccl_triage.render import rank_charts

from .documents import diagnosed, healthy, large, rank_entry


def test_no_ranks_no_grid():
    assert rank_charts.rank_grid(healthy()) is None


def test_few_ranks_are_cells_and_many_are_paths():
    small = rank_charts.rank_grid(diagnosed())
    assert small is not None
    assert [cell["state"] for cell in small.cells].count("root") == 1
    assert [(label, at_fault) for _, _, label, at_fault in small.labels] == [("node-a", True), ("node-b", False)]
    big = rank_charts.rank_grid(large(512))
    assert big is not None
    assert not big.cells
    paths = dict(big.paths)
    assert paths["entered"].count("z") == 511
    assert set(paths) == {"entered", "missing", "mark"}
    assert ("missing", 1) in [(state, count) for state, _, count, _ in big.legend]


def test_more_ranks_than_fit_leave_out_the_commonest_state():
    grid = rank_charts.rank_grid(large(8192))
    assert grid is not None
    assert grid.not_drawn == 8191
    assert [cell["state"] for cell in grid.cells] == ["missing"]


def test_a_state_of_a_newer_version_counts_as_unknown():
    grid = rank_charts.rank_grid({"job": {"ranks": [rank_entry(0, None, "frozen"), rank_entry(1, None, "error")]}})
    assert grid is not None
    assert [state for state, *_ in grid.legend] == ["error", "unknown"]


def job(*ranks: tuple[int, str | None], hosts: tuple[str, ...] = (), world: int | None = None) -> dict[str, Any]:
    return {
        "job": {
            "world_size": world,
            "ranks": [rank_entry(rank, host, "error") for rank, host in ranks],
            "hosts": [{"name": host, "addresses": [], "ranks": []} for host in hosts],
        }
    }


def test_ranks_of_which_none_stands_out_are_no_grid():
    assert rank_charts.rank_grid(job((0, "a"), (1, "b"))) is None
    assert rank_charts.rank_grid({"job": {"ranks": [rank_entry(0, "a", "root")]}}) is None
    blamed = {"verdict": "diagnosed", "diagnoses": [{"culprits": [{"rank": None, "host": "b"}]}]}
    grid = rank_charts.rank_grid({**job((0, "a"), (1, "b")), **blamed})
    assert grid is not None
    assert [(label, at_fault) for _, _, label, at_fault in grid.labels] == [("a", False), ("b", True)]


def test_a_host_told_with_and_without_its_domain_is_one():
    document = job((0, "node-a"), (1, "node-a.example.com"), (2, "10.0.0.1"))
    assert rank_charts.hosts_of(document) == {0: "node-a", 1: "node-a", 2: "10.0.0.1"}


def test_a_rank_of_no_host_belongs_to_the_host_of_its_block():
    document = job(*((rank, "a") for rank in range(4)), (4, None), (5, "b"), (6, None), (7, "b"))
    assert rank_charts.hosts_of(document) == {**dict.fromkeys(range(4), "a"), **dict.fromkeys(range(4, 8), "b")}


def test_the_last_block_belongs_to_the_last_host():
    document = job((0, "a"), (1, "a"), (2, None), (3, None), hosts=("a", "b"))
    assert rank_charts.hosts_of(document) == {0: "a", 1: "a", 2: "b", 3: "b"}
    three = job((0, "a"), (1, "a"), (2, None), (3, None), hosts=("a", "b", "c"))
    assert rank_charts.hosts_of(three) == {0: "a", 1: "a"}


def test_hosts_that_do_not_keep_to_blocks_lend_nothing():
    document = job((0, "a"), (1, "b"), (2, "a"), (3, None), (4, "b"))
    assert 3 not in rank_charts.hosts_of(document)


def test_the_number_of_ranks_is_never_below_those_that_are_shown():
    assert rank_charts.world(job((0, None), (5, None))) == (6, False)
    assert rank_charts.world(job((0, None), (5, None), world=8)) == (8, True)
    assert rank_charts.world(job((0, None), (5, None), world=4)) == (6, False)
