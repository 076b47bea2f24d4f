"""Measure every kind of line that programs print, as one log and as folders of the logs of ranks (``make bench``).

Logs are drawn anew for each ``--seed``. What counts is the processor time of a whole diagnosis with one process, less that
of a log of one line: it is steadier than the time that passes. ``cat | grep -c NCCL``, ripgrep with the literals of our
signatures, lnav with a filter, angle-grinder and Drain3 read the same lines in the same run, as far as they can be had.
``--write`` puts the tables into docs/performance.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "analyzer")]

from corpus.generate.line_kinds import KINDS, process  # noqa: E402
from tests import bench  # noqa: E402
from tests.bench import Cost, cost  # noqa: E402

PAGE = ROOT / "docs" / "performance.md"
#: Files of a folder that are drawn; the others are these again, under other names.
_DRAWN = 64
#: Bytes of a folder from which on it is measured once.
_LARGE = 100_000_000
#: Megabytes that slow tools are given.
_SLOW = 4
#: What the rank that fails in a folder prints last.
FAILURE = b"""Traceback (most recent call last):
  File "/job/train.py", line 41, in <module>
    main()
  File "/job/train.py", line 33, in main
    loss = model(batch).loss
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.31 GiB. GPU 3 has a total capacity of 79.11 GiB of which 1.07 GiB is free.
"""
#: What people look for first.
_SOUNDS = "(?i)error|exception|timeout|NCCL WARN|Xid"


def triage(*words: str | Path, jobs: int = 1, runs: int = 1) -> Cost:
    """Run a whole diagnosis several times; returns the least of each cost, to which other programs only add."""
    found = [cost(sys.executable, "-m", "nccl_triage", "--jobs", str(jobs), *words) for _ in range(runs)]
    return Cost(*map(min, zip(*map(astuple, found), strict=True)))


def one_log(path: Path, kind: str, seed: int, size: int) -> int:
    """Write a log in which eight ranks speak in turn; returns its size in bytes."""
    streams = [process(kind, seed, rank, 8, size // 8) for rank in range(8)]
    with path.open("wb") as out:
        while streams:
            for stream in list(streams):
                piece = next(stream, None)
                if piece is None:
                    streams.remove(stream)
                else:
                    out.write(piece)
        return out.tell()


def folder_of(path: Path, kind: str, seed: int, files: int, size: int, packed: bool = False) -> int:
    """Write the logs of ranks into a folder, of which one fails; returns their size in bytes, unpacked."""
    path.mkdir()
    drawn: list[bytes] = []
    total = 0
    for rank in range(files):
        if rank < _DRAWN:
            drawn.append(b"".join(process(kind, seed, rank, files, size)))
        data = drawn[rank % _DRAWN] + (FAILURE if rank == failing(files) else b"")
        total += len(data)
        name = f"rank_{rank}.log"
        if packed:
            (path / f"{name}.gz").write_bytes(gzip.compress(data, 1))
        else:
            (path / name).write_bytes(data)
    return total


def failing(files: int) -> int:
    """Return the rank that fails in a folder of some files."""
    return files * 2 // 3


def culprit(path: Path) -> str:
    """Return the rank that the report of a diagnosis names, or its verdict where it names none."""
    report = json.loads(path.read_bytes())
    named = [one.get("rank") for best in report["diagnoses"][:1] for one in best["culprits"]]
    return f"rank {named[0]}" if len(named) == 1 else str(report["verdict"])


def together(folder: Path, path: Path) -> None:
    """Write the files of a folder into one, one after the other."""
    with path.open("wb") as out:
        for file in sorted(folder.iterdir()):
            out.write(file.read_bytes())


class Place:
    """The folder that all is written to, and the costs that do not depend on a kind."""

    def __init__(self, path: Path, runs: int) -> None:
        self.path, self.runs = path, runs
        short = path / "short.log"
        short.write_text("step 1 loss 2.0\n")
        triage(short)
        self.start = triage(short, runs=5).cpu

    def speed(self, size: int, found: Cost) -> float:
        """Return bytes a second of processor time, without the start."""
        return size / max(0.02, found.cpu - self.start)


def one_row(place: Place, kind: str, seed: int, sizes: Sequence[int]) -> dict[str, str]:
    """Measure a kind of line in long logs, the first one beside other tools; returns the cells by their columns."""
    path = place.path / "one.log"
    row = {"kind of line": kind}
    for megabytes in sizes:
        size = one_log(path, kind, seed, megabytes * 1_000_000)
        found = triage(path, runs=place.runs)
        speed = place.speed(size, found)
        grep = cost("sh", "-c", f"cat {path} | grep -c NCCL")
        row[f"{megabytes} MB"] = f"{speed / 1e6:.0f} MB/s"
        row[f"of `cat` and `grep -c NCCL` ({megabytes} MB)"] = bench.percent(speed * grep.cpu / size)
        if megabytes == sizes[0]:
            row["peak memory"] = f"{found.peak:.0f} MB"
            row |= _others(place, path, speed)
    path.unlink()
    return row


def _others(place: Place, path: Path, speed: float) -> dict[str, str]:
    """Return our speed as a share of that of each tool that can be had, by processor time."""
    literals, _ = bench.expressions(place.path)
    small = place.path / "small.log"
    with path.open("rb") as source:
        small.write_bytes(source.read(_SLOW * 1_000_000))
    grind = "* | parse regex '(?P<sound>(?i)error|exception|timeout)' | count by sound"
    tools: list[tuple[str, str | None, tuple[str | Path, ...], Path]] = [
        (
            "of `rg -F -f` literals",
            bench.tool("rg", "ripgrep"),
            ("-j1", "-c", "--no-config", "-F", "-f", literals, path),
            path,
        ),
        (
            "of `lnav -n` and a filter",
            bench.tool("lnav", "lnav"),
            ("-n", "-N", "-c", f":filter-in {_SOUNDS}", path),
            path,
        ),
        ("of angle-grinder", shutil.which("agrind"), ("--file", path, grind), path),
        ("of Drain3", sys.executable if find_spec("drain3") else None, ("-c", bench.DRAIN, small), small),
    ]
    return {
        name: bench.percent(speed * cost(program, *words).cpu / read.stat().st_size)
        for name, program, words, read in tools
        if program is not None
    }


class FolderCost(NamedTuple):
    """What a folder took: milliseconds of processor a file, and that as a multiple of one file of the same lines.

    ``one`` and ``two`` are the costs with one process and with two; ``told`` whom the diagnosis names.
    """

    kind: str
    each: float
    times: float | None
    one: Cost
    two: Cost
    told: str


def folder_cost(place: Place, kind: str, seed: int, files: int, size: int, packed: bool) -> FolderCost:
    """Measure a kind of line in a folder, beside the same lines in one file."""
    folder, path, report = place.path / "folder", place.path / "same.log", place.path / "report.json"
    runs = place.runs if folder_of(folder, kind, seed, files, size, packed) < _LARGE else 1
    found = triage(folder, runs=runs)
    own, times = found.cpu - place.start, None
    if not packed:
        together(folder, path)
        times = own / max(0.02, triage(path, runs=runs).cpu - place.start)
        path.unlink()
    two = triage(folder, "--format", "json", "--force", "--output", report, jobs=2, runs=runs)
    told = culprit(report)
    shutil.rmtree(folder)
    named = "named" if told == f"rank {failing(files)}" else told
    return FolderCost(kind, 1000 * own / files, times, found, two, named)


def by_kind(rows: Sequence[dict[str, str]]) -> str:
    """Return a table of rows with the columns that any of them has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return bench.markdown([columns, *([row.get(name, "not measured") for name in columns] for row in rows)])


def of_folders(costs: Mapping[str, Sequence[FolderCost]]) -> str:
    """Return the table of the costs of files, by the folders that they were in."""
    rows: dict[str, dict[str, str]] = {}
    for name, found in costs.items():
        for one in found:
            times = "" if one.times is None else f", {one.times:.1f} x"
            rows.setdefault(one.kind, {"kind of line": one.kind})[name] = f"{one.each:.1f} ms{times}"
    return by_kind([*rows.values()])


def of_processes(name: str, costs: Sequence[FolderCost]) -> str:
    """Return the table of one folder: the time that passes with one process and with two, memory, and who is named."""
    columns = [name, "one process", "two", "gain", "peak memory", "the rank that fails"]
    rows = [
        [
            one.kind,
            f"{one.one.wall:.1f} s",
            f"{one.two.wall:.1f} s",
            f"{one.one.wall / one.two.wall:.1f}",
            f"{max(one.one.peak, one.two.peak):.0f} MB",
            one.told,
        ]
        for one in costs
    ]
    return bench.markdown([columns, *rows])


def folders(word: str) -> tuple[int, int, bool]:
    """Return number of files, bytes of each, and whether they are packed, of a word such as 512x100 or 512x100gz."""
    files, _, size = word.removesuffix("gz").partition("x")
    return int(files), int(size) * 1000, word.endswith("gz")


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print; the first words of kinds choose among them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", default=[], help="those that begin so")
    parser.add_argument("--megabytes", type=int, nargs="*", default=[100, 1000], help="of one log")
    parser.add_argument(
        "--folders",
        type=folders,
        nargs="*",
        default=[folders(word) for word in ("64x100", "512x100", "512x100gz", "512x1000", "4096x100")],
        help="files and kilobytes of each, such as 512x100 or 512x100gz",
    )
    parser.add_argument("--runs", type=int, default=3, help="of which the cheapest counts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="put the tables into the documentation")
    asked = parser.parse_args(given)
    kinds = [kind for kind in KINDS if not asked.kinds or kind.startswith(tuple(asked.kinds))]
    bench.prepare()
    with tempfile.TemporaryDirectory(prefix="nccl-triage-bench-") as name:
        place = Place(Path(name), asked.runs)
        ones = [one_row(place, kind, asked.seed, asked.megabytes) for kind in kinds if asked.megabytes]
        sys.stdout.write(long := by_kind(ones) if ones else "")
        costs: dict[str, list[FolderCost]] = {}
        for files, size, packed in asked.folders:
            name = f"{files} x {size // 1000} KB{' gz' if packed else ''}"
            costs[name] = [folder_cost(place, kind, asked.seed, files, size, packed) for kind in kinds]
            sys.stdout.write(of_processes(name, costs[name]))
            sys.stdout.flush()
        sys.stdout.write(many := of_folders(costs) if costs else "")
    if asked.write:
        tables = {"kinds": long, "folders": many, "processes": of_processes(name, costs[name]) if costs else ""}
        for name, table in tables.items():
            if table:
                bench.put(PAGE, name, table)


if __name__ == "__main__":
    main()
