"""Measure a tree of the project: packages and their functions, rules, tests. Files are read, and nothing is imported.

Any revision is measured the same way, so what cannot be counted without its own code (what a row weighs, whether a fact
is used) is not counted. Complexity is that of ruff's rule C901, which `make lint` bounds.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import yaml

#: Top package -> its folder, and how many parts the name of a package has; what lies deeper counts to that package.
TOPS = {"nccl_triage": ("analyzer/nccl_triage", 3), "corpus": ("corpus", 2)}
TESTS = "tests"
RULES = "rules"
_COMPLEXITY = re.compile(r"\((\d+) > 0\)")
#: Rows that a message without words of its own joins, by the weight that it names.
_GATHERED = {"moderate": "message-moderate"}


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method: its file in the tree, its line, name, lines and cyclomatic complexity."""

    place: str
    line: int
    name: str
    lines: int
    complexity: int


@dataclass(slots=True)
class Package:
    """What the modules of a package hold."""

    #: File in the tree -> its lines.
    modules: dict[str, int] = field(default_factory=dict)
    public: int = 0
    functions: list[Function] = field(default_factory=list)
    #: The other packages of the project that it imports.
    imports: set[str] = field(default_factory=set)
    #: Texts in the code that may be ids of signatures: one word with a dot.
    words: list[str] = field(default_factory=list)

    def numbers(self) -> dict[str, float]:
        """Return what the table shows of it."""
        complexities = [one.complexity for one in self.functions]
        return {
            "modules": len(self.modules),
            "lines": sum(self.modules.values()),
            "public": self.public,
            "longest_module": max(self.modules.values(), default=0),
            "longest_function": max((one.lines for one in self.functions), default=0),
            "median_complexity": median(complexities) if complexities else 0,
            "highest_complexity": max(complexities, default=0),
            "imports": len(self.imports),
        }


@dataclass(frozen=True, slots=True)
class Measures:
    """What a tree holds."""

    packages: Mapping[str, Package]
    rules: Mapping[str, float]
    tests: Mapping[str, float]


def measure(tree: Path) -> Measures:
    """Return the measures of a tree; what it lacks counts as empty."""
    packages = _packages(tree)
    return Measures(packages, _rules(tree / RULES, packages), _tests(tree / TESTS))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _parse(text: str) -> ast.Module:
    """Return the syntax tree of a module; an empty one if a commit left it broken."""
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module([], [])


def _packages(tree: Path) -> dict[str, Package]:
    found: dict[str, Package] = defaultdict(Package)
    paths: dict[str, list[Path]] = defaultdict(list)
    for top, (folder, depth) in TOPS.items():
        for path in sorted((tree / folder).rglob("*.py")):
            paths[".".join((top, *path.relative_to(tree / folder).parent.parts)[:depth])].append(path)
    complexity = _complexities(tree, [tree / folder for folder, _ in TOPS.values() if (tree / folder).is_dir()])
    for name, modules in paths.items():
        for path in modules:
            text, place = _text(path), path.relative_to(tree).as_posix()
            module = _parse(text)
            package = found[name]
            package.modules[place] = len(text.splitlines())
            package.public += len(set(_public(module)))
            package.functions += _functions(module, place, complexity)
            package.imports |= set(_imports(module, paths)) - {name}
            package.words += _words(module)
    return dict(found)


def _complexities(tree: Path, folders: Sequence[Path]) -> dict[tuple[str, int], int]:
    """Return file and line -> cyclomatic complexity of the function that is defined there."""
    options = (
        "--isolated",
        "--no-cache",
        "--ignore-noqa",
        "--exit-zero",
        "--select",
        "C901",
        "--output-format",
        "json",
    )
    command = [sys.executable, "-m", "ruff", "check", *options, "--config", "lint.mccabe.max-complexity=0"]
    shown = subprocess.run([*command, *map(str, folders)], check=True, capture_output=True, text=True).stdout
    found = {}
    for one in json.loads(shown):
        matched = _COMPLEXITY.search(one["message"])
        if one["code"] == "C901" and matched:
            place = Path(one["filename"]).relative_to(tree.resolve()).as_posix()
            found[place, one["location"]["row"]] = int(matched[1])
    return found


def _functions(module: ast.Module, place: str, complexity: Mapping[tuple[str, int], int]) -> Iterator[Function]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(place, node.lineno, node.name, lines, complexity.get((place, node.lineno), 1))


def _public(module: ast.Module) -> Iterator[str]:
    """Yield the names without an underscore that a module defines."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        else:
            names = []
        yield from (name for name in names if not name.startswith("_"))


def _imports(module: ast.Module, packages: Mapping[str, object]) -> Iterator[str]:
    """Yield the packages of the project that a module imports from."""
    for node in ast.walk(module):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] in TOPS:
                ends = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
                yield next((name for name in ends if name in packages), parts[0])


def _words(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            yield from [node.value] if " " not in node.value else []


def _load(paths: Iterable[Path], key: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the mappings of YAML files: their documents, or the entries of their list ``key``."""
    for path in sorted(paths):
        document = yaml.load(_text(path), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if isinstance(document, dict):
            yield from (document.get(key) or []) if key else [document]


def _rows(rules: Path) -> Iterator[tuple[str, str, str | None]]:
    """Yield cause, id and status of each row of evidence; a row that several messages share is yielded repeatedly."""
    for cause in _load((rules / "causes").rglob("*.yaml")):
        for row in (*(cause.get("for") or []), *(cause.get("against") or [])):
            yield cause["id"], row["id"], row.get("status")
    for signature in _load((rules / "signatures").rglob("*.yaml"), "signatures"):
        for entry in signature.get("supports") or []:
            own = signature["id"].partition(".")[2].replace("_", "-")
            gathered = _GATHERED.get(entry.get("weight"), "message")
            yield entry["cause"], entry.get("id") or (own if "says" in entry else gathered), entry.get("status")
    for producer in _load((rules / "producers").rglob("*.yaml"), "producers"):
        for row in producer["rows"]:
            for cause_id in row.get("causes") or [row["cause"]]:
                yield cause_id, row["id"], row.get("status")


def _rules(rules: Path, packages: Mapping[str, Package]) -> dict[str, float]:
    rows: dict[tuple[str, str], bool] = {}
    for cause, row, status in _rows(rules):
        rows[cause, row] = rows.get((cause, row), False) or status == "experimental"
    experimental = sum(rows.values())
    causes = list((rules / "causes").rglob("*.yaml"))
    signatures = {one["id"] for one in _load((rules / "signatures").rglob("*.yaml"), "signatures")}
    words = [word for name, package in packages.items() if name.startswith("nccl_triage") for word in package.words]
    found: dict[str, float] = {
        "causes": len(causes),
        "rows of evidence": len(rows),
        "experimental rows": experimental,
        "experimental rows, %": round(100 * experimental / len(rows), 1) if rows else 0,
        "signatures": len(signatures),
        "signatures in code": sum(word in signatures for word in words),
        "facts": _listed(rules / "README.md", "facts"),
        "culprit methods": _listed(rules / "README.md", "culprits"),
    }
    for path in sorted(causes):
        name = f"lines of {path.parent.name} causes"
        found[name] = found.get(name, 0) + len(_text(path).splitlines())
    return found


def _listed(page: Path, name: str) -> int:
    """Return how many entries a list has that `make docs` writes."""
    text = _text(page) if page.is_file() else ""
    written = text.partition(f"<!-- {name}: begin")[2].partition(f"<!-- {name}: end")[0]
    return sum(line.startswith("- ") for line in written.splitlines())


def _tests(folder: Path) -> dict[str, float]:
    paths = sorted(folder.rglob("*.py"))
    functions = [
        node.name
        for path in paths
        for node in ast.walk(_parse(_text(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    lines = sum(len(_text(path).splitlines()) for path in paths)
    return {"test modules": len(paths), "test functions": len(functions), "lines of tests": lines}
