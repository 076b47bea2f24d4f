from __future__ import annotations

import os
from pathlib import Path

import pytest

from nccl_triage.ingest import walk


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")


def below(folder: Path) -> tuple[list[str], list[str]]:
    complaints: list[str] = []

    def complain(path: Path, why: str) -> None:
        complaints.append(f"{path.name}: {why}")

    found = [path.relative_to(folder).as_posix() for path, _ in walk.tree(folder, complain) if path.is_file()]
    return found, complaints


def expanded(folder: Path, pattern: str) -> list[str]:
    found = walk.expand(f"{folder}/{pattern}", lambda path, why: None)
    return [path.relative_to(folder).as_posix() for path in found]


def test_natural_order() -> None:
    names = ["rank10", "rank2", "rank02", "rank1", "a", "rank", "10", "2", "2a"]
    assert sorted(names, key=walk.natural_key) == [
        "2", "2a", "10", "a", "rank", "rank1", "rank02", "rank2", "rank10",
    ]  # fmt: skip


def test_a_tree_in_its_order(tmp_path: Path) -> None:
    make(tmp_path, "b/rank10.log", "b/rank9.log", "a.log", "b/c/x.log", "c.log")
    assert below(tmp_path) == (["a.log", "b/c/x.log", "b/rank9.log", "b/rank10.log", "c.log"], [])


def test_folders_of_code_are_not_entered(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", "env/site-packages/x.txt", "__pycache__/y.txt", ".hidden/z.log", "t.log")
    assert below(tmp_path)[0] == [".hidden/z.log", "t.log"]


def test_loops_end_and_are_told(tmp_path: Path) -> None:
    make(tmp_path, "a/b/x.log")
    (tmp_path / "a/b/up").symlink_to(tmp_path / "a")
    (tmp_path / "a/self").symlink_to(".")
    found, complaints = below(tmp_path)
    assert found == ["a/b/x.log"]
    assert [text.split(":")[0] for text in complaints] == ["up", "self"]
    assert all("a link back" in text for text in complaints)


def test_a_folder_linked_twice_is_walked_once_and_not_told(tmp_path: Path) -> None:
    """As Ray's session_latest."""
    make(tmp_path, "session_1/raylet.out")
    (tmp_path / "session_latest").symlink_to("session_1")
    assert below(tmp_path) == (["session_1/raylet.out"], [])


def test_links_to_nothing_and_to_themselves(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "round").symlink_to("round")
    found, complaints = below(tmp_path)
    assert found == []
    assert complaints == ["gone: No such file or directory", "round: Too many levels of symbolic links"]


def test_a_very_deep_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    depth = 1200  # beyond Python's recursion limit
    make(tmp_path, "keep")
    monkeypatch.chdir(tmp_path)
    for _ in range(depth):
        Path("d").mkdir()
        monkeypatch.chdir("d")
    Path("x.log").write_text("x")
    monkeypatch.chdir(tmp_path)
    expected = "d/" * depth + "x.log"
    assert below(tmp_path) == ([expected, "keep"], [])
    # The clean-up of pytest recurses.
    Path(expected).unlink()
    os.removedirs(Path(expected).parent)


def test_patterns_in_one_folder(tmp_path: Path) -> None:
    make(tmp_path, "rank10.log", "rank9.log", "rank9.txt", "sub/rank1.log", ".rank0.log")
    assert expanded(tmp_path, "*.log") == ["rank9.log", "rank10.log"]
    assert expanded(tmp_path, "*/*.log") == ["sub/rank1.log"]
    assert expanded(tmp_path, "rank?.*") == ["rank9.log", "rank9.txt"]
    assert expanded(tmp_path, "nothing*") == []


def test_patterns_across_folders(tmp_path: Path) -> None:
    make(tmp_path, "a.log", "x/b.log", "x/y/c.log", "x/y/d.txt", ".h/e.log", "x/.f.log", "x/y/rank_1/o.log")
    assert expanded(tmp_path, "**/*.log") == ["a.log", "x/b.log", "x/y/c.log", "x/y/rank_1/o.log"]
    assert expanded(tmp_path, "x/**/*.log") == ["x/b.log", "x/y/c.log", "x/y/rank_1/o.log"]
    assert expanded(tmp_path, "**/y/*.log") == ["x/y/c.log"]
    assert expanded(tmp_path, "**/y/**/o.log") == ["x/y/rank_1/o.log"]
    assert expanded(tmp_path, "x/**") == ["x/b.log", "x/y/c.log", "x/y/d.txt", "x/y/rank_1/o.log"]
    assert expanded(tmp_path, "**/rank_?") == ["x/y/rank_1"]
    assert expanded(tmp_path, "**/**/a.log") == ["a.log"]
    assert expanded(tmp_path, ".h/**/*.log") == [".h/e.log"]


def test_patterns_do_not_follow_links_in_circles(tmp_path: Path) -> None:
    """Two links to the folder itself: 2^40 paths for a walk that only counts levels."""
    make(tmp_path, "x.log")
    (tmp_path / "one").symlink_to(".")
    (tmp_path / "two").symlink_to(".")
    assert expanded(tmp_path, "**/*.log") == ["x.log"]


def test_a_relative_pattern_gives_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a.log", "x/b.log")
    monkeypatch.chdir(tmp_path)
    assert [str(path) for path in walk.expand("**/*.log", lambda path, why: None)] == ["a.log", "x/b.log"]
    assert [str(path) for path in walk.expand("*.log", lambda path, why: None)] == ["a.log"]
