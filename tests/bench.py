"""Compare the speed of a diagnosis with grep and a plain read, in one run (``make bench``).

Machines are noisy: the ratios count, not the seconds. Logs are generated, seeded, and thrown away.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path


def verbose(chance: random.Random) -> Iterator[str]:
    """Yield a start-up heavy log: 70 % NCCL INFO, the rest training steps."""
    step = 0
    while True:
        rank = chance.randrange(64)
        if chance.random() < 0.7:
            yield (
                f"gpu{rank // 8:02d}:{4000 + rank}:{5000 + rank} [{rank % 8}] NCCL INFO Channel {chance.randrange(32):02d}/0 : "
                f"{rank}[{rank % 8}] -> {(rank + 1) % 64}[{(rank + 1) % 8}] via P2P/CUMEM/read"
            )
        else:
            step += 1
            yield f"step {step}/100000 loss {chance.random() * 5:.4f} lr 1.0e-04 {chance.randrange(900, 1100)} tok/s"


def storm(chance: random.Random) -> Iterator[str]:
    """Yield a log in which a third of the lines are errors of 512 ranks."""
    while True:
        rank = chance.randrange(512)
        if chance.random() < 0.36:
            yield (
                f"[rank{rank}]:[E1206 18:44:12.{chance.randrange(10**9):09d} ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught "
                f"collective operation timeout: WorkNCCL(SeqNum={chance.randrange(900, 1000)}, OpType=ALLREDUCE, NumelIn=1048576, "
                "NumelOut=1048576, Timeout(ms)=600000) ran for 600037 milliseconds before timing out."
            )
        else:
            yield f"[rank{rank}]: batch {chance.randrange(10**6)} tokens {chance.randrange(4096)} seq {chance.random():.6f}"


def quiet(chance: random.Random) -> Iterator[str]:
    """Yield an uneventful log."""
    while True:
        yield f"{chance.random():.6f} worker {chance.randrange(512)} fetched shard {chance.randrange(10**6)} in {chance.random():.3f} s"


def write(path: Path, lines: Iterator[str], size: int) -> None:
    """Write a log of about ``size`` bytes by repeating a generated megabyte."""
    block: list[str] = []
    length = 0
    for line in lines:
        block.append(line)
        length += len(line) + 1
        if length > 1_000_000:
            break
    data = ("\n".join(block) + "\n").encode()
    with path.open("wb") as stream:
        for _ in range(max(1, size // len(data))):
            stream.write(data)


def timed(action: Callable[[], object], runs: int) -> float:
    """Return the median of the wall seconds of several runs."""
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    size = arguments.megabytes * 1_000_000
    folder = Path(tempfile.mkdtemp(prefix="nccl-triage-bench-"))
    try:
        sys.stdout.write(
            f"{arguments.megabytes} MB, median of {arguments.runs} runs; MB/s and the share of grep's speed\n"
        )
        for make in (verbose, storm, quiet):
            path = folder / f"{make.__name__}.log"
            write(path, make(random.Random(7)), size)
            actual = path.stat().st_size / 1e6
            read = timed(path.read_bytes, arguments.runs)
            grep = timed(
                lambda p=path: subprocess.run(["grep", "-c", "NCCL", str(p)], capture_output=True, check=False),
                arguments.runs,
            )
            triage = timed(
                lambda p=path: subprocess.run(
                    [sys.executable, "-m", "nccl_triage", str(p)], capture_output=True, check=True
                ),
                arguments.runs,
            )
            sys.stdout.write(
                f"{make.__name__:8} read {actual / read:8.0f}   grep -c NCCL {actual / grep:7.0f}   "
                f"nccl-triage {actual / triage:7.1f}   ratio to grep {grep / triage:.4f}\n"
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
