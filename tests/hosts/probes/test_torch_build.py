"""How the torch of an interpreter was built, as its own file says; and what importing it shows."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from nccl_triage.hosts.probes import torch_build

#: As torch 2.13 writes it, and as 1.12 did.
NEW = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '2.9.1+cu128'
debug = False
cuda: Optional[str] = '12.8'
git_version = 'cf30153c'
hip: Optional[str] = None
"""
OLD = "__version__ = '1.12.0'\ndebug = False\ncuda = None\nhip = '5.2.1'\n"


def package(folder: Path, text: str | None) -> list[str]:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    if text is not None:
        (folder / "torch" / "version.py").write_text(text)
    return ["/nowhere", str(folder)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NEW, {"version": "2.9.1+cu128", "cuda": "12.8", "hip": None}),
        (OLD, {"version": "1.12.0", "cuda": None, "hip": "5.2.1"}),
        ("__version__ = read()\ncuda = '12.8'\n", {"version": "unknown", "cuda": "12.8"}),
        ("def (", {"version": "unknown"}),
        (None, {"version": "unknown"}),
    ],
)
def test_the_build_is_read_and_not_imported(tmp_path: Path, text: str | None, expected: dict[str, object]) -> None:
    assert torch_build.built(package(tmp_path, text)) == expected


def test_a_torch_in_one_file(tmp_path: Path) -> None:
    (tmp_path / "torch.py").touch()
    assert torch_build.built([str(tmp_path)]) == {"version": "unknown"}


def test_no_torch(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()  # a folder of logs
    assert torch_build.built([str(tmp_path)]) is None


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_both_ways_tell_the_same_of_the_real_one() -> None:
    read, seen = torch_build.built(), torch_build.imported()
    assert read is not None
    assert {name: seen[name] for name in read} == read


def test_what_is_wrong_with_a_torch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert torch_build.imported()["error"].startswith("ModuleNotFoundError: ")


def test_the_nccl_of_a_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    dist = SimpleNamespace(is_available=lambda: True, is_nccl_available=lambda: True)
    nccl = SimpleNamespace(version=lambda: (2, 27, 5))
    torch = SimpleNamespace(
        __version__="2.9.1",
        version=SimpleNamespace(cuda="12.8"),
        distributed=dist,
        cuda=SimpleNamespace(nccl=nccl),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.distributed", dist)
    assert torch_build.imported() == {
        "version": "2.9.1", "cuda": "12.8", "hip": None, "has_nccl": True, "nccl": "2.27.5",
    }  # fmt: skip
    del nccl.version
    found = torch_build.imported()
    assert found["nccl_error"].startswith("AttributeError") and "nccl" not in found
