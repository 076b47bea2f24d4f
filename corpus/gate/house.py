"""Show how large the tree is and how it changed since a revision: ``python -m corpus.gate.house [--since REV]``.

Packages of code, rules and tests, each number with its change. Nothing is refused: what stands out is listed, and people
judge whether the reason is worth it. Without ``--since`` the base is the newest tag, else the first commit of
the month of HEAD.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corpus.gate.golden import ROOT
from corpus.gate.measures import RULES, TESTS, TOPS, Function, Measures, Package, measure

#: Growth that stands out, in percent, of what has at least so many lines or entries.
GROWTH = 10
GROWN_FROM = 20
#: Lines of a function, lines of a module and complexity that stand out above.
FUNCTION = 60
MODULE = 500
COMPLEXITY = 15
#: Entries of one list in the text; the JSON has all.
LISTED = 20
#: Column -> its heading and width, with the change.
COLUMNS = {
    "modules": ("modules", 8),
    "lines": ("lines", 13),
    "public": ("public", 11),
    "longest_module": ("module", 9),
    "longest_function": ("function", 8),
    "median_complexity": ("median", 8),
    "highest_complexity": ("worst", 7),
    "imports": ("imports", 7),
}
_NAME = 20


@dataclass(frozen=True, slots=True)
class Base:
    """The revision that the tree is compared with: what it was called, its commit and date."""

    name: str
    commit: str
    date: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What stands out: what of which kind, where, its number and what it was; None if it was not there."""

    kind: str
    where: str
    now: float
    before: float | None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def base_of(root: Path, revision: str | None) -> Base:
    """Return the revision to compare with; raises SystemExit if there is none of this name."""
    if revision is None:
        tags = _git(root, "tag", "--merged", "HEAD", "--sort=-creatordate").splitlines()
        revision = tags[0] if tags else _first_of_month(root)
    try:
        told = _git(root, "log", "-1", "--format=%H %cs", f"{revision}^{{commit}}", "--")
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"error: {revision} is no revision of this repository") from error
    commit, _, date = told.partition(" ")
    return Base(revision, commit, date)


def _first_of_month(root: Path) -> str:
    month = _git(root, "log", "-1", "--format=%cs", "HEAD")[:7]
    dated = (line.partition(" ") for line in _git(root, "log", "--format=%H %cs").splitlines())
    return [commit for commit, _, date in dated if date.startswith(month)][-1]


def measure_at(root: Path, commit: str) -> Measures:
    """Return the measures of a commit, which is unpacked outside of the repository for that long."""
    listed = _git(root, "ls-tree", "--name-only", commit).splitlines()
    tops = sorted({RULES, TESTS, *(folder.partition("/")[0] for folder, _ in TOPS.values())} & set(listed))
    command = ["git", "-C", str(root), "archive", "--format=tar", commit, "--", *tops]
    packed = subprocess.run(command, check=True, capture_output=True).stdout if tops else b""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder).resolve()
        if packed:
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.name.endswith((".py", ".yaml", ".md")) else None
                    if content is not None:
                        path = tree / member.name
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(content.read())
        return measure(tree)


def with_totals(packages: Mapping[str, Package]) -> dict[str, Package]:
    """Return the packages in order, after each top package one of everything below it."""
    found: dict[str, Package] = {}
    for top in TOPS:
        own = {name: package for name, package in sorted(packages.items()) if name.partition(".")[0] == top}
        whole = Package()
        for package in own.values():
            whole.modules |= package.modules
            whole.public += package.public
            whole.functions += package.functions
            whole.imports |= {name for name in package.imports if name.partition(".")[0] != top}
        found |= {name.removeprefix("nccl_triage."): package for name, package in own.items()}
        found[f"all of {top}"] = whole
    return found


def findings(now: Measures, before: Measures) -> list[Finding]:
    """Return what stands out, kind by kind, the largest first."""
    sizes, old_sizes = _sizes(now), _sizes(before)
    found = [
        Finding(f"grew by more than {GROWTH} %", name, size, old)
        for name, size in sizes.items()
        if (old := old_sizes.get(name, 0)) >= GROWN_FROM and size > old * (1 + GROWTH / 100)
    ]
    modules, old_modules = _modules(now), _modules(before)
    long = f"modules above {MODULE} lines"
    found += [Finding(long, place, size, old_modules.get(place)) for place, size in modules.items() if size > MODULE]
    counts: tuple[tuple[str, int, Callable[[Function], int]], ...] = (
        (f"functions above {FUNCTION} lines", FUNCTION, lambda one: one.lines),
        (f"functions of a complexity above {COMPLEXITY}", COMPLEXITY, lambda one: one.complexity),
    )
    for kind, most, count in counts:
        earlier = {(one.place, one.name): count(one) for one in _functions(before)}
        found += [
            Finding(kind, f"{one.place}:{one.line} {one.name}", count(one), earlier.get((one.place, one.name)))
            for one in _functions(now)
            if count(one) > most
        ]
    kinds = list(dict.fromkeys(one.kind for one in found))
    return sorted(found, key=lambda one: (kinds.index(one.kind), -one.now, one.where))


def _sizes(measures: Measures) -> dict[str, float]:
    """Return what may grow: lines of packages, everything that is counted of rules and tests."""
    lines = {f"lines of {name}": sum(one.modules.values()) for name, one in with_totals(measures.packages).items()}
    return {**lines, **measures.rules, **measures.tests}


def _modules(measures: Measures) -> dict[str, int]:
    return {place: lines for package in measures.packages.values() for place, lines in package.modules.items()}


def _functions(measures: Measures) -> Iterator[Function]:
    return (one for package in measures.packages.values() for one in package.functions)


def _number(value: float) -> str:
    return f"{value:g}" if value != int(value) else str(int(value))


def _cell(now: float, before: float, width: int) -> str:
    change = f" {_sign(now - before)}" if now != before else ""
    return f"{_number(now)}{change}".rjust(width)


def _sign(change: float) -> str:
    return ("+" if change > 0 else "-") + _number(round(abs(change), 1))


def text(now: Measures, before: Measures, base: Base) -> str:
    """Return the tables, and what stands out."""
    called = "" if base.commit.startswith(base.name) else f"{base.name[:40]}, "
    lines = [f"The tree, and what changed since {called}{base.commit[:10]} of {base.date}", ""]
    lines.append("package".ljust(_NAME) + " ".join(title.rjust(width) for title, width in COLUMNS.values()))
    packages, old = with_totals(now.packages), with_totals(before.packages)
    for name in dict.fromkeys((*packages, *old)):
        has, had = packages.get(name, Package()).numbers(), old.get(name, Package()).numbers()
        cells = " ".join(_cell(has[key], had[key], width) for key, (_, width) in COLUMNS.items())
        lines.append(f"{name[: _NAME - 1]:<{_NAME}}{cells}".rstrip())
    lines += ["", "module, function: lines of the longest. median, worst: cyclomatic complexity (ruff C901)."]
    lines.append("imports: how many other packages of the project it imports from.")
    for title, counted, former in (("rules", now.rules, before.rules), ("tests", now.tests, before.tests)):
        lines += ["", title]
        for name in {**former, **counted}:
            lines.append(f"  {name:<30}{_cell(counted.get(name, 0), former.get(name, 0), 14)}")
    return "\n".join([*lines, *_told(findings(now, before))]) + "\n"


def _told(found: Iterable[Finding]) -> Iterator[str]:
    by_kind: dict[str, list[Finding]] = {}
    for one in found:
        by_kind.setdefault(one.kind, []).append(one)
    for kind, listed in by_kind.items():
        yield from ("", f"! {kind}")
        for one in listed[:LISTED]:
            was = "new" if one.before is None else f"was {_number(one.before)}" if one.before != one.now else ""
            where = one.where if len(one.where) <= 72 else f"..{one.where[-70:]}"
            yield f"  {_number(one.now):>6} {where}{f' ({was})' if was else ''}"
        if len(listed) > LISTED:
            yield f"         and {len(listed) - LISTED} more: --format json has all"


def document(now: Measures, before: Measures, base: Base) -> dict[str, Any]:
    """Return the same for programs; each measure as ``[now, before]``."""
    packages, old = with_totals(now.packages), with_totals(before.packages)
    both: dict[str, dict[str, list[float]]] = {}
    for name in dict.fromkeys((*packages, *old)):
        has, had = packages.get(name, Package()).numbers(), old.get(name, Package()).numbers()
        both[name] = {key: [has[key], had[key]] for key in has}
    parts = (("rules", now.rules, before.rules), ("tests", now.tests, before.tests))
    counted = {
        part: {name: [has.get(name, 0), had.get(name, 0)] for name in {**had, **has}} for part, has, had in parts
    }
    stands_out = [asdict(one) for one in findings(now, before)]
    return {"since": asdict(base), "packages": both, **counted, "stands_out": stands_out}


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Print the tables of a tree."""
    parser = argparse.ArgumentParser(prog="python -m corpus.gate.house", description=__doc__)
    parser.add_argument("--since", help="the revision to compare with")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    base = base_of(root, options.since or None)
    now, before = measure(root), measure_at(root, base.commit)
    if options.format == "json":
        print(json.dumps(document(now, before, base), indent=2))
    else:
        sys.stdout.write(text(now, before, base))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
