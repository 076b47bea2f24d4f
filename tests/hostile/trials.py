"""Inputs that are far too large, made while they are read; the tests take them small, ``python -m tests.hostile`` whole."""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PIECE = 1 << 20
ERROR = (
    b"[rank%d]:[E1206 12:00:00.123456789 ProcessGroupNCCL.cpp:616] [Rank %d] Watchdog caught collective operation "
    b"timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 "
    b"milliseconds before timing out.\n"
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One input: ``feed(size)`` yields its bytes; ``most`` is the memory in MB that the process may take at any size.

    ``says`` stands in the answer, or is why there is none (``code`` 2).
    """

    name: str
    feed: Callable[[int], Iterator[bytes]]
    small: int
    whole: int
    most: int = 64
    says: str = ""
    code: int = 0


#: Of 65,536 ranks something is kept, since the one that lacks a line may be the culprit.
_MOST_OF_RANKS = 400


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run: exit code, seconds, peak memory in MB, what it printed."""

    code: int
    seconds: float
    memory: float
    out: str
    err: str


def repeated(text: bytes, size: int) -> Iterator[bytes]:
    """Yield a text again and again, ``size`` bytes of it."""
    piece = text * max(1, _PIECE // len(text))
    whole, rest = divmod(size, len(piece))
    for _ in range(whole):
        yield piece
    yield piece[:rest]


def bomb(text: bytes, size: int) -> Iterator[bytes]:
    """Yield an archive of members that unpack to ``size`` bytes: about a thousandth of them travels."""
    unit = min(size, 16 << 20)
    member = gzip.compress(b"".join(repeated(text, unit)), 9)
    for _ in range(max(1, size // unit)):
        yield member


def nested(size: int) -> Iterator[bytes]:
    """Yield an archive of an archive of an archive."""
    data = b"".join(bomb(b"\0", size))
    yield gzip.compress(gzip.compress(data))


def ranks(number: int) -> Iterator[bytes]:
    """Yield a line of each of so many ranks that announces as many."""
    for start in range(0, number, 1000):
        yield b"".join(
            b"host%d:%d:%d [0] NCCL INFO comm 0x7f rank %d nranks %d cudaDev 0 nvmlDev 0 busId 1b000 commId 0x1 "
            b"- Init COMPLETE\n" % (rank, rank, rank, rank, number)
            for rank in range(start, min(start + 1000, number))
        )


def failing(number: int) -> Iterator[bytes]:
    """Yield a failure of each of so many ranks."""
    for rank in range(number):
        yield ERROR % (rank, rank)


def announced(number: int) -> Iterator[bytes]:
    """Yield a job that says it has so many ranks, of which two speak."""
    yield b"host:1:1 [0] NCCL INFO comm 0x7f rank 0 nranks %d cudaDev 0 busId 1b000 - Init COMPLETE\n" % number
    yield ERROR % (0, 0) + ERROR % (1, 1)


def deep(depth: int) -> Iterator[bytes]:
    """Yield records of JSON, nested so deeply."""
    for opening, closing in ((b'{"a":', b"}"), (b"[", b"]")):
        yield b'{"msg":' + opening * depth + b"1" + closing * depth + b"}\n"


def digits(number: int) -> Iterator[bytes]:
    """Yield numbers of so many digits wherever a number is read."""
    nines = b"9" * number
    for line in (
        *(
            b"(Worker pid=%s) x",
            b"h:%s:1 [0] NCCL INFO x",
            b"[%s]<stdout>: x",
            b"[Rank %s] x",
            b'{"msg":"x","pid":"%s"}',
        ),
        *(b"  exitcode  : %s (pid: %s)", b"x [repeated %sx across cluster]", b"step %s loss %s", b"rank %s: x"),
        *(b"cudaDriverVersion %s NCCL INFO", b"Timeout(ms)=%s) Watchdog caught collective operation timeout"),
    ):
        yield line.replace(b"%s", nines) + b"\n"


TRIALS = {
    trial.name: trial
    for trial in (
        Trial("gz-of-zeros", lambda size: bomb(b"\0", size), 8 << 20, 10 << 30, says="NUL bytes removed"),
        Trial("gz-of-one-line", lambda size: bomb(b"x", size), 8 << 20, 10 << 30, says="beginning and end kept"),
        Trial("gz-of-empty-lines", lambda size: bomb(b"\n", size), 1 << 17, 1 << 30),
        Trial("gz-in-gz", nested, 8 << 20, 1 << 30, says="binary, not a log", code=2),
        Trial("one-character-lines", lambda size: repeated(b"x\n", 2 * size), 100_000, 100_000_000),
        Trial("one-line", lambda size: repeated(b"x", size), 32 << 20, 2 << 30, says="beginning and end kept"),
        Trial("ranks-that-speak", ranks, 500, 1_000_000, most=_MOST_OF_RANKS),
        Trial("ranks-that-fail", failing, 200, 100_000, most=_MOST_OF_RANKS, says="root cause"),
        Trial("ranks-announced", announced, 1_000_000, 1_000_000_000, says="root cause"),
        Trial("deep-json", deep, 10_000, 30_000),
        Trial("endless-numbers", digits, 5_000, 60_000),
    )
}


def environment(**extra: str) -> dict[str, str]:
    """Return what the program is run with: a fixed language, this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANG", "LC_", "NCCL_"))}
    return {**kept, "PYTHONPATH": str(ROOT / "analyzer"), "LANG": "C.UTF-8", **extra}


def run(feed: Iterator[bytes], *words: str, limit: float = 3600) -> Outcome:
    """Run the program over what is fed to it; after ``limit`` seconds it is killed."""
    started = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "nccl_triage", *(words or ("-",))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        texts: list[bytes] = [b"", b""]

        def read(index: int, stream: object) -> None:
            texts[index] = stream.read()  # type: ignore[attr-defined]

        readers = [threading.Thread(target=read, args=pair) for pair in enumerate((process.stdout, process.stderr))]
        killer = threading.Timer(limit, process.kill)
        for thread in (*readers, killer):
            thread.start()
        with contextlib.suppress(BrokenPipeError):
            for piece in feed:
                process.stdin.write(piece)
            process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        killer.cancel()
        for thread in readers:
            thread.join()
    out, err = (text.decode("utf-8", "replace") for text in texts)
    return Outcome(process.returncode, time.monotonic() - started, usage.ru_maxrss / 1024, out, err)
