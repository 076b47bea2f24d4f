"""Inputs of one shape in any size: many hosts, ranks, runs, exceptions, files.. What they cost must grow as they do."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.recorder import build

LAUNCH = "W1126 10:00:00.000000 1 torch/distributed/run.py:766] *****************************************\n"
_STEP = "2026-01-02 10:{:02d}:{:02d},000 INFO rank {} step {}/99999 loss {:.4f} grad_norm 1.25 lr 1.0e-05\n"


@dataclass(frozen=True, slots=True)
class Shape:
    """``make(folder, size)`` writes the input; the tests take ``size`` and its doubles, ``make hostile`` ``whole``."""

    name: str
    make: Callable[[Path, int], None]
    size: int
    whole: int


def _log(make: Callable[[int], str]) -> Callable[[Path, int], None]:
    """Return what writes the text that ``make`` makes of a size as one log."""

    def write(folder: Path, size: int) -> None:
        (folder / "train.log").write_text(make(size), "utf-8")

    return write


def _steps(rank: int, number: int) -> str:
    return "".join(_STEP.format(n // 60 % 60, n % 60, rank, n, 9 - n / 1e5) for n in range(number))


def hosts(size: int) -> str:
    """Hosts that say which interface they use, and start a communicator."""
    return "".join(
        f"node{n}:{100 + n}:{200 + n} [0] NCCL INFO Bootstrap : Using eth0:10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}<0>\n"
        f"node{n}:{100 + n}:{200 + n} [0] NCCL INFO ncclCommInitRank comm 0x{n + 4096:x} rank {n} nranks {size} cudaDev 0 "
        "nvmlDev 0 busId 1b000 commId 0x1 - Init START\n"
        for n in range(size)
    )


def ranks(size: int) -> str:
    """Ranks that train."""
    return "".join(f"[rank{n}]: step {step}/9 loss {step + n / 7:.3f}\n" for step in range(3) for n in range(size))


def pids(size: int) -> str:
    """Workers that come and go, each with a process id of its own."""
    return "".join(
        f"(Worker pid={1000 + n}) loading shard {n}\n(Worker pid={1000 + n}) RuntimeError: worker {n} has no data\n"
        for n in range(size)
    )


def groups(size: int) -> str:
    """Process groups, in each of which a collective times out."""
    return "".join(
        f"[rank{n % 8}]:[E1126 12:00:00.123456789 ProcessGroupNCCL.cpp:616] [PG ID {n} PG GUID {n}(group_{n}) Rank {n % 8}] "
        f"Watchdog caught collective operation timeout: WorkNCCL(SeqNum={n}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
        for n in range(size)
    )


def addresses(size: int) -> str:
    """One host with many addresses, to each of which connections fail."""
    return "".join(
        f"node1:1:1 [0] NCCL INFO NET/Socket : Using [0]eth{n}:10.{n >> 8 & 255}.{n & 255}.5<0>\n"
        f"node1:1:1 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.{n >> 8 & 255}.{n & 255}.9<4000> "
        "failed : Connection refused\n"
        for n in range(size)
    )


def networks(size: int) -> str:
    """Hosts that share one network and have others of their own number."""
    return "".join(
        f"node{n}:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.1.{n % 9}.{n % 250}<0>\n"
        f"node{n}:1:1 [0] NCCL INFO Bootstrap : Using eth1:10.1.{n % 9}.{n % 251}<0>\n"
        for n in range(size)
    )


def exceptions(size: int) -> str:
    """Tracebacks, no two of the same line and type."""
    return "".join(
        f"[rank{n % 16}]: Traceback (most recent call last):\n"
        f'[rank{n % 16}]:   File "/job/train_{n}.py", line {n}, in step_{n}\n[rank{n % 16}]:     loss = model(batch)\n'
        f'[rank{n % 16}]:   File "/job/data.py", line {n + 7}, in load\n[rank{n % 16}]:     raise Shard{n}Error(path)\n'
        f"[rank{n % 16}]: Shard{n}Error: shard {n} of /data/part-{n} is damaged\n"
        for n in range(size)
    )


def interleaved(size: int) -> str:
    """Tracebacks of many ranks, line by line: what all print at once."""
    lines = (
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 7, in main',
        "    loss = model(batch)",
        '  File "/job/data.py", line 9, in load',
        "    raise ShardError(path)",
        "ShardError: shard {n} of /data/part-{n} is damaged",
    )
    return "".join(f"[rank{n}]: {line.format(n=n)}\n" for line in lines for n in range(size))


def runs(size: int) -> str:
    """A job that is started again and again."""
    return "".join(
        LAUNCH
        + "[rank0]: step 1/9 loss 3.1\n[rank1]: step 1/9 loss 3.1\n"
        + "[rank1]: Traceback (most recent call last):\n"
        + f'[rank1]:   File "train.py", line 7, in main\n[rank1]: ValueError: attempt {n} has no shard\n'
        + "W1126 10:00:09.000000 1 torch/distributed/elastic/agent/server/api.py:900] [default] Worker group FAILED. "
        + f"{size - n}/{size} attempts left; will restart worker group\n"
        for n in range(size)
    )


def sections(size: int) -> str:
    """Reports of torchelastic, one after the other."""
    line = "=" * 60
    return "".join(
        f"{line}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n  <NO_OTHER_FAILURES>\n{'-' * 60}\n"
        f"Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-26_10:{n // 60 % 60:02d}:{n % 60:02d}\n"
        f"  host      : node{n}\n  rank      : {n} (local_rank: {n % 8})\n  exitcode  : 1 (pid: {1000 + n})\n"
        f"  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n{line}\n"
        for n in range(size)
    )


def timeouts(size: int) -> str:
    """Ranks that wait for one another, each with other numbers."""
    return "".join(
        f"[rank{n}]:[E1126 12:00:{n % 60:02d}.123456789 ProcessGroupNCCL.cpp:616] [Rank {n}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={n + 5}, OpType=ALLREDUCE, NumelIn={n + 1}, NumelOut={n + 1}, "
        f"Timeout(ms)=600000) ran for {600000 + n} milliseconds before timing out.\n"
        for n in range(size)
    )


def kernel(size: int) -> str:
    """Lines of the kernel about GPUs and processes."""
    return "".join(
        f"Nov 26 10:{n // 60 % 60:02d}:{n % 60:02d} node{n % 32} kernel: [{5000 + n}.123456] NVRM: Xid (PCI:0000:{n % 255:02x}:00): "
        f"{(13, 31, 48, 63, 74, 79)[n % 6]}, pid={1000 + n}, name=python, Ch {n:08x}\n"
        f"Nov 26 10:{n // 60 % 60:02d}:{n % 60:02d} node{n % 32} kernel: [{5000 + n}.223456] Out of memory: Killed process {1000 + n} "
        "(python) total-vm:9000000kB, anon-rss:8000000kB, file-rss:0kB, shmem-rss:0kB, UID:0\n"
        for n in range(size)
    )


def unknown(size: int) -> str:
    """Lines that sound like trouble, of which no two are alike and no signature knows any."""
    words = ("alpha", "bravo", "delta", "gamma", "kappa", "omega", "sigma", "theta")

    def name(n: int) -> str:
        return "".join(words[n >> shift & 7][: 3 + (n >> shift) % 3] for shift in (0, 3, 6, 9, 12))

    return "".join(f"fatal error: the {name(n)} of {name(n * 7)} failed in {name(n * 3)}\n" for n in range(size))


def long_lines(size: int) -> str:
    """Lines of 50,000 characters, of words, brackets and numbers."""
    piece = "error [rank0] {'a': 1, \"b\": (2, 3)} loss=1.5 step 7/9 10.0.0.1:4000 /a/b.py:7 "
    return "".join(f"{n} {piece * (50_000 // len(piece))}\n" for n in range(size))


def redrawn(size: int) -> str:
    """A progress bar, redrawn without an end of line."""
    return "".join(
        f"\rEpoch 1: {n * 100 // size:3d}%|####      | {n}/{size} [00:{n % 60:02d}<01:00, 1.5it/s]" for n in range(size)
    )


def variables(size: int) -> str:
    """Variables that ranks print."""
    return "".join(
        f"[rank{n % 64}]: NCCL_SOME_{n}={n}\n[rank{n % 64}]: os.environ['FOO_{n}'] = '{n}'\n" for n in range(size)
    )


def curves(size: int) -> str:
    """Ranks with curves of their own."""
    return "".join(_steps(rank, 40) for rank in range(size))


def links(size: int) -> str:
    """Channels of NCCL between ranks."""
    return "".join(
        f"node{n % 64}:{n % 512}:1 [{n % 8}] NCCL INFO Channel {n % 16:02d}/0 : {n}[{n % 8}] -> {n + 1}[{(n + 1) % 8}] [send] via NET/IB/0/GDRDMA\n"
        for n in range(size)
    )


def records(size: int) -> str:
    """Records of JSON with nested fields."""
    return "".join(
        f'{{"time":"2026-01-02T10:00:{n % 60:02d}Z","level":"ERROR","msg":"rank {n} failed: {{\\"code\\": {n}}}","ctx":{{"pid":{n}}}}}\n'
        for n in range(size)
    )


def recorder_entries(folder: Path, size: int) -> None:
    """Dumps of four ranks with many calls."""
    calls = [("all_reduce", 8 + n % 5) for n in range(size)]
    for rank in range(4):
        row = [*calls[: size - rank], ("all_gather", 16, "started")]
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(build.dump(row, 4), 2))


def recorder_ranks(folder: Path, size: int) -> None:
    """Dumps of many ranks."""
    for rank in range(size):
        row = [("all_reduce", 8), ("broadcast", 4, "started" if rank % 7 else "scheduled")]
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(build.dump(row, size), 2))


def files(folder: Path, size: int) -> None:
    """A small log of each of many ranks."""
    for rank in range(size):
        text = hosts(1).replace("rank 0 nranks 1", f"rank {rank} nranks {size}") + _steps(rank, 3)
        (folder / f"rank{rank}.log").write_text(text + f"[rank{rank}]: ValueError: shard {rank} is empty\n", "utf-8")


def copies(folder: Path, size: int) -> None:
    """The same lines in each of many files: collectives that nobody entered, traces, exits, phases of a program."""
    text = (
        "Loading weights: step 1/9 loss 2.1\n"
        "Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=4, OpType=ALLREDUCE, TensorShape=[8], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=4, OpType=BROADCAST).\n"
        "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms\n"
        "gpu07:77:77 [0] NCCL INFO transport.cc:164 -> 2\n"
        "gpu07:77:77 [0] misc/odd.cc:9 NCCL WARN an odd thing that nobody knows\n"
        "generating responses\n"
        "E0603 14:00:01.000000 70 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: 1) local_rank: 0 (pid: 77) of binary: python\n"
    )
    for rank in range(size):
        (folder / f"rank_{rank}.log").write_text(text, "utf-8")


def parts(folder: Path, size: int) -> None:
    """One log, cut into many files."""
    for part in range(size):
        (folder / f"train.log.{part}").write_text(_steps(0, 3) + exceptions(1), "utf-8")


def deep(folder: Path, size: int) -> None:
    """Folders in folders, a log in each; their paths are as long as a system takes."""
    here = folder
    for number in range(size):
        here /= "d"
        here.mkdir()
        (here / f"{number}.log").write_text(_steps(0, 3), "utf-8")


SHAPES = {
    shape.name: shape
    for shape in (
        *(Shape(make.__name__, _log(make), 200, 25_600) for make in (hosts, ranks, pids, groups, timeouts)),
        Shape("addresses", _log(addresses), 400, 12_800),
        Shape("networks", _log(networks), 400, 12_800),
        Shape("exceptions", _log(exceptions), 75, 9_600),
        Shape("interleaved", _log(interleaved), 200, 12_800),
        Shape("runs", _log(runs), 100, 6_400),
        Shape("sections", _log(sections), 100, 6_400),
        Shape("kernel", _log(kernel), 300, 19_200),
        Shape("unknown", _log(unknown), 800, 100_000),
        Shape("long-lines", _log(long_lines), 4, 400),
        Shape("redrawn", _log(redrawn), 2_000, 1_000_000),
        Shape("variables", _log(variables), 400, 50_000),
        Shape("curves", _log(curves), 30, 2_000),
        Shape("links", _log(links), 400, 100_000),
        Shape("records", _log(records), 400, 50_000),
        Shape("recorder-entries", recorder_entries, 100, 20_000),
        Shape("recorder-ranks", recorder_ranks, 30, 2_000),
        Shape("files", files, 30, 20_000),
        Shape("copies", copies, 100, 20_000),
        Shape("parts", parts, 25, 20_000),
        Shape("deep", deep, 50, 1_600),
    )
}


def size_of(folder: Path) -> int:
    """Return how many bytes lie in a folder."""
    return sum(Path(at, name).stat().st_size for at, _, names in os.walk(folder) for name in names)
