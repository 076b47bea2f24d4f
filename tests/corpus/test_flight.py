"""The recorded dumps: who did it is named, in the form that Gloo wrote and in the one of NCCL."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from corpus.flight.__main__ import HERE, labels, members, our_names, torch_names
from corpus.flight.convert import as_nccl, read_set, write_set
from tests.recorder import build

ROWS = {row["id"]: row for row in labels()}
#: What the dumps cannot show: no record holds the root.
UNSEEN = {"root-0", "root-1", "root-3"}


@pytest.mark.parametrize("name", sorted(set(ROWS) - UNSEEN))
def test_what_gloo_wrote(name: str) -> None:
    assert build.blamed(HERE / "sets" / name) == ROWS[name]["culprits"]


@pytest.mark.parametrize("name", sorted(UNSEEN))
def test_nobody_else_is_blamed_where_the_dumps_cannot_show_it(name: str) -> None:
    assert set(build.blamed(HERE / "sets" / name)) <= set(ROWS[name]["culprits"])


@pytest.mark.parametrize("name", sorted(name for name in ROWS if not name.startswith("root")))
def test_as_nccl_would_have_written_it(name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    folder = write_set(as_nccl(read_set(HERE / "sets" / name), members(row)), tmp_path)
    assert build.blamed(folder) == row["culprits"]


@pytest.mark.parametrize("name", ["matched", "size-0", "missing-3", "ahead-2", "circle"])
def test_the_diagnosis_names_them_too(name: str) -> None:
    assert our_names(HERE / "sets" / name) == ROWS[name]["culprits"]


def test_the_analyser_of_torch_blames_the_others_when_the_first_rank_is_wrong(tmp_path: Path) -> None:
    """What docs/flight-recorder.md says of it; an analyser that has become better would be good news for that table."""
    with contextlib.suppress(ImportError):
        from torch.distributed.flight_recorder import fr_trace  # noqa: F401

        folder = write_set(as_nccl(read_set(HERE / "sets" / "operation-0")), tmp_path)
        assert torch_names(folder) == ([1, 2, 3], "")
        return
    pytest.skip("this torch has no flight recorder analyser")
