"""Compare the speed of a whole diagnosis with public tools, in one run (``make bench``).

Machines are noisy: the ratios count, not the seconds. Logs come from the corpus' generator, seeded, and are thrown away.
``--write`` puts the table into README.md and README.zh.md.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "analyzer")]

from corpus.generate.bench import PROFILES, stream  # noqa: E402

#: What people write instead: one expression, line by line.
LOOP = "import re,sys\nfind = re.compile(r'error|exception|timeout|NCCL WARN|Xid', re.I).search\n"
LOOP += "print(sum(1 for line in open(sys.argv[1], errors='replace') if find(line)))"
MARKS = re.compile(r"(<!-- speed: begin.*?-->\n).*?(<!-- speed: end -->)", re.S)


@dataclass
class Row:
    """The medians of one log: seconds of each tool, and the peak memory of ours in MB."""

    profile: str
    megabytes: int
    seconds: dict[str, float] = field(default_factory=dict)
    peak: float = 0.0

    def ratio(self, tool: str, to: str) -> float:
        """Return how fast a tool is as a share of the speed of another."""
        return self.seconds[to] / self.seconds[tool]


def timed(action: Callable[[], object], runs: int) -> float:
    """Return the median of the wall seconds of several runs."""
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def run(*words: str | Path, stdin: Path | None = None) -> float:
    """Run a command to its end and return its peak memory in MB."""
    # A file, not /dev/null: for that one grep stops at the first line that it finds.
    with Path(stdin or os.devnull).open("rb") as source, tempfile.TemporaryFile() as out:
        process = subprocess.Popen([str(word) for word in words], stdin=source, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{words[0]} ended with {process.returncode}")
    return usage.ru_maxrss / 1024


def read_whole(path: Path) -> None:
    """Read a file and do nothing with it."""
    buffer = bytearray(1 << 18)
    with path.open("rb", buffering=0) as source:
        while source.readinto(buffer):
            pass


def measure(profile: str, megabytes: int, runs: int, folder: Path) -> Row:
    """Measure one log."""
    path, packed = folder / f"{profile}.log", folder / f"{profile}.log.gz"
    with path.open("wb") as out:
        out.writelines(stream(profile, megabytes * 1_000_000, 7))
    with path.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    row = Row(profile, megabytes)
    triage = (sys.executable, "-m", "nccl_triage")
    row.peak = run(*triage, path)  # the first run fills the caches
    for name, action in {
        "read": lambda: read_whole(path),
        "grep": lambda: run("grep", "-c", "NCCL", path),
        "loop": lambda: run(sys.executable, "-c", LOOP, path),
        "triage": lambda: run(*triage, path),
        "pipe": lambda: run(*triage, stdin=path),
        "gzip": lambda: run("gzip", "-dc", packed),
        "packed": lambda: run(*triage, packed),
    }.items():
        row.seconds[name] = timed(action, runs)
    path.unlink()
    packed.unlink()
    return row


def table(rows: list[Row]) -> str:
    """Return the results as Markdown: our speed as a share of that of each tool."""
    head = [
        "log",
        "`grep -c NCCL`",
        "Python loop, one regex",
        "through a pipe: `grep`",
        "gz: `gzip -dc`",
        "peak memory",
    ]
    lines = [head, ["---"] * len(head)]
    lines += [
        [
            f"{row.profile}, {row.megabytes} MB",
            share(row.ratio("triage", "grep")),
            share(row.ratio("triage", "loop")),
            share(row.ratio("pipe", "grep")),
            share(row.ratio("packed", "gzip")),
            f"{row.peak:.0f} MB",
        ]
        for row in rows
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def share(ratio: float) -> str:
    """Return a ratio in percent, two digits of it."""
    percent = 100 * ratio
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--profiles", nargs="*", default=["verbose", "storm", "quiet"], choices=list(PROFILES))
    parser.add_argument("--write", action="store_true", help="put the table into the README files")
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    folder = Path(tempfile.mkdtemp(prefix="nccl-triage-bench-"))
    try:
        rows = [measure(name, arguments.megabytes, arguments.runs, folder) for name in arguments.profiles]
    finally:
        shutil.rmtree(folder)
    made = table(rows)
    sys.stdout.write(made)
    for name in ("README.md", "README.zh.md") if arguments.write else ():
        path = ROOT / name
        path.write_text(MARKS.sub(lambda found: found[1] + made + found[2], path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
