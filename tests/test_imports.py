"""No module needs itself, not even by an import inside of a function: data flows one way."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import pytest

import nccl_triage

ROOT = Path(nccl_triage.__file__).parent


def _name(path: Path) -> str:
    parts = [ROOT.name, *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def _needs(name: str) -> set[str]:
    """Return the modules that a module imports anywhere, but for types only."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    needs: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            needs |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                needs.add(inner if inner in MODULES else base)
    return needs & set(MODULES) - {name}


def _of(name: str, *parts: str) -> bool:
    return any(f"{name}.".startswith(f"nccl_triage.{part}.") for part in parts)


@pytest.mark.parametrize(
    ("users", "never"),
    [
        (("hosts",), ("verify", "hang", "doctor", "follow", "execution", "cli", "document", "story", "diagnosis")),
        (("doctor", "hang", "follow"), ("verify",)),
        (("verify", "doctor", "follow", "execution"), ("hang",)),
    ],
)
def test_who_may_need_whom(users: tuple[str, ...], never: tuple[str, ...]) -> None:
    looked = {name: sorted(need for need in _needs(name) if _of(need, *never)) for name in MODULES if _of(name, *users)}
    assert looked
    assert not {name: needs for name, needs in looked.items() if needs}


def test_no_module_needs_itself() -> None:
    graph = {name: _needs(name) for name in MODULES}
    assert sum(map(len, graph.values())) > len(MODULES), "the imports are not found"
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        raise AssertionError(" -> ".join(reversed(error.args[1]))) from None
