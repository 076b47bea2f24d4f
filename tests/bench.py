"""Compare the speed of a whole diagnosis with public tools, in one run (``make bench``).

Machines are noisy: the ratios count, not the seconds. Logs come from the corpus' generator, seeded, and are thrown away.
``--write`` puts the tables into docs/performance.md.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import gzip
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "analyzer")]

from corpus.generate.bench import PROFILES, stream  # noqa: E402

#: What people write instead: one expression, line by line.
LOOP = "import re,sys\nfind = re.compile(r'error|exception|timeout|NCCL WARN|Xid', re.I).search\n"
LOOP += "print(sum(1 for line in open(sys.argv[1], errors='replace') if find(line)))"
DRAIN = "import logging,sys\nlogging.disable()\nfrom drain3 import TemplateMiner\nminer = TemplateMiner()\n"
DRAIN += "for line in open(sys.argv[1], errors='replace'): miner.add_log_message(line.rstrip())\n"
#: The floor of what this design can reach: Hyperscan looks for all literals, and its matches are only counted.
FLOOR = """import sys,hyperscan
from nccl_triage.scan.prefilter import compiled
texts = open(sys.argv[1]).read().split("\\n")
found = compiled(hyperscan, [(text, False) for text in texts], once=[True] * len(texts))
count, buffer = 0, bytearray(1 << 18)
def matched(*told):
    global count
    count += 1
with open(sys.argv[2], "rb", buffering=0) as log:
    while size := log.readinto(buffer):
        found.scan(bytes(buffer[:size]), match_event_handler=matched)
print(count)
"""
#: Megabytes of a log that slow tools are given; their speed does not depend on its length.
SLOW = 5
#: What ripgrep's expressions lack.
LOOK_AROUND = re.compile(r"\(\?(?:[=!]|<[=!]|P=)|\\[1-9]")
MARKS = "(<!-- {name}: begin.*?-->\n).*?(<!-- {name}: end -->)"
TRIAGE = (sys.executable, "-m", "nccl_triage")


@dataclass
class Row:
    """The medians of one log: MB a second of each tool, and the peak memory of one of our processes in MB."""

    name: str
    speeds: dict[str, float] = field(default_factory=dict)
    peak: float = 0.0

    def share(self, tool: str, of: str) -> str:
        """Return how fast a tool is as a share of the speed of another, in percent."""
        if tool not in self.speeds or of not in self.speeds:
            return "not measured"
        return percent(self.speeds[tool] / self.speeds[of])


def percent(ratio: float) -> str:
    """Return a ratio in percent, two digits of it, or how many times it is where it is large."""
    value = 100 * ratio
    if ratio >= 10:
        return f"{ratio:.0f} times"
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"


def prepare() -> None:
    """Let every process that is measured start like one of an installed package."""
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    # What pip installs is compiled; from a checkout, where nothing may be kept, each start would compile it anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(ROOT / "analyzer", quiet=2)
    os.environ["NCCL_TRIAGE_HISTORY"] = "off"


def timed(action: Callable[[], object], runs: int) -> float:
    """Return the median of the wall seconds of several runs."""
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds of processors, seconds that passed, and the peak memory of its largest process in MB."""

    cpu: float
    wall: float
    peak: float


#: Runs a command and tells what it took. A process of its own: the peak of a process begins with that of whoever forked it.
_WAIT = """import os, sys
pid = os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
sys.stderr.write(f"\\n{os.waitstatus_to_exitcode(status)} {usage.ru_utime + usage.ru_stime} {usage.ru_maxrss}")
"""


def cost(*words: str | Path, stdin: Path | None = None) -> Cost:
    """Run a command to its end."""
    command = [sys.executable, "-I", "-S", "-c", _WAIT, *map(str, words)]
    started = time.perf_counter()
    # A file, not /dev/null: for that one grep stops at the first line that it finds.
    with (
        Path(stdin or os.devnull).open("rb") as source,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as told,
    ):
        subprocess.run(command, stdin=source, stdout=out, stderr=told, check=True)
        wall = time.perf_counter() - started
        told.seek(0)
        code, cpu, peak = told.read().decode("utf-8", "replace").splitlines()[-1].split()
    if code not in ("0", "1"):
        raise SystemExit(f"{' '.join(map(str, words))} ended with {code}")
    return Cost(float(cpu), wall, int(peak) / 1024)


def run(*words: str | Path, stdin: Path | None = None) -> float:
    """Run a command to its end and return the peak memory in MB of it, or of the largest process that it started."""
    return cost(*words, stdin=stdin).peak


def read_whole(path: Path) -> None:
    """Read a file and do nothing with it."""
    buffer = bytearray(1 << 18)
    with path.open("rb", buffering=0) as source:
        while source.readinto(buffer):
            pass


def write(path: Path, chunks: Iterable[bytes]) -> Path:
    """Write a log."""
    with path.open("wb") as out:
        out.writelines(chunks)
    return path


def pack(path: Path) -> list[Path]:
    """Return the log as gz and, where there is a tool for it, zst."""
    packed = path.with_name(f"{path.name}.gz")
    with path.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    if shutil.which("zstd") is None:
        return [packed]
    subprocess.run(["zstd", "-q", "-f", "-1", str(path)], check=True)
    return [packed, path.with_name(f"{path.name}.zst")]


def usable(source: str) -> bool:
    """Tell whether ripgrep can read an expression without its tables of Unicode."""
    return source.isascii() and LOOK_AROUND.search(source) is None


def expressions(folder: Path) -> tuple[Path, Path]:
    """Return files with the literals of the signatures, and with those expressions that ripgrep can read."""
    from nccl_triage.engine import load

    signatures = load.load().signatures.values()
    texts = sorted({text for one in signatures if one.anchors is not None for text in one.anchors.texts})
    kept = [one.pattern.source for one in signatures if usable(one.pattern.source)]
    # Joined to one expression: no group may have a name twice, and fewer characters may be escaped than in Python.
    sources = [re.sub(r"\\([^\w.^$*+?()\[\]{}|\\-])", r"\1", re.sub(r"\(\?P<\w+>", "(?:", one)) for one in kept]
    literals, patterns = folder / "literals", folder / "patterns"
    literals.write_text("\n".join(texts))
    patterns.write_text("\n".join(sources))
    return literals, patterns


def tool(name: str, package: str) -> str | None:
    """Return where a tool is, from Debian's packages where it is absent; None where it cannot be had."""
    if shutil.which(name) is None and shutil.which("apt-get") is not None and os.geteuid() == 0:
        subprocess.run(["apt-get", "install", "-y", "-q", package], stdout=subprocess.DEVNULL, check=False)
    return shutil.which(name)


def measure(profile: str, megabytes: int, runs: int, folder: Path, others: bool, tools: Sequence[str] = ()) -> Row:
    """Measure one log; ``others``: with the slow tools, too; ``tools``: with nothing but these."""
    path = write(folder / f"{profile}.log", stream(profile, megabytes * 1_000_000, 7))
    packed = [] if tools and not {".gz", ".zst", "gzip", "zstd"} & set(tools) else pack(path)
    literals, _ = expressions(folder)
    row = Row(f"{profile}, {megabytes} MB")
    row.peak = run(*TRIAGE, path)  # the first run fills the caches
    actions: dict[str, Callable[[], object]] = {
        "read": lambda: read_whole(path),
        "grep": lambda: run("grep", "-c", "NCCL", path),
        "triage": lambda: run(*TRIAGE, "--jobs", "1", path),
        "two": lambda: run(*TRIAGE, "--jobs", "2", path),
        "pipe": lambda: run(*TRIAGE, stdin=path),
    }
    if find_spec("hyperscan") is not None:
        run(*(floor := (sys.executable, "-c", FLOOR, literals, path)))  # compiles them
        actions["floor"] = lambda: run(*floor)
    for one in packed:
        decoder = "gzip" if one.suffix == ".gz" else "zstd"
        actions[decoder] = lambda one=one, decoder=decoder: run(decoder, "-qdc", one)
        actions[one.suffix] = lambda one=one: run(*TRIAGE, one)
    for name, action in actions.items():
        if not tools or name in tools:
            row.speeds[name] = megabytes / timed(action, runs)
    if others:
        row.speeds.update(slow_tools(profile, runs, folder, path, megabytes))
    for one in (path, *packed):
        one.unlink()
    return row


def slow_tools(profile: str, runs: int, folder: Path, path: Path, megabytes: int) -> dict[str, float]:
    """Return the speeds of what people might use instead, as far as it can be had here."""
    small = write(folder / f"{profile}-small.log", stream(profile, SLOW * 1_000_000, 7))
    literals, patterns = expressions(folder)
    speeds = {"loop": SLOW / timed(lambda: run(sys.executable, "-c", LOOP, small), runs)}
    rg = tool("rg", "ripgrep")
    if rg is not None:
        words = (rg, "-j1", "-c", "--no-config")
        speeds["rg-literals"] = megabytes / timed(lambda: run(*words, "-F", "-f", literals, path), runs)
        wide = ("--no-unicode", "--dfa-size-limit", "2G", "--regex-size-limit", "2G")
        with contextlib.suppress(SystemExit):  # an expression that it does not know
            speeds["rg-patterns"] = SLOW / timed(lambda: run(*words, *wide, "-f", patterns, small), 1)
    if find_spec("drain3") is not None:
        speeds["drain3"] = SLOW / timed(lambda: run(sys.executable, "-c", DRAIN, small), 1)
    small.unlink()
    return speeds


COLUMNS = {
    "read": ("triage", "read"),
    "`grep -c NCCL`": ("triage", "grep"),
    "Hyperscan alone": ("triage", "floor"),
    "`rg -F -f` literals": ("triage", "rg-literals"),
    "`rg -f` patterns": ("triage", "rg-patterns"),
    "Drain3": ("triage", "drain3"),
    "Python loop, one regex": ("triage", "loop"),
    "2 processes: of 1": ("two", "triage"),
    "pipe: of a file": ("pipe", "triage"),
    "gz: `gzip -dc`": (".gz", "gzip"),
    "zst: `zstd -dc`": (".zst", "zstd"),
}


def table(rows: Sequence[Row]) -> str:
    """Return the results as Markdown: our speed as a share of that of each tool."""
    lines = [["log", *COLUMNS, "peak memory"]]
    lines += [[row.name, *(row.share(*pair) for pair in COLUMNS.values()), f"{row.peak:.0f} MB"] for row in rows]
    return markdown(lines)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]]) + "\n"


def growth(folder: Path, sizes: Sequence[int], ranks: Sequence[int], profile: str) -> str:
    """Return how the cost grows with the size of a log and with its ranks, as multiples of the first."""
    lines = [["log", "ranks", "time", "of `python -c pass`", "peak memory"]]
    nothing = timed(lambda: run(sys.executable, "-c", "pass"), 5)
    cases = [(size, None) for size in sizes] + [(sizes[min(2, len(sizes) - 1)], count) for count in ranks]
    first = 0.0
    for size, count in cases:
        path = write(folder / "growing.log", stream(profile, size * 1_000_000, 7, count))
        peak = run(*TRIAGE, "--jobs", "1", path)
        seconds = timed(lambda: run(*TRIAGE, "--jobs", "1", path), 3 if size <= 10 else 1)  # noqa: B023
        first = first or seconds
        world = str(count or PROFILES[profile].world_size)
        line = [
            f"{profile}, {size} MB",
            world,
            f"{seconds / first:.1f} x",
            f"{seconds / nothing:.0f} x",
            f"{peak:.0f} MB",
        ]
        lines.append(line)
        path.unlink()
    return markdown(lines)


def machine() -> str:
    """Return a line about this machine."""
    cpu = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.+)", cpu.read_text()) if cpu.exists() else None
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} processors ({model[1] if model else platform.machine()}), {platform.system()}, {python}\n"


def put(path: Path, name: str, text: str) -> None:
    """Put a text between two marks of a file."""
    marks = re.compile(MARKS.format(name=name), re.S)
    path.write_text(marks.sub(lambda found: found[1] + text + found[2], path.read_text("utf-8")), "utf-8")


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--profiles", nargs="*", default=["verbose", "storm", "quiet"], choices=list(PROFILES))
    parser.add_argument(
        "--tools",
        nargs="*",
        default=[],
        help="measure only these, such as triage read grep floor: a gigabyte takes a minute then, and nothing is packed",
    )
    parser.add_argument("--sizes", type=int, nargs="*", default=[1, 10, 100, 1000], help="of the growing log, in MB")
    parser.add_argument("--ranks", type=int, nargs="*", default=[8, 64, 512, 4096, 16384], help="of the growing log")
    parser.add_argument("--write", action="store_true", help="put the tables into the documentation")
    arguments = parser.parse_args()
    prepare()
    folder = Path(tempfile.mkdtemp(prefix="nccl-triage-bench-"))
    try:
        rows = [
            measure(
                name,
                size,
                arguments.runs if size <= 200 else 1,
                folder,
                others=size == min(arguments.megabytes) and not arguments.tools,
                tools=arguments.tools,
            )
            for size in arguments.megabytes
            for name in arguments.profiles
        ]
        sys.stdout.write(long := table(rows))
        sys.stdout.flush()
        growing = growth(folder, arguments.sizes, arguments.ranks, "verbose") if arguments.sizes else ""
    finally:
        shutil.rmtree(folder)
    sys.stdout.write(growing)
    if arguments.write and not arguments.tools:
        page = ROOT / "docs" / "performance.md"
        put(page, "speed", long)
        put(page, "growth", growing)
        put(page, "machine", machine())


if __name__ == "__main__":
    main()
