from __future__ import annotations

from nccl_triage.render import rank_grid

from .documents import diagnosed, healthy, large, rank_entry


def test_no_ranks_no_grid():
    assert rank_grid.rank_grid(healthy()) is None


def test_few_ranks_are_cells_and_many_are_paths():
    small = rank_grid.rank_grid(diagnosed())
    assert small is not None
    assert [cell["state"] for cell in small.cells].count("root") == 1
    assert [label for _, _, label in small.labels] == ["node-a", "node-b"]
    big = rank_grid.rank_grid(large(512))
    assert big is not None
    assert not big.cells
    paths = dict(big.paths)
    assert paths["entered"].count("z") == 511
    assert set(paths) == {"entered", "missing", "mark"}
    assert ("missing", 1) in [(state, count) for state, _, count, _ in big.legend]


def test_more_ranks_than_fit_leave_out_the_commonest_state():
    grid = rank_grid.rank_grid(large(8192))
    assert grid is not None
    assert grid.not_drawn == 8191
    assert [cell["state"] for cell in grid.cells] == ["missing"]


def test_a_state_of_a_newer_version_counts_as_unknown():
    grid = rank_grid.rank_grid({"job": {"ranks": [rank_entry(0, None, "frozen")]}})
    assert grid is not None
    assert grid.legend[0][0] == "unknown"
